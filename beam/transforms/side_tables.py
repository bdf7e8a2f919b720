"""Another table's columns for the rows of a log: an earlier ranker's scores, a user's vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id

from ..sources import RawRow
from .items import ItemLookup, ReadTable, Table
from .joining import JoinByKey

_SEPARATOR = "\x1f"


def key_name(columns: Sequence[str]) -> str:
    """The column with the values of several in one."""
    return f"key {', '.join(columns)}"


def with_key(batch: list[RawRow], columns: Sequence[str]) -> list[RawRow]:
    """The rows with the column `key_name`, whose value is missing if one of the columns' is."""
    return list(_keyed(batch, columns))


def _keyed(batch: list[RawRow], columns: Sequence[str]) -> Iterator[RawRow]:
    name = key_name(columns)
    for row in batch:
        if isinstance(row.values, Mapping):
            row = row._replace(values={**row.values, name: _key(row.values, columns)})
        yield row


def _key(values: Mapping[str, object], columns: Sequence[str]) -> str | None:
    try:
        parts = [None if is_missing(values.get(c)) else to_id(c, values[c]) for c in columns]
    except RowError:
        return None
    return None if None in parts else _SEPARATOR.join(map(str, parts))


class _KeyedRows(beam.PTransform):
    def __init__(self, rows: beam.PTransform, by: Sequence[str]):
        super().__init__()
        self._rows, self._by = rows, by

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        keyed = partial(with_key, columns=self._by)
        return pipeline | self._rows | "Key" >> beam.Map(keyed).with_output_types(list[RawRow])


class JoinTable(beam.PTransform):
    """Batches -> (batches with the table's columns, the table's counts and rejects).

    A row whose key is not in the table has None in the columns; whether that is allowed is for the
    schema to say.

    Args:
        rows: transform from the pipeline to batches of the table's rows.
        own, theirs: the columns that name a row of the table, as the batches and the table call them.
        columns: what is joined.
    """

    def __init__(
        self,
        rows: beam.PTransform,
        own: Sequence[str],
        theirs: Sequence[str],
        columns: Sequence[str],
    ):
        super().__init__()
        self._own = tuple(own)
        self._lookup = ItemLookup(key_name(own), columns)
        keyed = _KeyedRows(rows, theirs)
        self._table = ReadTable(keyed, key_name(theirs), columns, (), "joined rows")

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, Table]:
        """Reads the table and joins it."""
        table = batches.pipeline | "Table" >> self._table
        keyed = batches | "KeyRows" >> beam.Map(
            partial(with_key, columns=self._own)
        ).with_output_types(list[RawRow])
        return (keyed, table.entries) | "JoinTable" >> JoinByKey(self._lookup), table
