"""Interactions as they stand in files -> the events of each user, each once, in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id, to_time

from ..sources import RawRow
from .counting import CountingDoFn
from .design import FIRST, Design
from .parsing import REJECTS


class ParseEvents(CountingDoFn):
    """Batches of rows -> (user, event as a `RawRow` with typed user, item and time)."""

    def __init__(self, design: Design):
        self._design = design

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch; what lacks user, item or time goes to the rejects."""
        self.tally["source", "events", "read"] += len(batch)
        for row in batch:
            reason = row.error
            if reason is None:
                try:
                    event = row._replace(values=self._values(row.values))
                except RowError as error:
                    reason = str(error)
            if reason is None:
                yield event.values[self._design.user], event  # type: ignore[index]
            else:
                self.tally["source", "events", "rejected"] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, (row.file, row.line, reason, row.values))

    def _values(self, values: Any) -> dict[str, Any]:
        design = self._design
        for column in (design.user, design.item, design.time):
            if is_missing(values.get(column)):
                raise RowError(f"column {column!r}: a value is required")
        found = {column: values.get(column) for column in design.event_columns}
        found[design.user] = to_id(design.user, values[design.user])
        found[design.item] = to_id(design.item, values[design.item])
        found[design.time] = to_time(design.time, values[design.time])
        return found


Kept = tuple[dict[tuple[float, str], RawRow], int, int]
"""((time, item) -> the event that stands first in the files, duplicates, events beyond the cap)."""


class KeepEvents(beam.CombineFn):
    """Events of one user -> the earliest of them, each once.

    Args:
        design: says how many and what their columns are called.
    """

    def __init__(self, design: Design):
        self._item, self._time, self._cap = design.item, design.time, design.max_user_events

    def create_accumulator(self) -> Kept:
        """No event."""
        return {}, 0, 0

    def add_input(self, kept: Kept, event: RawRow) -> Kept:
        """Adds one event."""
        events, duplicates, cut = kept
        duplicates += self._add(events, event)
        full = len(events) >= 2 * self._cap
        return self._cut(events, duplicates, cut) if full else (events, duplicates, cut)

    def _add(self, events: dict[tuple[float, str], RawRow], event: RawRow) -> bool:
        values: Mapping[str, Any] = event.values  # type: ignore[assignment]
        key = (values[self._time], values[self._item])
        other = events.get(key)
        if other is None or event[:2] < other[:2]:
            events[key] = event
        return other is not None

    def _cut(self, events: dict[tuple[float, str], RawRow], duplicates: int, cut: int) -> Kept:
        ordered = sorted(events)[: self._cap]
        beyond = len(events) - len(ordered)
        return {key: events[key] for key in ordered}, duplicates, cut + beyond

    def merge_accumulators(self, accumulators: Iterable[Kept]) -> Kept:
        """Joins the events of several places."""
        events, duplicates, cut = self.create_accumulator()
        for others, more, beyond in accumulators:
            duplicates += more + sum(self._add(events, event) for event in others.values())
            events, duplicates, cut = self._cut(events, duplicates, cut + beyond)
        return events, duplicates, cut

    def extract_output(self, kept: Kept) -> Kept:
        """In the order of time."""
        return self._cut(*kept)


class UserEvents(CountingDoFn):
    """(user, `Kept`) -> a batch of the user's events, earliest first, the first with each item marked."""

    def __init__(self, design: Design):
        self._design = design

    def process(self, keyed: tuple[str, Kept]) -> Iterator[list[RawRow]]:
        """Makes one batch."""
        _, (events, duplicates, cut) = keyed
        if duplicates:
            self.tally["source", "events", "left out: duplicate"] += duplicates
        if cut:
            self.tally["source", "events", "left out: too many of one user"] += cut
        had: set[str] = set()
        batch = []
        for (_, item), event in events.items():
            batch.append(event._replace(values={**event.values, FIRST: item not in had}))  # type: ignore[dict-item]
            had.add(item)
        yield batch
