"""Several rows of one item in one list -> one row: events that come late or twice, grades of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id, to_number

from ..sources import RawRow
from .counting import COUNTS, CountingDoFn
from .joining import moment

_HOUR = 3600.0


class Merging(NamedTuple):
    """How rows become one.

    Attributes:
        list_id, item: columns whose pair says what is the same.
        labels: columns of which the highest value is kept.
        time: column with the time, None where there is none.
        attribution_hours: rows later than so many hours after the list's first row are left out.
    """

    list_id: str
    item: str
    labels: tuple[str, ...]
    time: str | None
    attribution_hours: float | None


def grade(values: Mapping[str, Any], grades: Iterable[tuple[str, float]]) -> float:
    """The highest grade among the columns that are above 0; 0 for none.

    Raises:
        RowError: if one of the columns is neither missing nor a number.

    Example:
        >>> grade({"click": "1", "purchase": 0}, [("click", 1), ("purchase", 3)])
        1.0
    """
    found = 0.0
    for column, value in grades:
        given = values.get(column)
        if not is_missing(given) and to_number(column, given) > 0:
            found = max(found, float(value))
    return found


def graded(batch: list[RawRow], label: str, grades: list[tuple[str, float]]) -> list[RawRow]:
    """The rows with a label made of several columns; what can't be graded says why."""
    rows = []
    for row in batch:
        if isinstance(row.values, Mapping):
            try:
                row = row._replace(values={**row.values, label: grade(row.values, grades)})
            except RowError as error:
                row = row._replace(error=str(error))
        rows.append(row)
    return rows


def keyed(batch: list[RawRow], merging: Merging) -> Iterator[tuple[str, RawRow]]:
    """(list id, row); a row that can't be merged has a key of its own, and the parser will reject it."""
    for row in batch:
        yield _list_id(row, merging) or f"\0{row.file}\0{row.line}\0{row.order}", row


def _list_id(row: RawRow, merging: Merging) -> str | None:
    values = row.values
    if row.error is not None or not isinstance(values, Mapping):
        return None
    try:
        for label in merging.labels:
            to_number(label, values.get(label))
        if is_missing(values.get(merging.item)) or is_missing(values.get(merging.list_id)):
            return None
        to_id(merging.item, values[merging.item])
        if merging.time is not None and moment(row, merging.time) is None:
            return None
        return to_id(merging.list_id, values[merging.list_id])
    except RowError:
        return None


class MergeRows(CountingDoFn):
    """(list id, rows) -> the batch of the list's rows, one for each item.

    The row that comes first (by time, then by place) is kept, with the highest value of each label
    among the rows of its item.
    """

    def __init__(self, merging: Merging):
        self._merging = merging

    def process(self, entry: tuple[str, Iterable[RawRow]]) -> Iterator[list[RawRow]]:
        """Merges one list."""
        list_id, found = entry
        if list_id.startswith("\0"):
            rows = list(found)
        else:
            timed = sorted(
                (moment(row, self._merging.time) or 0.0, row.file, row.line, row.order, row)
                for row in found
            )
            rows = self._merged([(time, row) for time, *_, row in timed])
        self.tally["source", "log rows", "kept"] += len(rows)
        self.tally["source", "log rows", "read"] += len(rows)
        yield rows

    def _merged(self, timed: list[tuple[float, RawRow]]) -> list[RawRow]:
        merging = self._merging
        hours = merging.attribution_hours
        latest = float("inf") if hours is None else timed[0][0] + hours * _HOUR
        items: dict[str, RawRow] = {}
        for time, row in timed:
            values: Mapping[str, Any] = row.values  # type: ignore[assignment]
            item = to_id(merging.item, values[merging.item])
            if time > latest:
                self._left_out("left out: late")
            elif item in items:
                items[item] = _with_labels(items[item], values, merging.labels)
                self._left_out("merged with another row of the item")
            else:
                items[item] = row
        return list(items.values())

    def _left_out(self, outcome: str) -> None:
        self.tally["source", "log rows", outcome] += 1
        self.tally["source", "log rows", "read"] += 1


def _with_labels(row: RawRow, other: Mapping[str, Any], labels: Iterable[str]) -> RawRow:
    values: Mapping[str, Any] = row.values  # type: ignore[assignment]
    best = {
        label: max((values[label], other[label]), key=lambda value: to_number("label", value))
        for label in labels
    }
    return row._replace(values={**values, **best})


def merged(batches: beam.PCollection, merging: Merging) -> Any:
    """Batches -> `batches` and `counts` of merged rows."""
    return (
        batches
        | "KeyByList" >> beam.FlatMap(keyed, merging)
        | "RowsOfLists" >> beam.GroupByKey()
        | "MergeRows" >> beam.ParDo(MergeRows(merging)).with_outputs(COUNTS, main="batches")
    )
