"""Rows of raw values by column, which is faster to read and to encode than row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias


class Columns(Sequence[Mapping[str, Any]]):
    """Rows from the values of at least one column; a missing column is None everywhere.

    Example:
        >>> rows = Columns({"query": ["q", "q"], "click": ["0", "1"]})
        >>> len(rows), rows[1]
        (2, {'query': 'q', 'click': '1'})
    """

    def __init__(self, columns: Mapping[str, list[Any]]):
        self.columns = columns
        self._size = len(next(iter(columns.values())))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return {name: values[index] for name, values in self.columns.items()}


Rows: TypeAlias = Sequence[Mapping[str, Any]]


def column_of(rows: Rows, name: str) -> list[Any]:
    """Returns the values of a column, None where a row has none."""
    if isinstance(rows, Columns):
        return rows.columns.get(name) or [None] * len(rows)
    return [row.get(name) for row in rows]
