"""Several rows of one item in a list -> one row: late or repeated events, grades of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, CountingDoFn, RawRow
from tfr_moe.beam.transforms.joins import key_of, row_time
from tfr_moe.elwc.values import RowError, is_missing, to_id, to_number

_HOUR = 3600.0


class Deduplication(NamedTuple):
    """Which rows are merged.

    Attributes:
        list_id, item: columns that identify a row.
        labels: columns of which the highest value is kept.
        time: column with the time, None where there is none.
        attribution_hours: rows later than that after the first row of the list are dropped.
    """

    list_id: str
    item: str
    labels: tuple[str, ...]
    time: str | None
    attribution_hours: float | None


def grade(values: Mapping[str, Any], grades: Iterable[tuple[str, float]]) -> float:
    """Returns the highest grade of the columns that are above 0; 0 for none.

    Raises:
        RowError: if one of the columns is neither missing nor a number.

    Example:
        >>> grade({"click": "1", "purchase": 0}, [("click", 1), ("purchase", 3)])
        1.0
    """
    highest = 0.0
    for column, number in grades:
        value = values.get(column)
        if not is_missing(value) and to_number(column, value) > 0:
            highest = max(highest, float(number))
    return highest


def add_grades(batch: list[RawRow], label: str, grades: list[tuple[str, float]]) -> list[RawRow]:
    """Returns the rows with a label made of several columns; invalid rows get an error."""
    rows = []
    for row in batch:
        if isinstance(row.values, Mapping):
            try:
                row = row._replace(values={**row.values, label: grade(row.values, grades)})
            except RowError as error:
                row = row._replace(error=str(error))
        rows.append(row)
    return rows


class Deduplicate(beam.PTransform):
    """Batches of rows -> batches of the rows of one list each, tagged `batches`, and `counts`.

    The first row of an item (by time, then in the order of the files) is kept, with the highest
    value of each label among the rows of the item.
    """

    def __init__(self, merging: Deduplication):
        super().__init__()
        self._merging = merging

    def expand(self, batches: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        """Groups by list and merges."""
        merge = beam.ParDo(MergeRows(self._merging))
        return (
            batches
            | "KeyByList" >> beam.FlatMap(_keyed, self._merging)
            | "RowsOfLists" >> beam.GroupByKey()
            | "MergeRows" >> merge.with_outputs(COUNTS, main="batches")
        )


def _keyed(batch: list[RawRow], merging: Deduplication) -> Iterator[tuple[str, RawRow]]:
    # An invalid row gets a key to itself; the parser will reject it.
    for row in batch:
        yield _list_id(row, merging) or f"\0{row.file}\0{row.line}\0{row.order}", row


def _list_id(row: RawRow, merging: Deduplication) -> str | None:
    values = row.values
    if row.error is not None or not isinstance(values, Mapping):
        return None
    try:
        for label in merging.labels:
            to_number(label, values.get(label))
        key_of(values, [merging.item])
        if merging.time is not None and row_time(row, merging.time) is None:
            return None
        return key_of(values, [merging.list_id])
    except RowError:
        return None


class MergeRows(CountingDoFn):
    """(list ID, rows) -> the batch of rows of the list, one per item."""

    def __init__(self, merging: Deduplication):
        self._merging = merging

    def process(self, entry: tuple[str, Iterable[RawRow]]) -> Iterator[list[RawRow]]:
        """Merges one list."""
        list_id, found = entry
        if list_id.startswith("\0"):
            rows = list(found)
        else:
            timed = [(row_time(row, self._merging.time) or 0.0, row) for row in found]
            rows = self._merged(sorted(timed, key=lambda entry: (entry[0], entry[1].key)))
        self.tally["source", "log rows", "kept"] += len(rows)
        self.tally["source", "log rows", "read"] += len(rows)
        yield rows

    def _merged(self, timed: list[tuple[float, RawRow]]) -> list[RawRow]:
        merging = self._merging
        hours = merging.attribution_hours
        latest = float("inf") if hours is None else timed[0][0] + hours * _HOUR
        items: dict[str, RawRow] = {}
        for time, row in timed:
            item = to_id(merging.item, row.columns()[merging.item])
            if time > latest:
                self._count("left out: late")
            elif item in items:
                items[item] = _with_labels(items[item], row, merging.labels)
                self._count("merged with another row of the item")
            else:
                items[item] = row
        return list(items.values())

    def _count(self, outcome: str) -> None:
        self.tally["source", "log rows", outcome] += 1
        self.tally["source", "log rows", "read"] += 1


def _with_labels(row: RawRow, other: RawRow, labels: Iterable[str]) -> RawRow:
    values, others = row.columns(), other.columns()
    best = {
        label: max((values[label], others[label]), key=lambda value: to_number("label", value))
        for label in labels
    }
    return row._replace(values={**values, **best})
