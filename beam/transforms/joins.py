"""Reads tables by key, such as items with their categories, and joins columns into batches of rows.

Rows stay in their batches. Only key and index of a row travel to the entry of the key, and only the
new columns travel back: no worker has to hold the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, REJECTS, CountingDoFn, RawRow, RowKey
from tfr_moe.beam.sorted_groups import CoGroupSorted
from tfr_moe.elwc.values import RowError, is_missing, required_id

_SEPARATOR = "\x1f"
KeyedValues = tuple[RowKey, tuple[Any, ...]]
"""(row key, values of the columns)"""


def key_of(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Returns the ID in a column, or those of several as one text; a RowError if one is invalid."""
    return _SEPARATOR.join([required_id(c, values.get(c)) for c in columns])


def join_key(row: RawRow, columns: Sequence[str]) -> str | None:
    """Returns `key_of` a row, None where it has none or was not parsed."""
    if row.error is not None:
        return None
    try:
        return key_of(row.values, columns)
    except RowError:
        return None


class JoinColumns(beam.PTransform):
    """(batches, entries) -> batches whose rows have the `columns` of a table as well.

    `entries` are those of a `Table`; the columns `key` of a row form its key. A row without a key,
    or with an unknown one, gets None.
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

    The columns `key` form the key. Of several rows with one key, the first value of each column
    wins; duplicates are counted. `thing` is the name of the rows in the counts.
    """

    def __init__(self, key: Sequence[str], columns: Sequence[str], thing: str = "items"):
        super().__init__()
        self._parse, self._merge = _ParseEntries(key, columns, thing), _MergeEntries(thing)

    def expand(self, batches: beam.PCollection) -> Table:
        """Parses the rows and resolves duplicates."""
        parse = beam.ParDo(self._parse).with_outputs(COUNTS, REJECTS, main="rows")
        parsed = batches | "Parse" >> parse
        merge = beam.ParDo(self._merge).with_outputs(COUNTS, main="entries")
        resolved = parsed.rows | "ByKey" >> beam.GroupByKey() | "Merge" >> merge
        counts = (parsed[COUNTS], resolved[COUNTS]) | "Counts" >> beam.Flatten()
        return Table(resolved.entries, counts, parsed[REJECTS])


class _ParseEntries(CountingDoFn):
    """Batches of rows -> (key, (row key, values)); rows without a key -> `rejects`."""

    def __init__(self, key: Sequence[str], columns: Sequence[str], thing: str):
        self._key, self._columns, self._thing = tuple(key), list(columns), thing

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        self.tally["source", self._thing, "read"] += len(batch)
        for row in batch:
            try:
                if row.error is not None:
                    raise RowError(row.error)
                values = row.values
                key = key_of(values, self._key)
            except RowError as error:
                self.tally["source", self._thing, "rejected"] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, row.reject(str(error)))
                continue
            raw = [values.get(column) for column in self._columns]
            yield key, (row.key, tuple([None if is_missing(value) else value for value in raw]))


class _MergeEntries(CountingDoFn):
    """(key, rows) -> (key, values), see `merge_rows`; counts duplicates."""

    def __init__(self, thing: str):
        self._thing = thing

    def process(
        self, keyed: tuple[str, Iterable[KeyedValues]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        key, rows = keyed
        values, count, conflict = merge_rows(rows)
        self.tally["source", self._thing, "kept"] += 1
        if count > 1:
            outcome = "duplicate that differs" if conflict else "duplicate"
            self.tally["source", self._thing, outcome] += count - 1
        yield key, values


def merge_rows(rows: Iterable[KeyedValues]) -> tuple[tuple[Any, ...], int, bool]:
    """Returns the first value of each column in the order of the files, the number of rows, and
    whether rows disagree; a missing value does not contradict another one.

    Example:
        >>> merge_rows([((0, 5, 0), ("x", None)), ((0, 2, 0), (None, "y"))])
        (('x', 'y'), 2, False)
    """
    ordered = [values for _, values in sorted(rows, key=itemgetter(0))]
    present = [[v for v in column if v is not None] for column in zip(*ordered, strict=True)]
    conflict = any(value != column[0] for column in present for value in column)
    return tuple([column[0] if column else None for column in present]), len(ordered), conflict
