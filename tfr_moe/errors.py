"""The exception for mistakes of the user, the line it becomes on stderr, and the exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

MISTAKE = 2
"""The exit code of a program that a mistake of the user's has ended."""

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended, by the custom of shells."""


class UserError(Exception):
    """A mistake in what the user gave: a file, a row, a field or a flag.

    The message is one line. It names the thing at fault and, where there are any, the allowed values.
    """


def error_line(error: object) -> str:
    """What a program says of an error that ends it: one line, however many its message has.

    Example:
        >>> error_line(UserError("config.yaml: two faults:\\n    seed, epochs"))
        'error: config.yaml: two faults: seed, epochs'
    """
    return f"error: {' '.join(str(error).split())}"


def named(location: Sequence[int | str], data: Any) -> str:
    """Turns a position such as `("features", 3, "kind")` into words: `feature 'price': kind`."""
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


def describe(error: ValidationError, data: Any) -> str:
    """Renders a pydantic error over the raw `data` as one line that names each field at fault."""
    parts = []
    items = error.errors()
    for item in items:
        nested = any(
            other["loc"][: len(item["loc"])] == item["loc"] for other in items if other is not item
        )
        if item["type"] == "too_short" and nested:
            continue  # a sequence whose entries failed counts as empty; the entries say why
        where = named(item["loc"], data)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)
