"""Positives and a table of items -> lists of one positive and its sampled negatives.

events -> ParseEvents -> KeepEvents (by user) -> items joined -> (category, period) -> draw -> by user:
                                                     |                                  exclude
                                                  features of the past  ->  lists  <-  items joined
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from ..sources import SourceRows
from .counting import COUNTS
from .design import Design
from .events import KeepEvents, ParseEvents, UserEvents
from .items import ItemLookup, ReadTable
from .joining import JoinByKey, add_past, pasts_of
from .negatives import SeenItem, candidate_table
from .parsing import REJECTS
from .sampling import Draw, MakeLists, Positives, seen_events
from .splits import TimeBounds


class Interactions(beam.PTransform):
    """Pipeline -> `SourceRows` of lists.

    In the memory of a worker are the candidate tables of all categories (some 70 bytes for each item
    and 16 for each period in which it had events), and one user's events at a time. Everything else is
    joined by key.

    Args:
        events: transform from the pipeline to batches of events.
        items: transform from the pipeline to batches of items.
        design: how lists are made.
    """

    def __init__(self, events: beam.PTransform, items: beam.PTransform, design: Design):
        super().__init__()
        self._events, self._items, self._design = events, items, design

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Puts the steps together."""
        design = self._design
        parsed = (
            pipeline
            | "ReadEvents" >> self._events
            | "ParseEvents"
            >> beam.ParDo(ParseEvents(design)).with_outputs(COUNTS, REJECTS, main="events")
        )
        table = pipeline | "ItemTable" >> ReadTable(
            self._items, design.item, design.item_columns, design.levels
        )
        kept = (
            parsed.events
            | "KeepEvents" >> beam.CombinePerKey(KeepEvents(design))
            | "UserEvents" >> beam.ParDo(UserEvents(design)).with_outputs(COUNTS, main="batches")
        )
        lookup = ItemLookup(design.item, design.item_columns)
        events = (kept.batches, table.entries) | "ItemsOfEvents" >> JoinByKey(lookup, design.time)
        positives = events | "Positives" >> beam.ParDo(Positives(design)).with_outputs(
            COUNTS, main="keyed"
        )
        drawn = (
            positives.keyed
            | "ByCategory" >> beam.GroupByKey()
            | "Draw"
            >> beam.ParDo(Draw(design), tables=self._tables(events)).with_outputs(
                COUNTS, main="drawn"
            )
        )
        made = self._lists(drawn.drawn, kept.batches)
        described = (made.lists, table.entries) | "ItemsOfLists" >> JoinByKey(lookup, design.time)
        lists, past_counts = add_past(described, events, pasts_of(design.past), design.time)
        counts = (parsed, kept, positives, drawn, made)
        return SourceRows(
            lists,
            (parsed[REJECTS], table.rejects) | "SourceRejects" >> beam.Flatten(),
            [*(step[COUNTS] for step in counts), table.counts, *past_counts]
            | "SourceCounts" >> beam.Flatten(),
        )

    def _tables(self, events: beam.PCollection) -> Any:
        """The candidate table of each category, for all workers."""
        design = self._design
        seen = events | "Seen" >> beam.FlatMap(seen_events, design)
        until = (
            seen
            | "TimesSeen" >> beam.Map(lambda entry: entry[1][0])
            | "Until" >> beam.CombineGlobally(TimeBounds(1.0 - design.candidates_share, 0.0))
        )
        tables = (
            seen
            | "SeenItems" >> beam.CombinePerKey(SeenItem())
            | "BySharedCategory" >> beam.MapTuple(lambda key, seen: (key[0], (key[1], seen)))
            | "Tables" >> beam.GroupByKey()
            | "Table"
            >> beam.MapTuple(
                lambda category, items, bounds=None: (
                    category,
                    candidate_table(items, bounds.validation),
                ),
                bounds=beam.pvalue.AsSingleton(until),
            )
        )
        return beam.pvalue.AsDict(tables)

    def _lists(self, drawn: beam.PCollection, batches: beam.PCollection) -> Any:
        design = self._design
        own = batches | "Own" >> beam.Map(
            lambda batch: (
                batch[0].values[design.user],
                [(event.values[design.item], event.values[design.time]) for event in batch],
            )
        )
        return (
            {"drawn": drawn, "own": own}
            | "MeetOwn" >> beam.CoGroupByKey()
            | "MakeLists" >> beam.ParDo(MakeLists(design)).with_outputs(COUNTS, main="lists")
        )
