"""The parsers of YAML and of `key=value` settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from tfr_moe.errors import UserError, validated

_Options = TypeVar("_Options", bound=BaseModel)

MAX_YAML_VALUES = 1_000_000


def load_yaml(text: str) -> Any:
    """Reads a YAML document of plain values.

    Raises a `yaml.YAMLError` for invalid YAML, a key that occurs twice, or a document that its
    aliases expand to more than `MAX_YAML_VALUES` values.
    """
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is not None and _expanded_size(root, {}) > MAX_YAML_VALUES:
            raise yaml.YAMLError(f"aliases expand to more than {MAX_YAML_VALUES:,} values")
        return yaml.safe_load(text)
    except RecursionError:
        raise yaml.YAMLError("values are nested too deeply") from None


def read_yaml(path: Path, kind: str) -> Any:
    """Reads a YAML or JSON file; a UserError with its `kind`, such as `config`, if invalid."""
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{kind} {path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{kind} {path}: not valid YAML or JSON ({line})") from error


def read_mapping(path: Path, kind: str) -> dict[str, Any]:
    """As `read_yaml`, of a file that holds a mapping; an empty file holds an empty one."""
    data = read_yaml(path, kind)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{kind} {path}: must be a mapping of keys to values")
    return data


def _expanded_size(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Number of values below a node, with a copy for each alias."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = None
        children = node.value
        if isinstance(node, yaml.MappingNode):
            _check_keys([key for key, _ in node.value])
            children = itertools.chain(*node.value)
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in children)
    size = sizes[id(node)]
    if size is None:
        raise yaml.YAMLError("an alias is part of the value that it names")
    return size


def _check_keys(keys: Iterable[yaml.Node]) -> None:
    """YAML's own parser lets the last of equal keys win."""
    seen = set()
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"key {key.value!r} occurs twice, again in line {line}")
            seen.add(key.value)


def split_pair(pair: str, kind: str = "setting") -> tuple[str, str]:
    """Splits `key=value` at the first `=`; the value stays text. `kind` is for messages."""
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{kind} {pair!r}: must be key=value")
    return key.strip(), text


def parse_pair(pair: str) -> tuple[str, Any]:
    """Splits `key=value` and reads the value as YAML."""
    key, text = split_pair(pair)
    try:
        return key, load_yaml(text)
    except yaml.YAMLError:
        raise UserError(f"setting {pair!r}: the value is not valid YAML") from None


def parse_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Reads several `key=value` texts; of one key given twice the last value wins."""
    return dict(map(parse_pair, pairs))


def parse_options(
    model: type[_Options], pairs: Iterable[str], owner: str, **defaults: Any
) -> _Options:
    """Returns options read from `key=value` texts, by the types of the model's fields.

    `owner` says in messages whose options they are, such as `source search-logs`. `defaults` are
    values of fields that `pairs` lacks, ignored where the model has no such field.

    Raises:
        UserError: for an unknown key, a missing or an invalid value.

    Example:
        >>> class Example(BaseModel):
        ...     name: str = ""
        ...     number: int = 5
        >>> parse_options(Example, ["number=7"], "example", name="a", size=3)
        Example(name='a', number=7)
    """
    fields = model.model_fields
    values = {key: value for key, value in defaults.items() if key in fields}
    for pair in pairs:
        key, text = split_pair(pair)
        if key not in fields:
            raise UserError(
                f"setting {pair!r}: {owner} has no such option; "
                f"available: {', '.join(fields) or 'none'}"
            )
        values[key] = text
    return validated(model, values, owner)


def seconds_of(duration: str | float) -> float:
    """Reads a duration: a number of seconds, or a text with its unit.

    Example:
        >>> seconds_of("90s"), seconds_of("30m"), seconds_of("1.5h"), seconds_of(5)
        (90.0, 1800.0, 5400.0, 5.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(duration))
    if match is not None:
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if isinstance(duration, str):
        raise UserError(f"duration {duration!r}: must be a number with s, m or h, such as 30m")
    return float(duration)
