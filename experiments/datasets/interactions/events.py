"""Interactions -> the events of each user, each once, in order of time; the sampling design."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from pydantic import Field, model_validator

from experiments.datasets.interactions.history_features import HistoryFeature
from tfr_moe.beam.sources import REJECTS, CountingDoFn, RawRow, SourceOptions
from tfr_moe.elwc import RowError, is_missing, to_id, to_time

FIRST = "first event of the user with the item"
"""Name of the column that marks such events."""
_HOUR = 3600.0


class SamplingOptions(SourceOptions):
    """Options of the draw of negatives, for all sources without impressions."""

    level: int = Field(
        1,
        ge=1,
        description="number of category levels, from the top, that a negative shares with the "
        "positive; context features of deeper levels would reveal the positive and are rejected",
    )
    negatives: int = Field(20, ge=1, le=500, description="maximum number of negatives per list")
    min_negatives: int = Field(
        1, ge=1, description="lists with fewer negatives are dropped and counted"
    )
    exponent: float = Field(
        0.75,
        ge=0,
        le=2,
        description="the probability of a negative is proportional to (earlier events)^exponent; "
        "0: uniform",
    )
    repeats: bool = Field(
        False,
        description="whether an item that the user had before can be the positive. If so, such "
        "items can be negatives as well (or 'had it before' would reveal the positive), but none "
        "of the same time; if not, no item that the user has at any time is a negative",
    )
    refresh_hours: float = Field(
        24.0, gt=0, description="hours after which the counts of the draw are updated"
    )
    candidates_share: float = Field(
        0.7,
        gt=0,
        le=1,
        description="items whose first event is not within this fraction of all events, by time, "
        "are in no list; at most the training fraction, or new items can be recognised as such",
    )
    seed: int = Field(0, ge=0, description="seed of the draw; by default that of the build")

    @model_validator(mode="after")
    def _check(self) -> SamplingOptions:
        if self.min_negatives > self.negatives:
            raise ValueError(f"min_negatives is {self.min_negatives}, negatives {self.negatives}")
        return self


class SamplingDesign(NamedTuple):
    """How lists are made of interactions.

    Attributes:
        options: of the draw.
        user, item, time: columns of the events.
        levels: columns of the items with the category, top first.
        history: history features.
        event_columns: columns of the events to keep.
        item_columns: columns of the items to keep, `levels` among them.
        list_id, label: columns to make.
    """

    options: SamplingOptions
    user: str
    item: str
    time: str
    levels: tuple[str, ...]
    history: tuple[HistoryFeature, ...]
    event_columns: tuple[str, ...]
    item_columns: tuple[str, ...]
    list_id: str
    label: str

    def notes(self) -> dict[str, Any]:
        """Returns what the manifest says about the negatives."""
        options = self.options
        excluded = "an item of the same user and time" if options.repeats else "an item of the user"
        return {
            "negatives": "sampled: these items were not shown to the user",
            "negatives_per_list": options.negatives,
            "drawn": f"without replacement, probability ~ (earlier events)^{options.exponent:g}, "
            f"updated every {options.refresh_hours:g} hours",
            "same_category": list(self.levels[: options.level]),
            "never": excluded,
            "candidates": "items with an event before the period, the first one within the first "
            f"{options.candidates_share:g} of the events; the positive too",
            "seed": options.seed,
        }

    def category(self, values: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Returns the category names that the items of a list share, None if one is missing."""
        names = [values.get(column) for column in self.levels[: self.options.level]]
        return None if any(is_missing(name) for name in names) else tuple(map(str, names))

    def list_name(self, values: Mapping[str, Any]) -> str:
        """Returns the ID of the list of an event."""
        time = f"{values[self.time]:f}".rstrip("0").rstrip(".")
        return f"{values[self.user]}-{time}-{values[self.item]}"

    def period(self, time: float) -> int:
        """Returns the period of a time."""
        return math.floor(time / (self.options.refresh_hours * _HOUR))


class ParseEvents(CountingDoFn):
    """Batches of rows -> (user, event as a `RawRow` with typed user, item and time)."""

    def __init__(self, design: SamplingDesign):
        self._design = design

    def process(self, batch: list[RawRow]) -> Iterator[Any]:
        """Parses a batch; rows without user, item or time go to the rejects."""
        self.tally["source", "events", "read"] += len(batch)
        for row in batch:
            reason = row.error
            if reason is None:
                try:
                    event = self._values(row.values)
                except RowError as error:
                    reason = str(error)
            if reason is None:
                yield event[self._design.user], row._replace(values=event)
            else:
                self.tally["source", "events", "rejected"] += 1
                yield beam.pvalue.TaggedOutput(REJECTS, row.reject(reason))

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        design = self._design
        for column in (design.user, design.item, design.time):
            if is_missing(values.get(column)):
                raise RowError(f"column {column!r}: a value is required")
        event = {column: values.get(column) for column in design.event_columns}
        event[design.user] = to_id(design.user, values[design.user])
        event[design.item] = to_id(design.item, values[design.item])
        event[design.time] = to_time(design.time, values[design.time])
        return event


class UserEvents(CountingDoFn):
    """(user, events) -> a batch of the events in order of time, each once.

    Of events of the same item and time the first one in the files is kept. The first event of the
    user with an item is marked.
    """

    def __init__(self, design: SamplingDesign):
        self._item, self._time = design.item, design.time

    def process(self, keyed: tuple[str, Iterable[RawRow]]) -> Iterator[list[RawRow]]:
        """Makes the batch of one user."""
        _, rows = keyed
        events: dict[tuple[float, str], RawRow] = {}
        for event in rows:
            values = event.values
            key = (values[self._time], values[self._item])
            if key in events:
                self.tally["source", "events", "left out: duplicate"] += 1
                events[key] = min(event, events[key], key=lambda row: row.key)
            else:
                events[key] = event
        seen: set[str] = set()
        batch = []
        for (_, item), event in sorted(events.items()):
            batch.append(event._replace(values={**event.values, FIRST: item not in seen}))
            seen.add(item)
        yield batch
