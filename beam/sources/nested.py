"""Nested JSON lines with one list each: `{"query": "boots", "items": [{"id": 1}, {"id": 2}]}`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tfr_moe.beam.rows import RawRow
from tfr_moe.beam.sources.files import file_format, read
from tfr_moe.errors import UserError

_POSITION = "position"
_SAMPLE = 1000


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested objects as columns with names joined by an underscore; arrays are kept.

    Example:
        >>> flatten({"id": 1, "user": {"age": 30, "home": {"zip": "x"}}})
        {'id': 1, 'user_age': 30, 'user_home_zip': 'x'}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flatten(value, f"{prefix}{name}_"))
        else:
            found[f"{prefix}{name}"] = value
    return found


def read_nested(path: str, index: int, items: str) -> Iterator[RawRow]:
    """Yields the rows of a file of JSON lines with one list each, see `rows_of_list`."""
    for row in read(path, index):
        yield from rows_of_list(row, items)


def rows_of_list(row: RawRow, items: str) -> Iterator[RawRow]:
    """Yields one row per item of a nested JSON line: the columns of the item and those of the list.

    Args:
        row: a line whose values are an object.
        items: name of the array of items; with dots inside nested objects: `response.items`. The
            index of an item, from 1, is its `position` unless it has one.
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
        yield row._replace(error=f"{items!r}: expected an array of items, got {shown}")
        return
    for order, item in enumerate(found):
        if isinstance(item, Mapping):
            values = {**shared, _POSITION: order + 1, **flatten(item)}
            yield row._replace(values=values, order=order)
        else:
            yield row._replace(error=f"{items!r}: expected objects, got {item!r}", order=order)


def _without(values: Mapping[str, Any], parents: list[str], last: str) -> dict[str, Any]:
    if not parents:
        return flatten({name: value for name, value in values.items() if name != last})
    inner = values.get(parents[0])
    rest = flatten({name: value for name, value in values.items() if name != parents[0]})
    if isinstance(inner, Mapping):
        nested = _without(inner, parents[1:], last)
        rest |= {f"{parents[0]}_{name}": value for name, value in nested.items()}
    return rest


def nested_columns(path: str, items: str) -> set[str]:
    """Returns the columns of the first 1,000 rows of a file of nested JSON lines.

    Raises:
        UserError: if the file has no JSON lines, or no row.
    """
    if file_format(path) != "jsonl":
        raise UserError(f"{path}: items needs JSON lines, .jsonl, .ndjson or .json")
    found: set[str] = set()
    reason = "the file is empty"
    for row in itertools.islice(read_nested(path, 0, items), _SAMPLE):
        if row.error is None and isinstance(row.values, Mapping):
            found.update(row.values)
        else:
            reason = f"line {row.line}: {row.error}"
    if not found:
        raise UserError(f"{path}: {reason}")
    return found
