"""Reads tables by key, such as items with their categories, and joins columns into batches of rows.

Rows stay in their batches. Only key and index of a row travel to the entry of the key, and only the
new columns travel back: no worker has to hold the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, REJECTS, CountingDoFn, RawRow, RowKey
from tfr_moe.beam.sorted_groups import CoGroupSorted
from tfr_moe.elwc.values import RowError, is_missing, to_id, to_time

_SEPARATOR = "\x1f"
KeyedValues = tuple[RowKey, tuple[Any, ...]]
"""(row key, values of the columns)"""


def row_time(row: RawRow, column: str | None) -> float | None:
    """Returns the time of a row, None where it has no valid one; 0 without a column."""
    if row.error is not None or not isinstance(row.values, Mapping):
        return None
    if column is None:
        return 0.0
    try:
        return to_time(column, row.values.get(column))
    except RowError:
        return None


def key_of(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Returns the ID in a column of a row, or those of several columns as one text.

    Raises:
        RowError: naming the column without a valid ID.
    """
    ids = []
    for column in columns:
        value = values.get(column)
        if is_missing(value):
            raise RowError(f"column {column!r}: a value is required")
        ids.append(to_id(column, value))
    return _SEPARATOR.join(ids)


def join_key(row: RawRow, columns: Sequence[str]) -> str | None:
    """Returns `key_of` a row, None where it has none or was not parsed."""
    if row.error is not None or isinstance(row.values, str):
        return None
    try:
        return key_of(row.columns(), columns)
    except RowError:
        return None


class JoinColumns(beam.PTransform):
    """(batches, entries) -> batches whose rows have the columns of a table as well.

    `entries` are those of a `Table`. A row without a key, or with an unknown one, gets None.

    Args:
        key: the columns of the rows that form the key.
        columns: the columns of the entries.
    """

    def __init__(self, key: Sequence[str], columns: Sequence[str]):
        super().__init__()
        self._key, self._columns = tuple(key), list(columns)

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Sends keys to the entries, and puts the values of these into the rows."""
        batches, entries = inputs
        keys = batches | "Keys" >> beam.FlatMap(_keys, self._key)
        values = (entries, keys) | "Values" >> CoGroupSorted(_values)
        keyed = batches | "KeyByBatch" >> beam.Map(lambda batch: (batch[0].key, batch))
        fill = partial(_fill, columns=self._columns)
        filled = (values, keyed) | "Fill" >> CoGroupSorted(fill)
        return filled | "Rows" >> beam.Map(lambda batch: batch).with_output_types(list[RawRow])


def _keys(
    batch: list[RawRow], columns: Sequence[str]
) -> Iterator[tuple[str, tuple[RowKey, list[int]]]]:
    """Yields (key, (key of the batch, indices of the rows with that key))."""
    indices: dict[str, list[int]] = {}
    for index, row in enumerate(batch):
        key = join_key(row, columns)
        if key is not None:
            indices.setdefault(key, []).append(index)
    for key, rows in indices.items():
        yield key, (batch[0].key, rows)


def _values(
    key: str, entries: list[tuple[Any, ...]], queries: Iterable[tuple[RowKey, list[int]]]
) -> Iterator[tuple[RowKey, list[tuple[int, tuple[Any, ...]]]]]:
    for batch, rows in queries if entries else ():
        yield batch, [(index, entries[0]) for index in rows]


def _fill(
    key: RowKey, values: list[Any], batches: Iterable[list[RawRow]], columns: Sequence[str]
) -> Iterator[list[RawRow]]:
    by_row = dict(entry for of_key in values for entry in of_key)
    missing = (None,) * len(columns)
    for batch in batches:
        filled = []
        for index, row in enumerate(batch):
            if isinstance(row.values, Mapping):
                joined = dict(zip(columns, by_row.get(index, missing), strict=True))
                row = row._replace(values={**row.values, **joined})
            filled.append(row)
        yield filled


class Table(NamedTuple):
    """A table by key: `entries` of (key, values), with counts and rejects of its rows."""

    entries: beam.PCollection
    counts: beam.PCollection
    rejects: beam.PCollection


class ReadTable(beam.PTransform):
    """Batches of rows -> `Table` of (key, values of `columns`), one entry per key.

    Of several rows with one key, the first value of each column wins; duplicates are counted.

    Args:
        key: the columns that form the key.
        columns: columns to keep.
        thing: name of the rows in the counts.
    """

    def __init__(self, key: Sequence[str], columns: Sequence[str], thing: str = "items"):
        super().__init__()
        self._thing = thing
        self._parse = ParseEntries(key, columns, thing)

    def expand(self, batches: beam.PCollection) -> Table:
        """Parses the rows and resolves duplicates."""
        parse = beam.ParDo(self._parse).with_outputs(COUNTS, REJECTS, main="rows")
        parsed = batches | "Parse" >> parse
        resolved = (
            parsed.rows
            | "ByKey" >> beam.GroupByKey()
            | "Merge" >> beam.ParDo(MergeEntries(self._thing)).with_outputs(COUNTS, main="entries")
        )
        counts = (parsed[COUNTS], resolved[COUNTS]) | "Counts" >> beam.Flatten()
        return Table(resolved.entries, counts, parsed[REJECTS])


class ParseEntries(CountingDoFn):
    """Batches of rows -> (key, (row key, values)); rows without a key -> `rejects`.

    Args:
        key, columns, thing: as for `ReadTable`.
    """

    def __init__(self, key: Sequence[str], columns: Sequence[str], thing: str):
        self._key = tuple(key)
        self._thing = thing
        self._columns = list(columns)

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch."""
        self.tally["source", self._thing, "read"] += len(batch)
        for row in batch:
            reason = row.error
            if reason is None:
                columns = row.columns()
                try:
                    key = key_of(columns, self._key)
                except RowError as error:
                    reason = str(error)
            if reason is None:
                yield key, (row.key, tuple([_value(columns, c) for c in self._columns]))
            else:
                self.tally["source", self._thing, "rejected"] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, row.reject(reason))


def _value(values: Mapping[str, Any], column: str) -> Any:
    value = values.get(column)
    return None if is_missing(value) else value


def merge_rows(rows: Iterable[KeyedValues]) -> tuple[tuple[Any, ...], int, bool]:
    """Returns the first value of each column in the order of the files, the number of rows, and
    whether rows disagree; a missing value does not contradict another one.

    Example:
        >>> merge_rows([((0, 5, 0), ("x", None)), ((0, 2, 0), (None, "y"))])
        (('x', 'y'), 2, False)
    """
    best: list[tuple[RowKey, Any] | None] = []
    count, conflict = 0, False
    for key, values in rows:
        best = best or [None] * len(values)
        for index, value in enumerate(values):
            before = best[index]
            if value is None:
                continue
            conflict = conflict or (before is not None and before[1] != value)
            if before is None or key < before[0]:
                best[index] = key, value
        count += 1
    return tuple([None if value is None else value[1] for value in best]), count, conflict


class MergeEntries(CountingDoFn):
    """(key, rows) -> (key, values), see `merge_rows`; counts duplicates."""

    def __init__(self, thing: str):
        self._thing = thing

    def process(
        self, keyed: tuple[str, Iterable[KeyedValues]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Merges the rows of one key."""
        key, found = keyed
        values, count, conflict = merge_rows(found)
        self.tally["source", self._thing, "kept"] += 1
        if count > 1:
            outcome = "duplicate that differs" if conflict else "duplicate"
            self.tally["source", self._thing, outcome] += count - 1
        yield key, values


class JoinTable(beam.PTransform):
    """Batches -> (batches with the columns of a table, the `Table`).

    A row whose key is not in the table gets None in the columns; whether that is valid is up to the
    schema.

    Args:
        rows: transform from the pipeline to batches of the rows of the table.
        left_on, right_on: the columns that form the key, as the batches and the table name them.
        columns: the columns to join.
    """

    def __init__(
        self,
        rows: beam.PTransform,
        left_on: Sequence[str],
        right_on: Sequence[str],
        columns: Sequence[str],
    ):
        super().__init__()
        self._left_on, self._right_on, self._rows = tuple(left_on), tuple(right_on), rows
        self._columns = columns

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, Table]:
        """Reads the table and joins it."""
        read = ReadTable(self._right_on, self._columns, thing="joined rows")
        table = batches.pipeline | "ReadTable" >> self._rows | "Table" >> read
        join = JoinColumns(self._left_on, self._columns)
        return (batches, table.entries) | "JoinTable" >> join, table
