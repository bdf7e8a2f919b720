"""The options of one source: a model with a line of help for each, read from `key=value` texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tfr_moe.errors import UserError, describe

Options = TypeVar("Options", bound="SourceOptions")


class SourceOptions(BaseModel):
    """Base of the options of a source; each field has a description, which is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoOptions(SourceOptions):
    """A source without options of its own."""


def parse(model: type[Options], pairs: Sequence[str], source: str, **defaults: Any) -> Options:
    """Options from `key=value` texts; a value is YAML, and a list may be written `a,b`.

    Args:
        model: what options there are.
        pairs: the texts.
        source: the source's name, for messages.
        defaults: values for fields that are not given, ignored where the model has no such field.

    Raises:
        UserError: for a text that is no pair, an unknown key, a missing or a wrong value.

    Example:
        >>> class Example(SourceOptions):
        ...     columns: tuple[str, ...] = ()
        ...     number: int = 5
        >>> parse(Example, ["columns=a,b", "number=7"], "example")
        Example(columns=('a', 'b'), number=7)
    """
    fields = model.model_fields
    given: dict[str, Any] = {key: value for key, value in defaults.items() if key in fields}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair!r}: must be key=value")
        if key not in fields:
            there = ", ".join(fields) or "none"
            raise UserError(
                f"--set {pair!r}: source {source} has no such option; there are: {there}"
            )
        given[key] = _value(model, key, text)
    try:
        return model(**given)
    except ValidationError as error:
        raise UserError(f"--set, source {source}: {describe(error, given)}") from None


def _value(model: type[SourceOptions], key: str, text: str) -> Any:
    annotation = str(model.model_fields[key].annotation)
    if annotation.startswith("tuple"):
        return [part.strip() for part in text.strip("[]").split(",") if part.strip()]
    if "str" in annotation:
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def described(model: type[SourceOptions]) -> list[tuple[str, str, str]]:
    """(name, default, description) of each option, for `--help`."""
    return [
        (
            name,
            "required" if field.is_required() else f"default {_shown(field.default)}",
            field.description or "",
        )
        for name, field in model.model_fields.items()
    ]


def _shown(default: Any) -> str:
    if default is None or default == () or default == "":
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
