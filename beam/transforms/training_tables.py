"""Vocabularies and statistics of the training lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, CountingDoFn, at_the_end
from tfr_moe.beam.sorted_groups import UseGroups, is_embedded
from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.encoder import counted_ids, scope_floats
from tfr_moe.elwc.statistics import ColumnStatistics, Moments, as_json, merge, statistics_of
from tfr_moe.elwc.vocabularies import vocabulary_of, write_counts, write_vocabulary
from tfr_moe.schema import (
    SPLITS,
    STATISTICS_FILE,
    Feature,
    FeatureSchema,
    Scope,
    vocabulary_file,
)
from tfr_moe.schema.folders import MOMENTS_FILE, counts_file
from tfr_moe.utils.io import write_json

_BATCH = 4096
_MOST_IDS = 100_000
_Extract = Callable[[list[tuple[Any, ...]]], list[str]]
Pending = list[tuple[Moments, list[bytes]]]
"""For each scope the moments so far, and rows that are not in them yet."""


@beam.ptransform_fn
def write_tables(
    assigned: beam.PCollection, schema: FeatureSchema, folder: Path, mergeable: bool
) -> beam.PCollection:
    """(split, `RankedList`) -> statistics and vocabularies of training in a folder; returns counts.

    What is `mergeable`, moments and counts of all IDs, is written to join days.
    """
    features = {f.name: f for f in schema.features if f.has_vocabulary}

    def write_statistics(moments: list[Moments]) -> None:
        write_json(folder / STATISTICS_FILE, statistics_of(schema, moments))
        if mergeable:
            (folder / MOMENTS_FILE).parent.mkdir(exist_ok=True)
            write_json(folder / MOMENTS_FILE, [as_json(one) for one in moments])

    def write_ids(name: str, entries: Iterable[tuple[str, int]]) -> None:
        if mergeable:
            entries = write_counts(folder / counts_file(name), entries)
        words = vocabulary_of(features[name], entries)
        write_vocabulary(folder / vocabulary_file(name), words)

    training = (
        assigned
        | "Training" >> beam.Filter(lambda entry: entry[0] == SPLITS[0])
        | "DropSplit" >> beam.Values()
    )
    moments = training | "Statistics" >> beam.CombineGlobally(NumericMoments(schema))
    _ = moments | "WriteStatistics" >> beam.Map(write_statistics)
    counted = training | "CountIds" >> beam.ParDo(_CountIds(schema)).with_outputs(
        COUNTS, main="ids"
    )
    ids = counted.ids
    if not is_embedded(assigned.pipeline):  # workers then send each ID once
        ids = ids | "SumIds" >> beam.CombinePerKey(sum)
    _ = (
        ids
        | "KeyByFeature" >> beam.MapTuple(lambda key, count: (key[0], (key[1], count)))
        | "WriteVocabularies" >> UseGroups(write_ids, itemgetter(0))
    )
    return counted[COUNTS]


def _extractor(schema: FeatureSchema, feature: Feature) -> _Extract:
    """Returns a function from the counted IDs of several rows to those of a feature."""
    names = counted_ids(schema, feature.scope)
    at = names.index(feature.name)
    if schema.hierarchy is not None and feature.name == schema.hierarchy.child:

        def key(ids: tuple[Any, ...]) -> str:
            # A chosen split may follow the IDs, see `to_split`.
            return schema.lookup_key(feature, dict(zip(names, ids, strict=False)))

        return lambda rows: [key(ids) for ids in rows if ids[at]]
    if feature.kind == "categorical_list":
        return lambda rows: [text for ids in rows for text in ids[at]]
    return lambda rows: [ids[at] for ids in rows]


class _CountIds(CountingDoFn):
    """`RankedList` -> ((feature, ID), count), counted per bundle; empty IDs are skipped.

    A vocabulary file has one ID per line, so IDs with a line break stay out of vocabulary; their
    number goes to the counts.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def setup(self) -> None:
        schema = self._schema
        self._extractors = [
            (f.name, f.scope, _extractor(schema, f)) for f in schema.features if f.has_vocabulary
        ]

    def start_bundle(self) -> None:
        super().start_bundle()
        self._pending: dict[str, list[str]] = {name: [] for name, *_ in self._extractors}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name, *_ in self._extractors}

    def process(self, ranked: RankedList) -> Iterator[tuple[tuple[str, str], int]]:
        rows = {"context": [ranked.context[1]], "example": [ids for _, ids in ranked.items]}
        for name, scope, extract in self._extractors:
            pending = self._pending[name]
            pending += extract(rows[scope])
            if len(pending) >= _BATCH:
                yield from self._count(name, _MOST_IDS)

    def finish_bundle(self) -> Iterator[Any]:
        for name, *_ in self._extractors:
            yield from map(at_the_end, self._count(name, 0))
        yield from super().finish_bundle()

    def _count(self, name: str, most: int) -> Iterator[tuple[tuple[str, str], int]]:
        """Counts pending IDs; yields and resets the counts if there are more than `most`."""
        counts, pending = self._counts[name], self._pending[name]
        counts.update(pending)
        pending.clear()
        if len(counts) <= most:
            return
        for text, count in counts.items():
            if "\n" in text or "\r" in text:
                self.tally["ids_with_line_breaks",] += count
            elif text:
                yield (name, text), count
        counts.clear()


class _Scope(ColumnStatistics):
    """Statistics of one scope, from the encoded rows."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        super().__init__(schema, scope)
        self._block = scope_floats(schema, scope)

    def moments(self, bodies: list[bytes]) -> Moments:
        return self.of(self._block.values(bodies)[:, : len(self.columns)])


class NumericMoments(beam.CombineFn):
    """`RankedList`s -> the moments of context and items, of which `statistics.json` is made.

    Columns are float32 as stored, after the `transform` of their feature; context columns count
    once a list. The standard deviation is that of the population, sqrt(M2 / count).
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def setup(self) -> None:
        """Lays out the columns on the worker."""
        self._scopes = _Scope(self._schema, "context"), _Scope(self._schema, "example")

    def create_accumulator(self) -> Pending:
        """Returns moments of no rows."""
        return [(scope.none(), []) for scope in self._scopes]

    def add_input(self, pending: Pending, ranked: RankedList) -> Pending:
        """Adds one list."""
        context, example = self._scopes
        if context.columns:
            pending[0][1].append(ranked.context[0])
        if example.columns:
            pending[1][1].extend([body for body, _ in ranked.items])
        if any(len(waiting) >= _BATCH for _, waiting in pending):
            return self.compact(pending)
        return pending

    def compact(self, pending: Pending) -> Pending:
        """Merges pending rows into the moments."""
        return [
            (merge(moments, scope.moments(waiting)) if waiting else moments, [])
            for scope, (moments, waiting) in zip(self._scopes, pending, strict=True)
        ]

    def merge_accumulators(self, accumulators: Iterable[Pending]) -> Pending:
        """Merges moments."""
        merged = [scope.none() for scope in self._scopes]
        for other in map(self.extract_output, accumulators):
            merged = [merge(one, two) for one, two in zip(merged, other, strict=True)]
        return [(moments, []) for moments in merged]

    def extract_output(self, pending: Pending) -> list[Moments]:
        """Returns the moments of context and items."""
        return [moments for moments, _ in self.compact(pending)]
