"""Lists -> splits -> categories -> shards of serialized `ExampleListWithContext`."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np

from tfr_moe.beam.rows import CountingDoFn
from tfr_moe.beam.runner import advance
from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.categories import Clicks, ListCategory, Pair
from tfr_moe.elwc.encoded import Labels
from tfr_moe.elwc.log_checks import OrderSums
from tfr_moe.elwc.splits import (
    FINEST_LEVEL,
    Bounds,
    Counts,
    bounds_of_counts,
    coarsened,
    hash_fraction,
    list_hash,
)
from tfr_moe.elwc.values import RowError
from tfr_moe.elwc.wire import write_records
from tfr_moe.schema import SPLITS, FeatureSchema, shard_file, vocabulary_file

Assigned: TypeAlias = tuple[str, RankedList]
"""(split, list)"""
Shard = tuple[str, int]
"""(split, number)"""
Record = tuple[int, str, bytes]
"""(hash, list ID, serialized list): records of a shard are sorted by hash, then by list ID."""


class TimeBounds(beam.CombineFn):
    """Times of all lists -> `Bounds` with the given fractions, the latest lists being for the test.

    No time is on both sides of a bound. Times are counted in buckets of 2^k seconds, k the smallest
    number >= -10 with at most 65,536 buckets in use.
    """

    def __init__(self, validation_fraction: float, test_fraction: float):
        self._fractions = (validation_fraction, test_fraction)

    def create_accumulator(self) -> Counts:
        """Returns (k, bucket -> number of lists)."""
        return FINEST_LEVEL, Counter()

    def add_input(self, counted: Counts, time: float) -> Counts:
        """Counts one time."""
        level, counts = counted
        counts[math.floor(math.ldexp(time, -level))] += 1
        return coarsened(level, counts, level)

    def merge_accumulators(self, accumulators: Iterable[Counts]) -> Counts:
        """Merges counts at the coarsest resolution among them."""
        merged = self.create_accumulator()
        for level, counts in accumulators:
            coarsest = max(level, merged[0])
            both = coarsened(*merged, coarsest)[1] + coarsened(level, counts, coarsest)[1]
            merged = coarsened(coarsest, both, coarsest)
        return merged

    def extract_output(self, counted: Counts) -> Bounds:
        """Returns the two times; training has at least one bucket."""
        return bounds_of_counts(*counted, *self._fractions)


def to_split(column: str, value: Any) -> str:
    """Returns the name of a split; a RowError for any other value.

    Where a column chooses the split, it is the last ID of the context.
    """
    if value not in SPLITS:
        raise RowError(f"column {column!r}: expected one of {', '.join(SPLITS)}, got {value!r}")
    return value


def assigner(
    split: str,
    of_file: Callable[[str], str] | None,
    limits: Bounds,
    seed: int,
    bounds: beam.PCollection | None,
) -> beam.PTransform:
    """Returns the transform from `RankedList` to (split, `RankedList`).

    `split` is `files`, by `of_file` of the list ID, `column`, `like` (all lists are for the test),
    `time`, by a collection of one `Bounds`, or `hash`, by the `limits` of the list ID's hash.
    """
    if split == "time":
        return beam.Map(
            lambda ranked, bounds: (bounds.split(ranked.time), ranked),
            beam.pvalue.AsSingleton(bounds),
        )
    kinds: dict[str, Callable[[RankedList], str]] = {
        "files": lambda ranked: of_file(ranked.list_id) if of_file else "",
        "column": lambda ranked: ranked.context[1][-1],  # of `to_split`
        "like": lambda ranked: SPLITS[-1],
        "hash": lambda ranked: limits.split(hash_fraction(ranked.list_id, seed)),
    }
    split_of = kinds[split]
    return beam.Map(lambda ranked: (split_of(ranked), ranked))


@beam.ptransform_fn
def count_clicks(assigned: beam.PCollection, schema: FeatureSchema) -> beam.PCollection:
    """(split, `RankedList`) -> one `Clicks`, of the training lists."""
    category = ListCategory(schema)

    def clicks_of(assigned: Assigned) -> Iterator[tuple[tuple[str, Pair], int]]:
        split, ranked = assigned
        if split == SPLITS[0]:
            query, clicks = category.clicks(ranked.context, ranked.items)
            for pair, number in clicks.items():
                yield (query, pair), number

    def by_query(sums: list[tuple[tuple[str, Pair], int]]) -> Clicks:
        clicks: dict[str, Counter[Pair]] = {}
        for (query, pair), number in sums:
            clicks.setdefault(query, Counter())[pair] = number
        return clicks

    return (
        assigned
        | "ClicksOfLists" >> beam.FlatMap(clicks_of)
        | "Sum" >> beam.CombinePerKey(sum)
        | "Sums" >> beam.combiners.ToList()
        | "ByQuery" >> beam.Map(by_query)
    )


class AddCategories(CountingDoFn):
    """(split, `RankedList`) -> the same with a category; a list never counts its own clicks."""

    def __init__(self, schema: FeatureSchema):
        self._category = ListCategory(schema)

    def process(self, assigned: Assigned, clicks: Clicks | None = None) -> Iterator[Assigned]:
        """Adds the category of one list; without clicks, that of the majority of its items."""
        split, ranked = assigned
        of_query: Counter[Pair] | None = None
        if clicks is not None:
            query, of_list = self._category.clicks(ranked.context, ranked.items)
            of_query = clicks.get(query, Counter())
            of_query = of_query - of_list if split == SPLITS[0] else of_query
        context, notes = self._category(ranked.context, ranked.items, of_query)
        for note in notes:
            self.tally["noted", note] += 1
        yield split, ranked._replace(context=context)


class EncodeLists(CountingDoFn):
    """(split, `RankedList`) -> (shard, record).

    The shard is chosen by a hash of the list ID: the same input and seed give the same files on any
    runner.
    """

    def __init__(self, schema: FeatureSchema, shards: dict[str, int], seed: int):
        self._schema, self._shards, self._seed = schema, shards, seed
        self._labels = Labels(schema)

    def start_bundle(self) -> None:
        """Resets the counters."""
        super().start_bundle()
        self._relevant, self._row_splits = bytearray(), array("q", [0])

    def finish_bundle(self) -> Iterator[Any]:
        """Yields the counts of the bundle, with the sums over the order of its lists."""
        sums = OrderSums()
        sums.add(np.frombuffer(self._relevant, np.bool_), np.array(self._row_splits))
        for name, value in vars(sums).items():
            self.tally["order", name] += value
        yield from super().finish_bundle()

    def process(self, assigned: tuple[str, RankedList]) -> Iterator[tuple[Shard, Record]]:
        """Encodes one list."""
        split, ranked = assigned
        list_id, items, tally = ranked.list_id, ranked.items, self.tally
        tally["lists", split] += 1
        tally["items", split] += len(items)
        relevant = self._labels.relevant(items)
        tally["positives", split] += sum(relevant)
        if self._schema.position is None:
            self._relevant.extend(relevant)
            self._row_splits.append(len(self._relevant))
        tally["length", len(items)] += 1
        order = list_hash(list_id, self._seed, "order")
        record = ranked.record(self._schema.list_id)
        yield (split, order % self._shards[split]), (order, list_id, record)


def write_shard(
    shard: Shard, records: Iterable[Record], folder: Path, shards: dict[str, int]
) -> None:
    """Writes one shard from sorted records."""
    split, number = shard
    path = folder / shard_file(split, number, shards[split])
    write_records(path, (record for _, _, record in records))
    advance(1, "write")


def add_empty_files(folder: Path, schema: FeatureSchema, shards: dict[str, int]) -> None:
    """Writes the shards and vocabularies that no list fell into, so that all names exist."""
    for split, count in shards.items():
        for number in range(count):
            if not (folder / shard_file(split, number, count)).exists():
                write_shard((split, number), [], folder, shards)
    for feature in schema.features:
        if feature.has_vocabulary:
            path = folder / vocabulary_file(feature.name)
            path.parent.mkdir(exist_ok=True)
            path.touch()
