"""The exception for user errors, its line on stderr, and the exit codes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

_Form = TypeVar("_Form")

EXIT_USAGE = 2
"""Exit code after a user error."""

EXIT_REJECTED = 3
"""Exit code of a check that did not pass: drift above a limit, or a model not published."""

EXIT_PEER_LOST = 75
"""Exit code of training whose peers are gone: re-running the same command resumes the run."""

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells."""


class UserError(Exception):
    """An error of the user in a file, a row, a field or an argument.

    The message is one line that states what is wrong, where, and what is allowed.
    """


class LostWorkersError(UserError):
    """Other processes of the cluster are gone; the run resumes when all are started again."""


def error_line(error: object) -> str:
    """Formats an error that ends a program as one line.

    Example:
        >>> error_line(UserError("config.yaml: two faults:\\n    seed, epochs"))
        'error: config.yaml: two faults: seed, epochs'
    """
    return f"error: {' '.join(str(error).split())}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns a question for the nearest known name; empty if none is near.

    Example:
        >>> did_you_mean("prize", ["price", "brand"])
        "did you mean 'price'?"
        >>> did_you_mean("hidden_dims", ["tower_hidden_dims", "expert_hidden_dims"])
        "did you mean 'tower_hidden_dims' or 'expert_hidden_dims'?"
    """
    names = [str(each) for each in known]
    if len(names) == 1 and re.search(r"[;\t]", names[0]):
        return "are the columns separated by commas?"
    ending = [each for each in names if each.endswith(f"_{name}")]
    close = ending or difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {' or '.join(map(repr, close[:3]))}?" if close else ""


def named(location: Sequence[int | str], data: Any) -> str:
    """Formats a location such as `("features", 3, "kind")` as `feature 'price': kind`."""
    words: list[str] = []
    here = data
    for step in location:
        try:
            here = here[step]
        except (TypeError, KeyError, IndexError):
            here = None
        if isinstance(step, int):
            name = here.get("name") if isinstance(here, dict) else None
            parent = words.pop() if words else "entry"
            words.append(f"{parent.removesuffix('s')} {name!r}" if name else f"{parent}[{step}]")
        else:
            words.append(str(step))
    return ": ".join(words)


def validated(form: type[_Form], data: Any, where: str, hidden: Container[int | str] = ()) -> _Form:
    """Returns `data` as the type `form`, by pydantic's rules.

    A UserError starts with `where`, both of data that does not fit and of a validator.
    """
    try:
        return TypeAdapter(form).validate_python(data)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except ValidationError as error:
        raise UserError(f"{where}: {describe(error, data, hidden)}") from error


def describe(error: ValidationError, data: Any, hidden: Container[int | str] = ()) -> str:
    """Formats a pydantic error over the raw `data` as one line that names each wrong field.

    `hidden` are levels of the data that the line does not name.
    """
    parts = []
    items = error.errors()
    for item in items:
        nested = any(
            other["loc"][: len(item["loc"])] == item["loc"] for other in items if other is not item
        )
        if item["type"] == "too_short" and nested:
            continue  # pydantic counts a sequence of invalid entries as empty
        where = named([step for step in item["loc"] if step not in hidden], data)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        elif item["type"] in ("tuple_type", "list_type"):
            message = f"must be a list in brackets. Received: {item['input']!r}"
        elif item["type"] in ("model_type", "dict_type"):
            message = f"must be a mapping of names to values. Received: {item['input']!r}"
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)
