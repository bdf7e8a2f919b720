"""Vocabularies and statistics of the training lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, CountingDoFn, at_the_end
from tfr_moe.beam.sorted_groups import is_embedded, use_groups
from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.encoder import Encoded, counted_ids, scope_floats
from tfr_moe.elwc.statistics import (
    SCOPES,
    ColumnStatistics,
    Moments,
    as_json,
    merge,
    merge_scopes,
    statistics_of,
)
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

    training = assigned | "Training" >> beam.FlatMapTuple(
        lambda split, ranked: [ranked] if split == SPLITS[0] else []
    )
    summed = training | "Sum" >> beam.ParDo(SumLists(schema)).with_outputs(
        COUNTS, "moments", main="ids"
    )
    _ = (
        summed.moments
        # Without a training list there are none, and the build fails.
        | "Moments" >> beam.CombineGlobally(merge_scopes).without_defaults()
        | "WriteStatistics" >> beam.Map(write_statistics)
    )
    ids = summed.ids
    if not is_embedded(assigned.pipeline):  # workers then send each ID once
        ids = ids | "SumIds" >> beam.CombinePerKey(sum)
    _ = (
        ids
        | "KeyByFeature" >> beam.MapTuple(lambda key, count: (key[0], (key[1], count)))
        | "WriteVocabularies" >> use_groups(write_ids, itemgetter(0))
    )
    return summed[COUNTS]


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


class SumLists(CountingDoFn):
    """Training lists -> ((feature, ID), count), tagged `moments` and counts, summed per bundle.

    Numbers are float32 as stored, after the `transform` of their feature; context columns count
    once a list. Empty IDs are skipped. A vocabulary file has one ID per line, so IDs with a line
    break stay out of vocabulary; their number goes to the counts.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def setup(self) -> None:
        """Lays out the columns on the worker."""
        schema = self._schema
        self._floats = {scope: scope_floats(schema, scope) for scope in SCOPES}
        self._columns = {scope: ColumnStatistics(schema, scope) for scope in SCOPES}
        self._extractors = [
            (f.name, f.scope, _extractor(schema, f)) for f in schema.features if f.has_vocabulary
        ]

    def start_bundle(self) -> None:
        """Resets the sums."""
        super().start_bundle()
        self._pending: dict[Scope, list[Encoded]] = {scope: [] for scope in SCOPES}
        self._moments = {scope: columns.none() for scope, columns in self._columns.items()}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name, *_ in self._extractors}

    def process(self, ranked: RankedList) -> Iterator[tuple[tuple[str, str], int]]:
        """Adds one list."""
        self._pending["context"].append(ranked.context)
        self._pending["example"] += ranked.items
        if len(self._pending["example"]) >= _BATCH:
            self._sum()
            yield from self._take(_MOST_IDS)

    def finish_bundle(self) -> Iterator[Any]:
        """Yields the sums of the bundle."""
        self._sum()
        yield from map(at_the_end, self._take(0))
        yield beam.pvalue.TaggedOutput("moments", at_the_end(list(self._moments.values())))
        yield from super().finish_bundle()

    def _sum(self) -> None:
        """Adds the pending rows to the moments and the counts of IDs."""
        for scope, columns in self._columns.items():
            if columns.columns:
                floats = self._floats[scope].values([body for body, _ in self._pending[scope]])
                moments = columns.of(floats[:, : len(columns.columns)])
                self._moments[scope] = merge(self._moments[scope], moments)
        for name, scope, extract in self._extractors:
            self._counts[name].update(extract([ids for _, ids in self._pending[scope]]))
        for rows in self._pending.values():
            rows.clear()

    def _take(self, most: int) -> Iterator[tuple[tuple[str, str], int]]:
        """Yields and resets the counts of features with more than `most` IDs."""
        for name, counts in self._counts.items():
            if len(counts) <= most:
                continue
            for text, count in counts.items():
                if "\n" in text or "\r" in text:
                    self.tally["ids_with_line_breaks",] += count
                elif text:
                    yield (name, text), count
            counts.clear()
