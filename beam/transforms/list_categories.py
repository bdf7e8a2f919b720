"""Lists -> lists with the category of their items, or of the clicks of their query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import apache_beam as beam

from tfr_moe.beam.rows import COUNTS, CountingDoFn
from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.categories import Clicks, ListCategory, table_of
from tfr_moe.schema import SPLITS, FeatureSchema, write_query_categories

_Counts: TypeAlias = dict[str, Counter[tuple[str, str]]]
_Assigned: TypeAlias = tuple[str, RankedList]


class CountClicks(beam.CombineFn):
    """(split, `RankedList`)s -> query -> category -> number of clicks in the training lists.

    Args:
        schema: of the lists.
    """

    def __init__(self, schema: FeatureSchema):
        self._category = ListCategory(schema)

    def create_accumulator(self) -> _Counts:
        """Returns no clicks."""
        return {}

    def add_input(self, counts: _Counts, assigned: _Assigned) -> _Counts:
        """Adds the clicks of one list."""
        split, ranked = assigned
        if split == SPLITS[0]:
            query, clicks = self._category.clicks(ranked.context, ranked.items)
            if clicks:
                counts.setdefault(query, Counter()).update(clicks)
        return counts

    def merge_accumulators(self, accumulators: Iterable[_Counts]) -> _Counts:
        """Adds up clicks."""
        merged: _Counts = {}
        for counts in accumulators:
            for query, clicks in counts.items():
                merged.setdefault(query, Counter()).update(clicks)
        return merged

    def extract_output(self, counts: _Counts) -> _Counts:
        """Returns the clicks."""
        return counts


class WriteClicks(beam.PTransform):
    """(split, `RankedList`) -> a collection of the `Clicks` of training, whose table is written.

    Args:
        schema: with `from: clicked_in_training` in its hierarchy.
        folder: of the data set.
    """

    def __init__(self, schema: FeatureSchema, folder: str):
        super().__init__()
        self._schema, self._folder = schema, folder

    def expand(self, assigned: beam.PCollection) -> beam.PCollection:
        """Counts and writes."""
        folder = self._folder
        clicks = assigned | "Count" >> beam.CombineGlobally(CountClicks(self._schema))
        tables = clicks | "Table" >> beam.Map(table_of)
        _ = tables | "Write" >> beam.Map(lambda table: write_query_categories(folder, table))
        return clicks


class _AddCategory(CountingDoFn):
    """(split, `RankedList`) -> the same with a category; a list never counts its own clicks."""

    def __init__(self, schema: FeatureSchema):
        self._category = ListCategory(schema)

    def process(self, assigned: _Assigned, clicks: Clicks | None = None) -> Iterator[_Assigned]:
        """Adds the category of one list."""
        split, ranked = assigned
        of_query: Counter[tuple[str, str]] | None = None
        if clicks is not None:
            query, own = self._category.clicks(ranked.context, ranked.items)
            of_query = clicks.get(query, Counter())
            of_query = of_query - own if split == SPLITS[0] else of_query
        context, notes = self._category(ranked.context, ranked.items, of_query)
        for note in notes:
            self.tally["noted", note] += 1
        yield split, ranked._replace(context=context)


class AddCategories(beam.PTransform):
    """(split, `RankedList`) -> `lists` with a category, and counts.

    Args:
        schema: with `from` in its hierarchy.
        clicks: a collection of one `Clicks`; None for `from: majority`.
    """

    def __init__(self, schema: FeatureSchema, clicks: beam.PCollection | None):
        super().__init__()
        self._schema, self._clicks = schema, clicks

    def expand(self, assigned: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        """Adds the categories."""
        waits = [] if self._clicks is None else [beam.pvalue.AsSingleton(self._clicks)]
        add = beam.ParDo(_AddCategory(self._schema), *waits)
        return assigned | add.with_outputs(COUNTS, main="lists")
