"""Items of one list id -> one list, of bounded length however many rows a list id has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam

from tfr_moe.row_encoding import Encoded, EncodedRow

from .counting import CountingDoFn

Place = tuple[int, int, int]
"""(file, line, order): where a row comes from."""


class RankedList(NamedTuple):
    """One list.

    Attributes:
        list_id: its id.
        time: the earliest time of its rows, or None.
        context: from the row that stands first in the files.
        items: by position, then by place in the files.
    """

    list_id: str
    time: float | None
    context: Encoded
    items: list[Encoded]


class Gathered(NamedTuple):
    """What is known of a list while it is combined, and in the end.

    Attributes:
        first: the first row's (place, context), None for no rows.
        time: the earliest time.
        conflict: whether some rows have another context.
        items: [(position, place, item)] of at most twice the cap; the cap once `compact`ed.
        cut: number of items that were cut off.
    """

    first: tuple[Place, Encoded] | None
    time: float | None
    conflict: bool
    items: list[tuple[float, Place, Encoded]]
    cut: int


_NOTHING = Gathered(None, None, False, [], 0)


class ListBuilder:
    """Rows of one list, one by one -> `Gathered`.

    Args:
        max_list_size: the cap on items.
    """

    __slots__ = ("_cap", "_conflict", "_context", "_cut", "_items", "_place", "_time")

    def __init__(self, max_list_size: int):
        self._cap = max_list_size
        self._place: Place | None = None
        self._context: Encoded = (b"", ())
        self._time: float | None = None
        self._conflict = False
        self._items: list[tuple[float, Place, Encoded]] = []
        self._cut = 0

    def add(self, place: Place, row: EncodedRow) -> None:
        """Adds one row."""
        _, time, position, context, example = row
        if self._place is None:
            self._place, self._context, self._time = place, context, time
        else:
            if context is not self._context and context != self._context:
                self._conflict = True
            if place < self._place:
                self._place, self._context = place, context
            if time is not None and (self._time is None or time < self._time):
                self._time = time
        items = self._items
        items.append((position, place, example))
        if len(items) >= 2 * self._cap:
            items.sort()
            del items[self._cap :]
            self._cut += self._cap

    def gathered(self) -> Gathered:
        """What the rows come to."""
        first = None if self._place is None else (self._place, self._context)
        return Gathered(first, self._time, self._conflict, self._items, self._cut)


class GatherList(beam.CombineFn):
    """Keeps the `max_list_size` items with the smallest positions and counts the others.

    The result does not depend on the order in which rows arrive, and a key with millions of rows needs
    no more memory than one at the cap, because workers combine before they send.

    Args:
        max_list_size: the cap.
    """

    def __init__(self, max_list_size: int):
        self._cap = max_list_size

    def create_accumulator(self) -> Gathered:
        """Nothing gathered."""
        return _NOTHING._replace(items=[])

    def builder(self) -> ListBuilder:
        """What gathers the rows of one batch."""
        return ListBuilder(self._cap)

    def gather(self, parts: Iterable[Gathered]) -> Gathered:
        """All at once."""
        return self.extract_output(self.merge_accumulators(parts))

    def add_input(self, gathered: Gathered, other: Gathered) -> Gathered:
        """Adds the rows of one batch."""
        return self.merge_accumulators([gathered, other])

    def merge_accumulators(self, accumulators: Iterable[Gathered]) -> Gathered:
        """Joins what was gathered in several places."""
        merged = self.create_accumulator()
        for other in accumulators:
            merged = self._join(merged, other)
            if len(merged.items) >= 2 * self._cap:
                merged = self.compact(merged)
        return merged

    @staticmethod
    def _join(one: Gathered, other: Gathered) -> Gathered:
        if one.first is None or other.first is None:
            return other if one.first is None else one
        times = [time for time in (one.time, other.time) if time is not None]
        return Gathered(
            min(one.first, other.first, key=lambda first: first[0]),
            min(times, default=None),
            one.conflict or other.conflict or one.first[1] != other.first[1],
            one.items + other.items,
            one.cut + other.cut,
        )

    def compact(self, gathered: Gathered) -> Gathered:
        """Sorts the items and cuts them down to the cap."""
        items = sorted(gathered.items)
        cut = max(0, len(items) - self._cap)
        return gathered._replace(items=items[: self._cap], cut=gathered.cut + cut)

    def extract_output(self, gathered: Gathered) -> Gathered:
        """The gathered list, sorted and cut."""
        return self.compact(gathered)


class MakeLists(CountingDoFn):
    """(list id, `Gathered`) -> `RankedList`, without the lists that are too short.

    Args:
        min_list_size: lists with fewer items are cut, and counted.
    """

    def __init__(self, min_list_size: int):
        self._min_list_size = min_list_size

    def process(self, keyed: tuple[str, Gathered]) -> Iterator[RankedList]:
        """Makes one list."""
        list_id, gathered = keyed
        assert gathered.first is not None
        if gathered.conflict:
            self.tally["context_conflicts",] += 1
        if gathered.cut:
            self.tally["cut", "list too long"] += gathered.cut
        if len(gathered.items) < self._min_list_size:
            self.tally["cut", "list too short"] += len(gathered.items)
            return
        items = [values for _, _, values in gathered.items]
        yield RankedList(list_id, gathered.time, gathered.first[1], items)
