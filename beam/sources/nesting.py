"""Nested JSON: a line for a list, its items in an array -> a row for each item."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tfr_moe.errors import UserError

from . import RawRow, formats
from .files import Report

POSITION = "position"
_SAMPLE = 1000


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects in objects as columns, names joined by an underscore; arrays stay.

    Example:
        >>> flat({"id": 1, "user": {"age": 30, "home": {"zip": "x"}}})
        {'id': 1, 'user_age': 30, 'user_home_zip': 'x'}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}_"))
        else:
            found[f"{prefix}{name}"] = value
    return found


def rows_of(row: RawRow, items: str) -> Iterator[RawRow]:
    """The rows of one line: each item's columns beside those of the list.

    Args:
        row: a line, its values an object.
        items: name of the array; in an object inside, with dots: `response.items`. An item's place in
            it, from 1, is `position`, unless it has one.
    """
    if row.error is not None or not isinstance(row.values, Mapping):
        yield row
        return
    *parents, last = items.split(".")
    shared = _without(row.values, parents, last)
    found: Any = row.values
    for name in (*parents, last):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, list) or not found:
        shown = "nothing" if found is None else repr(found)
        reason = f"{items!r}: expected an array of items, got {shown}"
        yield row._replace(error=reason)
        return
    for order, item in enumerate(found):
        if isinstance(item, Mapping):
            values = {**shared, POSITION: order + 1, **flat(item)}
            yield row._replace(values=values, order=order)
        else:
            yield row._replace(error=f"{items!r}: expected objects, got {item!r}", order=order)


def _without(values: Mapping[str, Any], parents: list[str], last: str) -> dict[str, Any]:
    if not parents:
        return flat({name: value for name, value in values.items() if name != last})
    inner = values.get(parents[0])
    rest = {name: value for name, value in values.items() if name != parents[0]}
    if isinstance(inner, Mapping):
        return flat(rest) | {
            f"{parents[0]}_{name}": value
            for name, value in _without(inner, parents[1:], last).items()
        }
    return flat(rest)


def read(path: str, index: int, size: int, report: Report, items: str) -> Iterator[RawRow]:
    """The rows of a file of JSON lines."""
    for row in formats.read(path, index, size, report):
        yield from rows_of(row, items)


def columns(path: str, items: str) -> set[str]:
    """The columns of the first 1,000 rows.

    Raises:
        UserError: if the file has no JSON lines, or no row.
    """
    if formats.file_format(path) != "jsonl":
        raise UserError(f"{path}: --set items is for JSON lines, .jsonl, .ndjson or .json")
    found: set[str] = set()
    reason = "the file is empty"
    for row in itertools.islice(read(path, 0, 0, lambda amount: None, items), _SAMPLE):
        if row.error is None and isinstance(row.values, Mapping):
            found.update(row.values)
        else:
            reason = f"line {row.line}: {row.error}"
    if not found:
        raise UserError(f"{path}: {reason}")
    return found
