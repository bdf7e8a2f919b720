"""Ids of the training lists -> vocabulary files, most frequent first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.schema import Feature, FeatureSchema, vocabulary_file

from .counting import COUNTS, CountingDoFn, at_the_end
from .grouping import RankedList
from .parsing import context_names, example_names

LINE_BREAKS = "ids_with_line_breaks"
_BATCH = 10_000
_MOST_IDS = 100_000
_Extract = Callable[[RankedList], Iterable[str]]


def _extractors(schema: FeatureSchema) -> list[tuple[str, _Extract]]:
    """For each feature with a vocabulary, a function from a list to its ids."""
    context, example = context_names(schema), example_names(schema)
    found: list[tuple[str, _Extract]] = []
    for feature in schema.features:
        if feature.has_vocabulary:
            names = context if feature.scope == "context" else example
            found.append((feature.name, _extractor(schema, feature, names)))
    return found


def _extractor(schema: FeatureSchema, feature: Feature, names: list[str]) -> _Extract:
    at = names.index(feature.name)
    many = feature.kind == "categorical_list"
    if feature.scope == "example":
        if many:
            return lambda ranked: (text for item in ranked.items for text in item[at])
        return lambda ranked: [item[at] for item in ranked.items]
    if many:
        return lambda ranked: ranked.context[at]
    if schema.hierarchy is not None and feature.name == schema.hierarchy.child:

        def pair(ranked: RankedList) -> list[str]:
            if not ranked.context[at]:
                return []
            return [schema.lookup_key(feature, dict(zip(names, ranked.context, strict=True)))]

        return pair
    return lambda ranked: [ranked.context[at]]


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
    """

    def __init__(self, schema: FeatureSchema, folder: str):
        super().__init__()
        self._schema = schema
        self._folder = folder

    def expand(self, lists: beam.PCollection) -> beam.PCollection:
        """Counts, sorts and writes."""
        schema, folder = self._schema, self._folder
        features = {f.name: f for f in schema.features if f.has_vocabulary}
        least = {name: feature.min_count for name, feature in features.items()}
        counted = lists | beam.ParDo(CountIds(schema)).with_outputs(COUNTS, main="ids")
        _ = (
            counted.ids
            | "SumIds" >> beam.CombinePerKey(sum)
            | "DropRare" >> beam.Filter(lambda entry: entry[1] >= least[entry[0][0]])
            | "KeyByFeature" >> beam.MapTuple(lambda key, count: (key[0], (-count, key[1])))
            | beam.GroupByKey()
            | beam.MapTuple(
                lambda name, entries: _write(folder, features[name], entries)
            ).with_output_types(str)
        )
        return counted[COUNTS]


def _write(folder: str, feature: Feature, entries: Iterable[tuple[int, str]]) -> str:
    limit = feature.max_vocabulary
    ordered = heapq.nsmallest(limit, entries) if limit else sorted(entries)
    path = Path(folder, vocabulary_file(feature.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for _, text in ordered), encoding="utf-8", newline="\n")
    return feature.name
