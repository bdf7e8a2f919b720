"""Rows -> lists: parsing by the schema, grouping by list ID, at most `max_list_size` items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import itemgetter
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, REJECTS, CountingDoFn, RawRow, RowColumns, RowKey, SourceRows
from tfr_moe.beam.runner import collect_rarely
from tfr_moe.beam.sorted_groups import groups, is_embedded, sorted_runs
from tfr_moe.elwc.columns import Rows, column_of
from tfr_moe.elwc.encoded import Labels, differing
from tfr_moe.elwc.encoder import Encoded, EncodedRow, RowEncoder
from tfr_moe.elwc.log_checks import is_repeated
from tfr_moe.elwc.values import RowError
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import FeatureSchema, Scope

_LIST_ID = itemgetter(0)
Encoder = Callable[[Rows], list[EncodedRow | RowError]]
EncoderFactory = Callable[[FeatureSchema], Encoder]


def value_encoder(
    schema: FeatureSchema,
    column: str,
    scope: Scope,
    read: Callable[[str, Any], str],
    labelled: bool = True,
) -> Encoder:
    """Returns a `RowEncoder` that adds the value of another column to the IDs of one scope.

    `read` takes the column and the raw value; it raises `RowError`.
    """
    encode = RowEncoder(schema, labelled)
    at = EncodedRow._fields.index(scope)

    def with_value(raw: Any, encoded: EncodedRow | RowError) -> EncodedRow | RowError:
        try:
            value = read(column, raw)
        except RowError as error:
            return error
        if isinstance(encoded, RowError):
            return encoded
        parts: list[Any] = list(encoded)
        body, ids = parts[at]
        parts[at] = (body, (*ids, value))
        return EncodedRow(*parts)

    return lambda rows: list(map(with_value, column_of(rows, column), encode(rows)))


class RankedList(NamedTuple):
    """One list; its items are ordered by position, then by row key.

    `time` is the earliest of its rows, or None; `context` is that of the first row in the files.
    """

    list_id: str
    time: float | None
    context: Encoded
    items: list[Encoded]

    def record(self, id_name: str) -> bytes:
        """Returns the serialized `ExampleListWithContext`, with the list ID of that name."""
        context = self.context[0] + ids_entry(id_name, [self.list_id])
        return list_record([body for body, _ in self.items], context)


@dataclass(slots=True)
class PartialList:
    """Some or all rows of a list, without the items shown last where there are too many.

    Attributes:
        first: (key, context) of the first row in the files; None for no rows.
        time: the earliest time.
        conflict: the least and the greatest context where rows differ in it.
        items: [(position, row key, item)], less than twice the maximum.
        cut: number of items dropped, `cut_positives` of those with a label above 0.
    """

    first: tuple[RowKey, Encoded] | None = None
    time: float | None = None
    conflict: tuple[Encoded, Encoded] | None = None
    items: list[tuple[float, RowKey, Encoded]] = field(default_factory=list)
    cut: int = 0
    cut_positives: int = 0

    def describe(self, first: tuple[RowKey, Encoded], time: float | None) -> None:
        """Adds key and context of a row, or of the first one of a part, and its time."""
        known = self.first
        if known is None:
            self.first, self.time = first, time
            return
        if first[1] is not known[1] and first[1] != known[1]:
            self.differ(first[1], known[1])
        if first[0] < known[0]:
            self.first = first
        if time is not None and (self.time is None or time < self.time):
            self.time = time

    def differ(self, *contexts: Encoded) -> None:
        """Adds contexts of one list that differ."""
        # Extremes do not depend on the order of arrival.
        known = (*contexts, *(self.conflict or ()))
        self.conflict = min(known), max(known)


class CombineList(beam.CombineFn):
    """Combines the parts of a list; keeps the items with the smallest positions, counts the others.

    The result does not depend on the order of arrival, and a key with millions of rows needs no
    more memory than one of maximum size, since workers combine before they send. With `labels` the
    positives among the others are counted too.
    """

    def __init__(self, max_list_size: int, labels: Labels | None = None):
        self._max, self._labels = max_list_size, labels

    def create_accumulator(self) -> PartialList:
        """Returns a list without rows."""
        return PartialList()

    def add_row(self, part: PartialList, key: RowKey, row: EncodedRow) -> None:
        """Adds one row."""
        _, time, position, context, example = row
        first = part.first
        if first is None or context is not first[1] or time != part.time or key < first[0]:
            part.describe((key, context), time)
        part.items.append((position, key, example))
        if len(part.items) >= 2 * self._max:
            self.extract_output(part)

    def add_input(self, part: PartialList, other: PartialList) -> PartialList:
        """Adds the rows of one batch."""
        if other.first is not None:
            part.describe(other.first, other.time)
        if other.conflict is not None:
            part.differ(*other.conflict)
        part.items += other.items
        part.cut += other.cut
        part.cut_positives += other.cut_positives
        return self.extract_output(part) if len(part.items) >= 2 * self._max else part

    def merge_accumulators(self, accumulators: Iterable[PartialList]) -> PartialList:
        """Merges parts."""
        return reduce(self.add_input, accumulators, PartialList())

    def extract_output(self, part: PartialList) -> PartialList:
        """Sorts the items and drops those beyond the maximum; returns the list."""
        part.items.sort()
        beyond = part.items[self._max :]
        part.cut += len(beyond)
        if beyond and self._labels is not None:
            part.cut_positives += sum(self._labels.relevant([item for _, _, item in beyond]))
        del part.items[self._max :]
        return part


class _ParseRows(CountingDoFn):
    """Batches of rows -> (list ID, `PartialList`) per list; invalid rows -> `rejects`."""

    def __init__(self, schema: FeatureSchema, combine: CombineList, encoder: EncoderFactory):
        self._schema, self._combine, self._encoder = schema, combine, encoder

    def setup(self) -> None:
        """Builds the encoder on the worker, which may be another process."""
        collect_rarely()
        self._encode = self._encoder(self._schema)

    def process(self, batch: list[RawRow] | RowColumns) -> Iterator[Any]:
        lists: dict[str, PartialList] = {}
        add_row = self._combine.add_row
        if isinstance(batch, RowColumns):
            file, first, rows = batch
            keys: Sequence[RowKey] = [(file, first + i, 0) for i in range(len(rows))]
            results = self._encode(rows)
        else:
            keys, rows = [row.key for row in batch], [row.values for row in batch]
            encoded = iter(self._encode([row.values for row in batch if row.error is None]))
            errors = [None if row.error is None else RowError(row.error) for row in batch]
            results = [next(encoded) if error is None else error for error in errors]
        for i, (key, row) in enumerate(zip(keys, results, strict=True)):
            if isinstance(row, RowError):
                reason = str(row)
                self.tally["rejects", _kind_of(reason)] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, (*key[:2], reason, rows[i]))
                continue
            part = lists.get(row.list_id)
            if part is None:
                part = lists[row.list_id] = PartialList()
            add_row(part, key, row)
        self.tally["rows", "read"] += len(keys)
        yield from lists.items()


def _kind_of(reason: str) -> str:
    """Returns a reason without the invalid value, so that the manifest has few of them."""
    return reason.split(", got ")[0].split(" (")[0]


@beam.ptransform_fn
def group_rows(
    rows: beam.PCollection | SourceRows,
    schema: FeatureSchema,
    combine: CombineList,
    encoder: EncoderFactory = RowEncoder,
) -> tuple[beam.PCollection, beam.PCollection, beam.PCollection]:
    """Batches of rows, or `SourceRows` -> groups for `make_lists`, rejects, and counts."""
    sourced = isinstance(rows, SourceRows)
    batches = rows.batches if sourced else rows
    parse = beam.ParDo(_ParseRows(schema, combine, encoder))
    parsed = batches | "Parse" >> parse.with_outputs(COUNTS, REJECTS, main="lists")
    rejects = [parsed[REJECTS], *([rows.rejects] if sourced else [])]
    counts = [parsed[COUNTS], *([rows.counts] if sourced else [])]
    group = sorted_runs(_LIST_ID) if is_embedded(batches.pipeline) else beam.CombinePerKey(combine)
    return (
        parsed.lists | "Group" >> group,
        rejects | "Rejects" >> beam.Flatten(),
        counts | "Counts" >> beam.Flatten(),
    )


@beam.ptransform_fn
def make_lists(
    grouped: beam.PCollection,
    schema: FeatureSchema,
    combine: CombineList,
    after: beam.PCollection | None = None,
) -> beam.pvalue.DoOutputsTuple:
    """Groups of `group_rows` -> `RankedList`s, tagged `lists`, and `counts`.

    May be applied several times where several stages need the lists: sorted runs are then read
    again, instead of all lists being held in memory between stages. `after` is a collection of one
    value for which a later step waits: lists made before it would wait in memory.
    """

    def merge(runs: list[str], _after: Any = None) -> Iterator[tuple[str, PartialList]]:
        for list_id, parts in groups(runs, _LIST_ID):
            yield list_id, combine.extract_output(combine.merge_accumulators(parts))

    if is_embedded(grouped.pipeline):
        waits = [] if after is None else [beam.pvalue.AsSingleton(after)]
        grouped = grouped | "Merge" >> beam.FlatMap(merge, *waits)
    finish = beam.ParDo(_FinishLists(schema))
    return grouped | finish.with_outputs(COUNTS, main="lists")


@beam.ptransform_fn
def list_times(
    grouped: beam.PCollection, schema: FeatureSchema, combine: CombineList
) -> beam.PCollection:
    """Groups of `group_rows` -> the time of each list of `make_lists`."""

    def times(runs: list[str]) -> Iterator[float | None]:
        for _, parts in groups(runs, _LIST_ID):
            yield min(part.time for part in parts)

    if is_embedded(grouped.pipeline):
        return grouped | "Times" >> beam.FlatMap(times)
    lists = grouped | "Lists" >> make_lists(schema, combine)
    return lists.lists | "Times" >> beam.Map(lambda ranked: ranked.time)


class _FinishLists(CountingDoFn):
    """(list ID, combined `PartialList`) -> `RankedList`."""

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def process(self, keyed: tuple[str, PartialList]) -> Iterator[RankedList]:
        list_id, part = keyed
        assert part.first is not None
        if part.cut:
            self.tally["cut", "list too long"] += part.cut
            self.tally["cut_positives",] += part.cut_positives
        if part.conflict is not None:
            self.tally["context_conflicts",] += 1
            (one, _), (other, _) = part.conflict
            # Contexts of the same bytes differ in the split, see `to_split`.
            for name in differing(self._schema, one, other) or ["split"]:
                self.tally["conflict", name] += 1
        items = [values for _, _, values in part.items]
        if is_repeated(len(items), len({body for body, _ in items})):
            self.tally["repeated_lists",] += 1
        yield RankedList(list_id, part.time, part.first[1], items)
