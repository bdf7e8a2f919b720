"""Interactions and a table of items -> lists of one positive and sampled negatives.

    events -> ParseEvents -> UserEvents (by user) -> join items -> (category, period) -> Draw
                                                                                              |
        lists <- add history features <- join items <- MakeSampledLists (by user) <-----------

One rule decides which items may be in a list at time t, as positive or negative, and it uses
nothing later than t: the item had an event before the period of t began, and its first event lies
before `until`, which is inside the training period. A list whose positive fails the rule is
dropped. Otherwise a model could recognise an item that was never a positive in training by that
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from experiments.datasets.interactions.events import (
    FIRST,
    ParseEvents,
    SamplingDesign,
    UserEvents,
)
from experiments.datasets.interactions.history_features import add_history
from experiments.datasets.interactions.names import CleanNames
from tfr_moe.beam.sources import (
    COUNTS,
    REJECTS,
    CountingDoFn,
    JoinColumns,
    RawRow,
    ReadTable,
    SourceRows,
    TimeBounds,
    list_hash,
)

ItemEvents = tuple[float, dict[int, int]]
"""(time of the first event, period -> number of events) of one item"""


class Interactions(beam.PTransform):
    """Pipeline -> `SourceRows` of lists.

    A worker holds the candidate tables of all categories (some 70 bytes per item, and 16 per period
    in which it had events) and the events of one user at a time. Everything else is joined by key.

    Args:
        events: transform from the pipeline to batches of events.
        items: transform from the pipeline to batches of items.
        design: how lists are made.
    """

    def __init__(self, events: beam.PTransform, items: beam.PTransform, design: SamplingDesign):
        super().__init__()
        self._events, self._items, self._design = events, items, design

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Assembles the steps."""
        design = self._design
        parsed = (
            pipeline
            | "ReadEvents" >> self._events
            | "ParseEvents"
            >> beam.ParDo(ParseEvents(design)).with_outputs(COUNTS, REJECTS, main="events")
        )
        clean = beam.ParDo(CleanNames(design.levels)).with_outputs(COUNTS, main="items")
        items = pipeline | "ReadItems" >> self._items | "CleanNames" >> clean
        table = items.items | "ItemTable" >> ReadTable((design.item,), design.item_columns)
        users = (
            parsed.events
            | "ByUser" >> beam.GroupByKey()
            | "UserEvents" >> beam.ParDo(UserEvents(design)).with_outputs(COUNTS, main="batches")
        )
        join = JoinColumns((design.item,), design.item_columns)
        events = (users.batches, table.entries) | "ItemsOfEvents" >> join
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
        made = self._lists(drawn.drawn, users.batches)
        rows = (made.lists, table.entries) | "ItemsOfLists" >> join
        lists, history_counts = add_history(rows, events, design.history, design.time)
        counts = [step[COUNTS] for step in (parsed, items, users, positives, drawn, made)]
        return SourceRows(
            lists,
            (parsed[REJECTS], table.rejects) | "SourceRejects" >> beam.Flatten(),
            [*counts, table.counts, *history_counts] | "SourceCounts" >> beam.Flatten(),
        )

    def _tables(self, events: beam.PCollection) -> Any:
        """Returns the candidate table of each category, as a side input."""
        design = self._design
        later = 1.0 - design.options.candidates_share
        counted = events | "ItemEvents" >> beam.FlatMap(item_events, design)
        until = (
            counted
            | "EventTimes" >> beam.Map(lambda entry: entry[1][0])
            | "Until" >> beam.CombineGlobally(TimeBounds(later, 0.0))
        )
        tables = (
            counted
            | "BySharedCategory" >> beam.MapTuple(lambda key, event: (key[0], (key[1], event)))
            | "Tables" >> beam.GroupByKey()
            | "Table"
            >> beam.MapTuple(
                lambda category, events, bounds=None: (
                    category,
                    candidate_table(count_events(events), bounds.validation),
                ),
                bounds=beam.pvalue.AsSingleton(until),
            )
        )
        return beam.pvalue.AsDict(tables)

    def _lists(self, drawn: beam.PCollection, batches: beam.PCollection) -> Any:
        design = self._design
        events = batches | "EventsOfUser" >> beam.Map(
            lambda batch: (
                batch[0].values[design.user],
                [(event.values[design.item], event.values[design.time]) for event in batch],
            )
        )
        make = beam.ParDo(MakeSampledLists(design)).with_outputs(COUNTS, main="lists")
        both = {"drawn": drawn, "events": events}
        return both | "JoinUser" >> beam.CoGroupByKey() | "MakeLists" >> make


class Positives(CountingDoFn):
    """Batches of events with item columns -> ((*category, period), event) of possible lists."""

    def __init__(self, design: SamplingDesign):
        self._design = design

    def process(self, batch: list[RawRow]) -> Iterator[tuple[tuple[Any, ...], RawRow]]:
        """Drops and counts events that cannot become a list."""
        design = self._design
        for event in batch:
            values = event.values
            category = design.category(values)
            if category is None:
                self.tally["source", "events", "left out: item without a category"] += 1
            elif not values[FIRST] and not design.options.repeats:
                self.tally["source", "events", "left out: the user had the item before"] += 1
            else:
                yield (*category, str(design.period(values[design.time]))), event


def item_events(
    batch: list[RawRow], design: SamplingDesign
) -> Iterator[tuple[tuple[tuple[str, ...], str], tuple[float, int]]]:
    """Yields ((category, item), (time, period)) of events."""
    for event in batch:
        values = event.values
        category = design.category(values)
        if category is not None:
            time = values[design.time]
            yield (category, values[design.item]), (time, design.period(time))


class Draw(CountingDoFn):
    """((*category, period), events) -> (user, (event, drawn items)).

    Draws more items than needed, since those of the user have yet to be excluded.
    """

    def __init__(self, design: SamplingDesign):
        self._design = design

    def process(
        self, keyed: tuple[tuple[str, ...], Iterable[RawRow]], tables: dict[Any, CandidateTable]
    ) -> Iterator[tuple[str, tuple[RawRow, list[str]]]]:
        """Draws for all events of one category and period."""
        design = self._design
        (*category, period), events = keyed
        table = tables.get(tuple(category), candidate_table((), 0.0))
        pool = candidates(table, int(period), design.options.exponent)
        known = set(pool.items)
        for event in events:
            values = event.values
            if values[design.item] not in known:
                self.tally["source", "events", "left out: item not seen before"] += 1
                continue
            number = 2 * design.options.negatives + 10
            drawn = draw(pool, number, design.list_name(values), design.options.seed)
            yield values[design.user], (event, drawn)


class MakeSampledLists(CountingDoFn):
    """(user, drawn lists and events of the user) -> a batch of rows per list.

    The order of the items depends on seed and list only, so it does not reveal the positive.
    """

    def __init__(self, design: SamplingDesign):
        self._design = design

    def process(self, joined: tuple[str, dict[str, Iterable[Any]]]) -> Iterator[list[RawRow]]:
        """Makes the lists of one user."""
        design, options = self._design, self._design.options
        _, sides = joined
        events = [entry for entries in sides["events"] for entry in entries]
        all_items = {item for item, _ in events}
        by_time: dict[float, set[str]] = {}
        for item, time in events:
            by_time.setdefault(time, set()).add(item)
        for event, drawn in sides["drawn"]:
            excluded = by_time[event.values[design.time]] if options.repeats else all_items
            negatives = [item for item in drawn if item not in excluded][: options.negatives]
            if len(negatives) < options.min_negatives:
                outcome = f"left out: fewer than {options.min_negatives} negatives"
                self.tally["source", "events", outcome] += 1
                continue
            self.tally["source", "events", "became a list"] += 1
            yield self._rows(event, negatives)

    def _rows(self, event: RawRow, negatives: list[str]) -> list[RawRow]:
        design = self._design
        values = event.values
        name = design.list_name(values)
        positive = values[design.item]
        shared = {c: values[c] for c in (*design.event_columns, design.user, design.time)}
        order = sorted(
            [positive, *negatives],
            key=lambda item: list_hash(f"{name} {item}", design.options.seed, "order"),
        )
        return [
            event._replace(
                values={
                    **shared,
                    design.list_id: name,
                    design.item: item,
                    design.label: int(item == positive),
                },
                order=index,
            )
            for index, item in enumerate(order)
        ]


def count_events(
    events: Iterable[tuple[str, tuple[float, int]]],
) -> list[tuple[str, ItemEvents]]:
    """Returns (item, `ItemEvents`) of each item, from (item, (time, period)) of its events.

    Example:
        >>> count_events([("a", (3.0, 1)), ("a", (1.0, 0)), ("a", (3.5, 1))])
        [('a', (1.0, {1: 2, 0: 1}))]
    """
    first: dict[str, float] = {}
    periods: dict[str, Counter[int]] = {}
    for item, (time, period) in events:
        first[item] = min(time, first.get(item, time))
        periods.setdefault(item, Counter())[period] += 1
    return [(item, (first[item], dict(counts))) for item, counts in periods.items()]


class CandidateTable(NamedTuple):
    """Event counts of the items of one category, 16 bytes for each item and period.

    Attributes:
        items: IDs in alphabetical order.
        item: [n] index of an item, ordered by `period`.
        period: [n] ascending.
        num_events: [n] events of that item in that period.
    """

    items: list[str]
    item: NDArray[np.int32]
    period: NDArray[np.int64]
    num_events: NDArray[np.int32]

    def weights(self, period: int, exponent: float) -> NDArray[np.float64]:
        """Returns (number of events in earlier periods) ^ exponent, [items]; 0 without events."""
        known = int(np.searchsorted(self.period, period, "left"))
        counts = np.bincount(
            self.item[:known], weights=self.num_events[:known], minlength=len(self.items)
        )
        return np.where(counts > 0, np.maximum(counts, 1) ** exponent, 0.0)


def candidate_table(items: Iterable[tuple[str, ItemEvents]], until: float) -> CandidateTable:
    """Returns the table of the items of one category whose first event lies before `until`."""
    counted = dict(sorted((item, periods) for item, (first, periods) in items if first < until))
    entries = sorted(
        (period, index, count)
        for index, periods in enumerate(counted.values())
        for period, count in periods.items()
    )
    columns = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return CandidateTable(
        list(counted), columns[1].astype(np.int32), columns[0], columns[2].astype(np.int32)
    )


class Candidates(NamedTuple):
    """Items that may be in the lists of one category and period.

    Attributes:
        items: IDs.
        weights: [items] positive.
        sums: [items] cumulative weights.
    """

    items: Sequence[str]
    weights: NDArray[np.float64]
    sums: NDArray[np.float64]


def candidates(table: CandidateTable, period: int, exponent: float) -> Candidates:
    """Returns the items of a table that had an event before the period."""
    weights = table.weights(period, exponent)
    present = np.flatnonzero(weights)
    positive = weights[present]
    return Candidates([table.items[i] for i in present], positive, np.cumsum(positive))


def draw(pool: Candidates, number: int, name: str, seed: int) -> list[str]:
    """Draws up to `number` items without replacement, with probability proportional to weight.

    Args:
        pool: items to draw from.
        number: of items.
        name: of the list; the draw depends on it and the seed alone.
        seed: of all draws.
    """
    random = np.random.default_rng(list_hash(name, seed, "negatives"))
    number = min(number, len(pool.items))
    drawn = _first_distinct(pool, number, random) if len(pool.items) > 8 * number else []
    if len(drawn) < number:
        # The smallest of exponential variables with these rates: a draw without replacement.
        times = random.exponential(size=len(pool.items)) / pool.weights
        drawn = np.argsort(times)[:number].tolist()
    return [pool.items[index] for index in drawn]


def _first_distinct(pool: Candidates, number: int, random: np.random.Generator) -> list[int]:
    """Returns the first distinct ones of many draws with replacement, which are distributed as a
    draw without; fewer than `number` where a few items have nearly all the weight."""
    points = random.random(8 * number) * pool.sums[-1]
    drawn = np.searchsorted(pool.sums, points, "right").clip(max=len(pool.items) - 1)
    return list(dict.fromkeys(drawn.tolist()))[:number]
