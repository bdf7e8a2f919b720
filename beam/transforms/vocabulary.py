"""Ids of the training lists -> vocabulary files, most frequent first."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.row_encoding import counted_ids
from tfr_moe.schema import Feature, FeatureSchema, vocabulary_file

from ..shuffle import UseGroups
from .counting import COUNTS, CountingDoFn, at_the_end
from .grouping import RankedList

LINE_BREAKS = "ids_with_line_breaks"
_BATCH = 10_000
_MOST_IDS = 100_000
_Extract = Callable[[RankedList], Iterable[str]]


def _extractors(schema: FeatureSchema) -> list[tuple[str, _Extract]]:
    """For each feature with a vocabulary, a function from a list to its ids."""
    return [
        (feature.name, _extractor(schema, feature))
        for feature in schema.features
        if feature.has_vocabulary
    ]


def _extractor(schema: FeatureSchema, feature: Feature) -> _Extract:
    names = counted_ids(schema, feature.scope)
    at = names.index(feature.name)
    many = feature.kind == "categorical_list"
    if feature.scope == "example":
        if many:
            return lambda ranked: (text for _, ids in ranked.items for text in ids[at])
        return lambda ranked: [ids[at] for _, ids in ranked.items]
    if many:
        return lambda ranked: ranked.context[1][at]
    if schema.hierarchy is not None and feature.name == schema.hierarchy.child:

        def pair(ranked: RankedList) -> list[str]:
            ids = ranked.context[1]
            if not ids[at]:
                return []
            return [schema.lookup_key(feature, dict(zip(names, ids, strict=True)))]

        return pair
    return lambda ranked: [ranked.context[1][at]]


class CountIds(CountingDoFn):
    """`RankedList` -> ((feature, id), count), counted per bundle; the empty id is nothing.

    A vocabulary has one id a line, so an id with a line break can't be in it: such ids are out of
    vocabulary, and their number goes to the counts.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def setup(self) -> None:
        """Finds out where the ids stand."""
        self._extractors = _extractors(self._schema)

    def start_bundle(self) -> None:
        """Starts with no counts."""
        super().start_bundle()
        self._waiting: dict[str, list[str]] = {name: [] for name, _ in self._extractors}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name, _ in self._extractors}

    def process(self, ranked: RankedList) -> Iterator[tuple[tuple[str, str], int]]:
        """Counts one list."""
        for name, extract in self._extractors:
            waiting = self._waiting[name]
            waiting += extract(ranked)
            if len(waiting) >= _BATCH:
                yield from self._count(name, _MOST_IDS)

    def finish_bundle(self) -> Iterator[Any]:
        """Yields what the bundle has counted."""
        for name, _ in self._extractors:
            for entry in self._count(name, 0):
                yield at_the_end(entry)
        yield from super().finish_bundle()

    def _count(self, name: str, most: int) -> Iterator[tuple[tuple[str, str], int]]:
        """Counts the ids that wait; yields and forgets the counts if they are more than `most`."""
        counts, waiting = self._counts[name], self._waiting[name]
        counts.update(waiting)
        waiting.clear()
        if len(counts) > most:
            for text, count in counts.items():
                yield from self._entry(name, text, count)
            counts.clear()

    def _entry(self, name: str, text: str, count: int) -> list[tuple[tuple[str, str], int]]:
        if "\n" in text or "\r" in text:
            self.tally[LINE_BREAKS,] += count
            return []
        return [((name, text), count)] if text else []


class WriteVocabularies(beam.PTransform):
    """Training lists -> `vocabulary/<feature>.txt` in a folder; gives the counts of `CountIds`.

    Ids are in order of falling count, then of their text; those below the feature's `min_count` and
    beyond its `max_vocabulary` are left out. A feature without ids gets no file.

    Args:
        schema: the features.
        folder: the data set's folder.
        runs: folder for sorted runs, None for the runner's shuffle; see `UseGroups`.
    """

    def __init__(self, schema: FeatureSchema, folder: str, runs: str | None = None):
        super().__init__()
        self._schema = schema
        self._folder = folder
        self._runs = runs

    def expand(self, lists: beam.PCollection) -> beam.PCollection:
        """Counts, sorts and writes."""
        folder = self._folder
        features = {f.name: f for f in self._schema.features if f.has_vocabulary}
        counted = lists | beam.ParDo(CountIds(self._schema)).with_outputs(COUNTS, main="ids")
        ids = counted.ids
        if self._runs is None:  # workers then send each id once
            ids = ids | "SumIds" >> beam.CombinePerKey(sum)

        def write(name: str, entries: Iterable[tuple[str, int]]) -> str:
            return _write(folder, features[name], entries)

        _ = (
            ids
            | "KeyByFeature" >> beam.MapTuple(lambda key, count: (key[0], (key[1], count)))
            | "WriteVocabulary" >> UseGroups(write, itemgetter(0), self._runs)
        )
        return counted[COUNTS]


def _write(folder: str, feature: Feature, entries: Iterable[tuple[str, int]]) -> str:
    """Writes one vocabulary, from ids in order with counts that are not yet summed."""
    sums = (
        (-sum(count for _, count in group), text)
        for text, group in itertools.groupby(entries, key=itemgetter(0))
    )
    frequent = (entry for entry in sums if -entry[0] >= feature.min_count)
    limit = feature.max_vocabulary
    ordered = heapq.nsmallest(limit, frequent) if limit else sorted(frequent)
    path = Path(folder, vocabulary_file(feature.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for _, text in ordered), encoding="utf-8", newline="\n")
    return feature.name
