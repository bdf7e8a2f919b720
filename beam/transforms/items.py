"""A table of items with their categories: rows of files -> one entry for each item."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id

from ..sources import RawRow
from .counting import COUNTS, CountingDoFn
from .grouping import Place
from .parsing import REJECTS

_TAG = re.compile(r"<[^>]*>")
Merged = tuple[tuple[tuple[Place, Any] | None, ...], int, bool]
"""(for each column the first (place, value) there is, number of rows, whether rows disagree)."""


def mended(name: str) -> str:
    """A category name as people would write it: entities resolved, however often they were escaped,
    tags gone, blanks single.

    Example:
        >>> mended("Literary,&amp;nbsp; Sci-Fi &amp;amp; Mystery ")
        'Literary, Sci-Fi & Mystery'
    """
    while (resolved := html.unescape(name)) != name:
        name = resolved
    return " ".join(_TAG.sub(" ", name).split())


def path_of(value: Any, separator: str) -> list[str]:
    """The names of a category path, top first, from a list or from text with a separator."""
    if is_missing(value):
        return []
    parts = value.split(separator) if isinstance(value, str) else value
    if isinstance(parts, (Mapping, bytes)) or not isinstance(parts, Iterable):
        return []
    names = [mended(part) for part in map(str, parts)]
    return [name for name in names if name]


class ParseItems(CountingDoFn):
    """Batches of rows -> (item, (place, values of `columns`)); what has no id goes to the rejects.

    Args:
        item: the column with the item's id.
        columns: what is kept, the category's levels among them.
        levels: the columns of `columns` whose names are mended; mended ones are counted.
        thing: what the rows are called where they are counted.
    """

    def __init__(self, item: str, columns: Sequence[str], levels: Sequence[str], thing: str):
        self._item = item
        self._thing = thing
        self._columns = list(columns)
        self._levels = set(levels)

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch."""
        self.tally["source", self._thing, "read"] += len(batch)
        for row in batch:
            reason = row.error
            if reason is None:
                try:
                    item = self._id(row.values)
                except RowError as error:
                    reason = str(error)
            if reason is not None:
                self.tally["source", self._thing, "rejected"] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, (row.file, row.line, reason, row.values))
                continue
            values = tuple([self._value(c, row.values) for c in self._columns])  # type: ignore[arg-type]
            yield item, ((row.file, row.line, row.order), values)

    def _id(self, values: Any) -> str:
        value = values.get(self._item)
        if is_missing(value):
            raise RowError(f"column {self._item!r}: a value is required")
        return to_id(self._item, value)

    def _value(self, column: str, values: Mapping[str, Any]) -> Any:
        value = values.get(column)
        if is_missing(value):
            return None
        if column not in self._levels:
            return value
        name = mended(str(value))
        if name != value:
            self.tally["noted", "category names mended"] += 1
        return name or None


class MergeItems(beam.CombineFn):
    """Rows of one item -> its values: of each column the first value that there is, by place.

    Args:
        width: number of columns.
    """

    def __init__(self, width: int):
        self._width = width

    def create_accumulator(self) -> Merged:
        """No row."""
        return (None,) * self._width, 0, False

    def add_input(self, merged: Merged, row: tuple[Place, tuple[Any, ...]]) -> Merged:
        """Adds one row."""
        place, values = row
        one = tuple(None if value is None else (place, value) for value in values)
        return self.merge_accumulators([merged, (one, 1, False)])

    def merge_accumulators(self, accumulators: Iterable[Merged]) -> Merged:
        """Joins the rows of several places."""
        values, rows, conflict = self.create_accumulator()
        for others, count, differ in accumulators:
            pairs = list(zip(values, others, strict=True))
            values = tuple(_first(one, other) for one, other in pairs)
            # A value that is missing in one row does not contradict the other.
            conflict = conflict or differ or any(a and b and a[1] != b[1] for a, b in pairs)
            rows += count
        return values, rows, bool(conflict)

    def extract_output(self, merged: Merged) -> Merged:
        """Still with places and counts: `ResolveItems` counts them."""
        return merged


def _first(one: tuple[Place, Any] | None, other: tuple[Place, Any] | None) -> Any:
    if one is None or other is None:
        return one or other
    return one if one[0] <= other[0] else other


class ResolveItems(CountingDoFn):
    """(item, what `MergeItems` gives) -> (item, values); counts rows that were duplicates."""

    def __init__(self, thing: str):
        self._thing = thing

    def process(self, keyed: tuple[str, Merged]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Resolves one item."""
        item, (values, rows, conflict) = keyed
        self.tally["source", self._thing, "kept"] += 1
        if rows > 1:
            outcome = "duplicate that differs" if conflict else "duplicate"
            self.tally["source", self._thing, outcome] += rows - 1
        yield item, tuple(None if value is None else value[1] for value in values)


class Table(NamedTuple):
    """A table by key, and what became of its rows."""

    entries: beam.PCollection
    counts: beam.PCollection
    rejects: beam.PCollection


class ReadTable(beam.PTransform):
    """Pipeline -> `Table` of (key, values of `columns`), one entry a key.

    Args:
        rows: transform from the pipeline to batches of rows.
        key: the column with the key.
        columns: what is kept.
        levels: the columns of `columns` whose names are mended.
        thing: what the rows are called where they are counted.
    """

    def __init__(
        self,
        rows: beam.PTransform,
        key: str,
        columns: Sequence[str],
        levels: Sequence[str] = (),
        thing: str = "items",
    ):
        super().__init__()
        self._rows, self._thing, self._width = rows, thing, len(columns)
        self._parse = ParseItems(key, columns, levels, thing)

    def expand(self, pipeline: beam.Pipeline) -> Table:
        """Reads and resolves duplicates."""
        parsed = (
            pipeline
            | "Read" >> self._rows
            | "Parse" >> beam.ParDo(self._parse).with_outputs(COUNTS, REJECTS, main="rows")
        )
        resolved = (
            parsed.rows
            | "Merge" >> beam.CombinePerKey(MergeItems(self._width))
            | "Resolve"
            >> beam.ParDo(ResolveItems(self._thing)).with_outputs(COUNTS, main="entries")
        )
        counts = (parsed[COUNTS], resolved[COUNTS]) | "Counts" >> beam.Flatten()
        return Table(resolved.entries, counts, parsed[REJECTS])


class ItemLookup:
    """Adds an item's columns to rows; see `joining.Answers`."""

    def __init__(self, item: str, columns: Sequence[str]):
        self.key = item
        self.row_columns: list[str] = []
        self.names = list(columns)

    def lines(self, events: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The one entry of an item, or as many None."""
        return next(iter(events), (None,) * len(self.names))

    def values(self, lines: tuple[Any, ...], time: float, row: Sequence[Any]) -> tuple[Any, ...]:
        """The item's columns, whatever the time."""
        return lines
