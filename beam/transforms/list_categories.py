"""Lists -> lists with the category of their items, or of the clicks of their query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import apache_beam as beam

from tfr_moe.beam.rows import CountingDoFn
from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.categories import Clicks, ListCategory, Pair
from tfr_moe.schema import SPLITS, FeatureSchema

_Assigned: TypeAlias = tuple[str, RankedList]


@beam.ptransform_fn
def count_clicks(assigned: beam.PCollection, schema: FeatureSchema) -> beam.PCollection:
    """(split, `RankedList`) -> one `Clicks`, of the training lists."""
    category = ListCategory(schema)

    def clicks_of(assigned: _Assigned) -> Iterator[tuple[tuple[str, Pair], int]]:
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

    def process(self, assigned: _Assigned, clicks: Clicks | None = None) -> Iterator[_Assigned]:
        """Adds the category of one list; without clicks, that of the majority of its items."""
        split, ranked = assigned
        of_query: Counter[Pair] | None = None
        if clicks is not None:
            query, own = self._category.clicks(ranked.context, ranked.items)
            of_query = clicks.get(query, Counter())
            of_query = of_query - own if split == SPLITS[0] else of_query
        context, notes = self._category(ranked.context, ranked.items, of_query)
        for note in notes:
            self.tally["noted", note] += 1
        yield split, ranked._replace(context=context)
