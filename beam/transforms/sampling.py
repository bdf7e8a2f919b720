"""Events -> lists of one positive and the negatives that were drawn for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..sources import RawRow
from .counting import CountingDoFn
from .design import FIRST, Design, category_of, list_name
from .negatives import CandidateTable, candidate_table, candidates, draw
from .splits import list_hash


class Positives(CountingDoFn):
    """Batches of events with their items' columns -> ((category, period), event) that may be a list."""

    def __init__(self, design: Design):
        self._design = design

    def process(self, batch: list[RawRow]) -> Iterator[tuple[tuple[Any, ...], RawRow]]:
        """Sorts out what can't be a list."""
        design = self._design
        for event in batch:
            values: Mapping[str, Any] = event.values  # type: ignore[assignment]
            category = category_of(design, values)
            if category is None:
                self.tally["source", "events", "left out: item without a category"] += 1
            elif not values[FIRST] and not design.repeats:
                self.tally["source", "events", "left out: the user had the item before"] += 1
            else:
                yield (*category, str(design.period(values[design.time]))), event


def seen_events(
    batch: list[RawRow], design: Design
) -> Iterator[tuple[tuple[tuple[str, ...], str], tuple[float, int]]]:
    """Events -> ((category, item), (time, period))."""
    for event in batch:
        values: Mapping[str, Any] = event.values  # type: ignore[assignment]
        category = category_of(design, values)
        if category is not None:
            time = values[design.time]
            yield (category, values[design.item]), (time, design.period(time))


class Draw(CountingDoFn):
    """((category, period), events) -> (user, (event, drawn items)); more are drawn than are needed,
    since the user's own have yet to be taken out."""

    def __init__(self, design: Design):
        self._design = design

    def process(
        self, keyed: tuple[tuple[str, ...], Iterable[RawRow]], tables: dict[Any, CandidateTable]
    ) -> Iterator[tuple[str, tuple[RawRow, list[str]]]]:
        """Draws for all events of one category and period."""
        design = self._design
        (*category, period), events = keyed
        table = tables.get(tuple(category), candidate_table((), 0.0))
        given = candidates(table, int(period), design.exponent)
        known = set(given.items)
        for event in events:
            values: Mapping[str, Any] = event.values  # type: ignore[assignment]
            if values[design.item] not in known:
                self.tally["source", "events", "left out: item not seen before"] += 1
                continue
            drawn = draw(given, 2 * design.negatives + 10, list_name(design, event), design.seed)
            yield values[design.user], (event, drawn)


class MakeLists(CountingDoFn):
    """(user, drawn lists and the user's items) -> a batch of rows for each list.

    Items stand in an order that the seed and the list decide: the positive has no place of its own.
    """

    def __init__(self, design: Design):
        self._design = design

    def process(self, met: tuple[str, dict[str, Iterable[Any]]]) -> Iterator[list[RawRow]]:
        """Makes the lists of one user."""
        design = self._design
        _, sides = met
        own = [entry for entries in sides["own"] for entry in entries]
        had = {item for item, _ in own}
        moments: dict[float, set[str]] = {}
        for item, time in own:
            moments.setdefault(time, set()).add(item)
        for event, drawn in sides["drawn"]:
            spared = moments[event.values[design.time]] if design.repeats else had
            negatives = [item for item in drawn if item not in spared][: design.negatives]
            if len(negatives) < design.min_negatives:
                outcome = f"left out: fewer than {design.min_negatives} negatives"
                self.tally["source", "events", outcome] += 1
                continue
            self.tally["source", "events", "became a list"] += 1
            yield self._rows(event, negatives)

    def _rows(self, event: RawRow, negatives: list[str]) -> list[RawRow]:
        design = self._design
        values: dict[str, Any] = {**event.values}  # type: ignore[dict-item]
        name = list_name(design, event)
        positive = values[design.item]
        shared = {c: values[c] for c in (*design.event_columns, design.user, design.time)}
        order = sorted(
            [positive, *negatives],
            key=lambda item: list_hash(f"{name} {item}", design.seed, "order"),
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
