"""History features: counts, rates, means, recency and histories over strictly earlier events.

A feature looks at the events that share some columns with a row, such as earlier events of the same
item, or of the same user in the same category. With T the time of an event and t that of the row,
it covers the events with

    t - window <= T < t - delay

and nothing else: neither the event of the row itself nor another one of the same time, so that a
positive and a negative of one list are described by the same knowledge. The delay, 0 by default, is
for labels that become known later than the impression.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apache_beam as beam
from pydantic import BaseModel, ConfigDict, Field, model_validator

from experiments.datasets.interactions.joins import JoinHistory, row_time
from tfr_moe.beam.sources import (
    COUNTS,
    CountingDoFn,
    RawRow,
    RowKey,
    join_key,
)
from tfr_moe.elwc import RowError, is_missing, to_id, to_number
from tfr_moe.errors import UserError, validated
from tfr_moe.utils import read_yaml

_DAY = 86400.0


class HistoryFeature(BaseModel):
    """One history feature.

    Attributes:
        name: column that it makes.
        kind: `count`: number of events; `rate`: share of events whose `of` is above 0; `mean`: mean
            of `of`; `days_since`: days since the latest event; `history`: the latest `length`
            values of `of`, the latest last.
        by: columns that an event has in common with the row. Events are grouped by the first one,
            which should be an ID with many values (item, user, query).
        of: column to aggregate.
        where: column -> values; only events with one of the values count.
        window_days: length of the window; unlimited by default.
        delay_days: time after which an event is known, such as a purchase after the view.
        prior: of `rate` and `mean`: number of pseudo-events ...
        prior_mean: ... with this value, so that

                value = (sum of x_i + prior prior_mean) / (number of events + prior);

            the CTR of one view with a click is then not 1. With prior 0 and no event the value is
            missing.
        length: of a `history`.
        distinct: of a `history`: repeated values count once, as the latest.

    Example:
        >>> ctr = HistoryFeature(name="item_ctr", kind="rate", by=("item",), of="click", prior=20)
        >>> ctr.needs()
        ['item', 'click']
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    kind: Literal["count", "rate", "mean", "days_since", "history"]
    by: tuple[str, ...] = Field(min_length=1)
    of: str | None = None
    where: dict[str, tuple[str | float, ...]] = {}
    window_days: float | None = Field(None, gt=0)
    delay_days: float = Field(0.0, ge=0)
    prior: float = Field(0.0, ge=0)
    prior_mean: float = 0.0
    length: int = Field(20, ge=1, le=1000)
    distinct: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_column(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("by"), str):
            return {**data, "by": [data["by"]]}
        return data

    @model_validator(mode="after")
    def _check(self) -> HistoryFeature:
        if (self.of is None) != (self.kind in ("count", "days_since")):
            need = "needs" if self.of is None else "does not have"
            raise ValueError(f"kind {self.kind!r} {need} `of`")
        if self.by[0] in {*self.by[1:], self.of, *self.where}:
            raise ValueError(f"{self.by[0]!r}, the first column of `by`, can't be `of` or `where`")
        if {"prior", "prior_mean"} & self.model_fields_set and self.kind not in ("rate", "mean"):
            raise ValueError(f"prior does not apply to kind {self.kind!r}")
        if {"length", "distinct"} & self.model_fields_set and self.kind != "history":
            raise ValueError(f"length and distinct do not apply to kind {self.kind!r}")
        return self

    def needs(self) -> list[str]:
        """Returns the columns of an event that it reads."""
        return list(dict.fromkeys([*self.by, *([self.of] if self.of else []), *self.where]))


def load_features(path: str) -> list[HistoryFeature]:
    """Returns the features of a YAML or JSON file, which holds a list of them.

    Raises:
        UserError: naming the file and the invalid feature.
    """
    data = read_yaml(Path(path), "history_features")
    features = validated(list[HistoryFeature], data, f"history_features {path}")
    names = [feature.name for feature in features]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"history_features {path}: feature {twice[0]!r} occurs twice")
    return features


class Event(NamedTuple):
    """One event.

    Attributes:
        time: Unix seconds.
        key: orders events of the same time.
        values: of `History.event_columns`.
    """

    time: float
    key: RowKey
    values: tuple[Any, ...]


class _Series(NamedTuple):
    """The events of one sub-key in order of time, with running sums."""

    times: list[float]
    sums: list[float]
    values: list[str]


class History:
    """History features with the same first column in `by`; a `Lookup`.

    Args:
        features: the features.
    """

    def __init__(self, features: Sequence[HistoryFeature]):
        self.features = list(features)
        self.by = self.features[0].by[0]
        self.key: Sequence[str] = (self.by,)
        if any(feature.by[0] != self.by for feature in self.features):
            raise ValueError("features of one History must share the first column of `by`")
        needs = dict.fromkeys(column for f in self.features for column in f.needs())
        self.event_columns = [column for column in needs if column != self.by]
        by = dict.fromkeys(column for f in self.features for column in f.by[1:])
        self.row_columns = list(by)
        self.names = [feature.name for feature in self.features]

    def prepare(self, known: Iterable[Event]) -> list[dict[tuple[str, ...], _Series]]:
        """Returns for each feature its events in order of time, by the other columns of `by`."""
        ordered = sorted(known, key=lambda event: event[:2])
        return [self._series(feature, ordered) for feature in self.features]

    def _series(
        self, feature: HistoryFeature, events: list[Event]
    ) -> dict[tuple[str, ...], _Series]:
        index = {column: i for i, column in enumerate(self.event_columns)}
        rest = [index[column] for column in feature.by[1:]]
        wanted = [(index[c], {_id(c, value) for value in vs}) for c, vs in feature.where.items()]
        of = index.get(feature.of) if feature.of else None
        series_of: dict[tuple[str, ...], _Series] = {}
        for time, _, values in events:
            if any(_id("where", values[i]) not in allowed for i, allowed in wanted):
                continue
            if of is not None and is_missing(values[of]):
                continue
            key = tuple([_id("by", values[i]) for i in rest])
            series = series_of.get(key)
            if series is None:
                series = series_of[key] = _Series([], [], [])
            series.times.append(time)
            if feature.kind == "history":
                series.values.append(_id(feature.of or "", values[of]))  # type: ignore[index]
            elif of is not None:
                number = to_number(feature.of or "", values[of])
                series.sums.append(float(number > 0) if feature.kind == "rate" else number)
        return {
            key: series._replace(sums=[0.0, *accumulate(series.sums)])
            for key, series in series_of.items()
        }

    def values(
        self, prepared: list[dict[tuple[str, ...], _Series]], time: float, row: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Returns the features of one row.

        Args:
            prepared: of the key of the row, from `prepare`.
            time: of the row.
            row: its values of `row_columns`.
        """
        ids = dict(zip(self.row_columns, (_id("by", value) for value in row), strict=True))
        return tuple(
            _value(feature, series.get(tuple([ids[c] for c in feature.by[1:]])), time)
            for feature, series in zip(self.features, prepared, strict=True)
        )


def _id(column: str, value: Any) -> str:
    try:
        return "" if is_missing(value) else to_id(column, value)
    except RowError:
        return ""  # the parser decides whether such a row is valid


def _value(feature: HistoryFeature, series: _Series | None, time: float) -> Any:
    low = high = 0
    if series is not None:
        high = bisect_left(series.times, time - feature.delay_days * _DAY)
        if feature.window_days is not None:
            low = bisect_left(series.times, time - feature.window_days * _DAY, 0, high)
    if feature.kind == "count":
        return high - low
    if feature.kind == "history":
        return _history(feature, series.values[low:high]) if series is not None else []
    if feature.kind == "days_since":
        return None if series is None or high == low else (time - series.times[high - 1]) / _DAY
    total = high - low + feature.prior
    if not total:
        return None
    seen = series.sums[high] - series.sums[low] if series is not None else 0.0
    return (seen + feature.prior * feature.prior_mean) / total


def _history(feature: HistoryFeature, values: list[str]) -> list[str]:
    if feature.distinct:
        values = list(dict.fromkeys(reversed(values)))[::-1]
    return values[-feature.length :]


class HistoryEvents(CountingDoFn):
    """Batches of rows -> (key, `Event`) for one `History`.

    Rows without key, time or a required number are no events; they are counted, and whether they
    are valid rows is up to the schema.
    """

    def __init__(self, history: History, time: str):
        self._history = history
        self._time = time
        rates = [f for f in history.features if f.kind in ("rate", "mean")]
        self._numbers = [feature.of for feature in rates if feature.of]

    def process(self, batch: list[RawRow]) -> Iterator[tuple[str, Event]]:
        """Makes the events of a batch."""
        columns = self._history.event_columns
        for row in batch:
            when = row_time(row, self._time)
            key = None if when is None else join_key(row, self._history.key)
            if when is None or key is None or not self._has_numbers(row.values):
                self.tally["noted", f"events without time, {self._history.by} or number"] += 1
                continue
            get = row.values.get
            yield key, Event(when, row.key, tuple([get(column) for column in columns]))

    def _has_numbers(self, values: Mapping[str, Any]) -> bool:
        try:
            for column in self._numbers:
                if not is_missing(values.get(column)):
                    to_number(column, values[column])
        except RowError:
            return False
        return True


def add_history(
    batches: beam.PCollection,
    events: beam.PCollection,
    features: Iterable[HistoryFeature],
    time: str,
) -> tuple[beam.PCollection, list[beam.PCollection]]:
    """Adds history features to batches of rows.

    Features are grouped by the first column of their `by`; later groups may read columns that
    earlier ones made.

    Args:
        batches: of the rows to describe.
        events: batches of the rows to look back at; may be the same collection.
        features: the features.
        time: column with the time, in both.

    Returns:
        The batches, and collections of counts.
    """
    counts = []
    for history in histories_of(features):
        write = beam.ParDo(HistoryEvents(history, time)).with_outputs(COUNTS, main="events")
        made = events | f"Events by {history.by}" >> write
        counts.append(made[COUNTS])
        join = f"History of {history.by}" >> JoinHistory(history, time)
        batches = (batches, made.events) | join
    return batches, counts


def histories_of(features: Iterable[HistoryFeature]) -> list[History]:
    """Returns the features grouped by the first column of their `by`."""
    groups: dict[str, list[HistoryFeature]] = {}
    for feature in features:
        groups.setdefault(feature.by[0], []).append(feature)
    return [History(group) for group in groups.values()]
