"""Joins columns that depend on the time of a row into batches of rows by key.

Rows stay in their batches. Only key, time and index of a row travel to the data of the key, and
only the new columns travel back: no worker has to hold the other side, and a key with millions of
rows is processed row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import apache_beam as beam

from tfr_moe.beam.sources import CoGroupSorted, RawRow, RowKey, join_key
from tfr_moe.elwc import RowError, to_time

Query = tuple[int, float, tuple[Any, ...]]
"""(index of the row in its batch, its time, its values of `Lookup.row_columns`)"""


class Lookup(Protocol):
    """Computes columns of a row from the data of its key.

    Attributes:
        key: the columns that form the key.
        row_columns: other columns of the row that it reads.
        names: the columns that it makes.
    """

    key: Sequence[str]
    row_columns: list[str]
    names: list[str]

    def prepare(self, known: Iterable[Any]) -> Any:
        """Prepares the data of one key for `values`."""

    def values(self, prepared: Any, time: float, row: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values of `names` for one row."""


def row_time(row: RawRow, column: str) -> float | None:
    """Returns the time of a row, None where it has no valid one."""
    if row.error is not None:
        return None
    try:
        return to_time(column, row.values.get(column))
    except RowError:
        return None


class JoinHistory(beam.PTransform):
    """(batches, known) -> batches whose rows have the columns of a lookup as well.

    `known` is a collection of (key, value), the values being those that `Lookup.prepare` takes. A
    row without a key is treated as one of an unknown key; a row without a valid time is not
    changed, since the parser will reject it.

    Args:
        lookup: computes the columns.
        time: column with the time.
    """

    def __init__(self, lookup: Lookup, time: str):
        super().__init__()
        self._lookup = lookup
        self._time = time

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Sends queries, computes columns, and puts them into their rows."""
        batches, known = inputs
        lookup = self._lookup
        queries = batches | "Queries" >> beam.FlatMap(_queries, lookup, self._time)
        answers = (known, queries) | "Answers" >> CoGroupSorted(partial(_answers, lookup=lookup))
        keyed = batches | "KeyByBatch" >> beam.Map(lambda batch: (batch[0].key, batch))
        filled = (answers, keyed) | "Fill" >> CoGroupSorted(partial(_fill, lookup=lookup))
        return filled | "Rows" >> beam.Map(lambda batch: batch).with_output_types(list[RawRow])


def _queries(
    batch: list[RawRow], lookup: Lookup, time: str
) -> Iterator[tuple[str, tuple[RowKey, list[Query]]]]:
    queries: dict[str, list[Query]] = {}
    for index, row in enumerate(batch):
        when = row_time(row, time)
        key = None if when is None else join_key(row, lookup.key)
        if when is not None and key is not None:
            get = row.values.get
            query = (index, when, tuple([get(column) for column in lookup.row_columns]))
            queries.setdefault(key, []).append(query)
    for key, of_batch in queries.items():
        yield key, (batch[0].key, of_batch)


def _answers(
    key: str, known: list[Any], queries: Iterable[tuple[RowKey, list[Query]]], lookup: Lookup
) -> Iterator[tuple[RowKey, list[tuple[int, tuple[Any, ...]]]]]:
    prepared = lookup.prepare(known)
    for batch, of_batch in queries:
        yield batch, [(index, lookup.values(prepared, time, row)) for index, time, row in of_batch]


def _fill(
    key: RowKey, answers: list[Any], batches: Iterable[list[RawRow]], lookup: Lookup
) -> Iterator[list[RawRow]]:
    answer_of = dict(entry for answer in answers for entry in answer)
    unknown = lookup.prepare(())
    for batch in batches:
        filled = []
        for index, row in enumerate(batch):
            if isinstance(row.values, Mapping):
                values = answer_of.get(index)
                if values is None:
                    get = row.values.get
                    values = lookup.values(unknown, 0.0, [get(c) for c in lookup.row_columns])
                columns = dict(zip(lookup.names, values, strict=True))
                row = row._replace(values={**row.values, **columns})
            filled.append(row)
        yield filled
