"""Negatives for logs that have only positives: drawn from what was to be had at that moment.

What may stand in a list at time t, as its positive or as a negative, is decided by one rule that knows
nothing later than t: the item has had an event before the period of t began, and its first event lies
before `until`, which is inside the training period. A list whose own positive fails the rule is not
made. Without this, an item that training never saw as a positive could be known by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from .splits import list_hash

Seen = tuple[float, dict[int, int]]
"""(time of the first event, period -> number of events) of one item."""


class SeenItem(beam.CombineFn):
    """(time, period) of the events of an item -> `Seen`."""

    def create_accumulator(self) -> Seen:
        """No event."""
        return np.inf, {}

    def add_input(self, seen: Seen, event: tuple[float, int]) -> Seen:
        """Adds one event."""
        first, periods = seen
        time, period = event
        periods[period] = periods.get(period, 0) + 1
        return min(first, time), periods

    def merge_accumulators(self, accumulators: Iterable[Seen]) -> Seen:
        """Joins the events of several places."""
        first, periods = np.inf, Counter[int]()
        for other, counts in accumulators:
            first = min(first, other)
            periods.update(counts)
        return float(first), dict(periods)

    def extract_output(self, seen: Seen) -> Seen:
        """What was joined."""
        return seen


class CandidateTable(NamedTuple):
    """The items of one category and how often they had events, 16 bytes for each item and period.

    Attributes:
        items: ids in the order of the alphabet.
        item: [n] index of an item, in the order of `period`.
        period: [n] ascending.
        count: [n] events of that item in that period.
    """

    items: list[str]
    item: NDArray[np.int32]
    period: NDArray[np.int64]
    count: NDArray[np.int32]

    def weights(self, period: int, exponent: float) -> NDArray[np.float64]:
        """[items] (number of events in earlier periods) ^ exponent; 0 for items without one."""
        known = int(np.searchsorted(self.period, period, "left"))
        counts = np.bincount(
            self.item[:known], weights=self.count[:known], minlength=len(self.items)
        )
        return np.where(counts > 0, np.maximum(counts, 1) ** exponent, 0.0)


def candidate_table(items: Iterable[tuple[str, Seen]], until: float) -> CandidateTable:
    """The table of the items of one category whose first event lies before `until`."""
    seen = dict(sorted((item, periods) for item, (first, periods) in items if first < until))
    entries = sorted(
        (period, index, count)
        for index, periods in enumerate(seen.values())
        for period, count in periods.items()
    )
    columns = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return CandidateTable(
        list(seen), columns[1].astype(np.int32), columns[0], columns[2].astype(np.int32)
    )


class Candidates(NamedTuple):
    """What may stand in the lists of one category and period.

    Attributes:
        items: ids.
        weights: [items] positive.
        sums: [items] their running sums.
    """

    items: Sequence[str]
    weights: NDArray[np.float64]
    sums: NDArray[np.float64]


def candidates(table: CandidateTable, period: int, exponent: float) -> Candidates:
    """The items of a table that had an event before the period."""
    weights = table.weights(period, exponent)
    there = np.flatnonzero(weights)
    chosen = weights[there]
    return Candidates([table.items[i] for i in there], chosen, np.cumsum(chosen))


def draw(given: Candidates, number: int, name: str, seed: int) -> list[str]:
    """Draws up to `number` different items, each with a probability proportional to its weight among
    those that are left.

    Args:
        given: the items.
        number: how many.
        name: of the list; the draw depends on it and the seed, and on nothing else.
        seed: of all draws.
    """
    random = np.random.default_rng(list_hash(name, seed, "negatives"))
    number = min(number, len(given.items))
    chosen = _first_different(given, number, random) if len(given.items) > 8 * number else []
    if len(chosen) < number:
        # The smallest of exponential times with these rates: a draw without replacement.
        times = random.exponential(size=len(given.items)) / given.weights
        chosen = np.argsort(times)[:number].tolist()
    return [given.items[index] for index in chosen]


def _first_different(given: Candidates, number: int, random: np.random.Generator) -> list[int]:
    """The first different ones of many draws with replacement, which are distributed as a draw
    without; fewer than `number` where a few items have nearly all the weight."""
    places = random.random(8 * number) * given.sums[-1]
    drawn = np.searchsorted(given.sums, places, "right").clip(max=len(given.items) - 1)
    return list(dict.fromkeys(drawn.tolist()))[:number]
