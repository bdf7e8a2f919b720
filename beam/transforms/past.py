"""Features of the past: counts, rates, means, recency and histories over strictly earlier events.

A feature looks at the events that share some columns with a row, such as all earlier events of the
same item, or of the same user in the same category. Let T be the times of those events and t that of
the row. The feature sees the events with

    t - window <= T < t - delay

and nothing else: neither the row's own event nor another one of the same moment. So a positive and a
negative at the same time are described by the same knowledge. The delay, 0 by default, is for labels
that become known later than the row was shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from tfr_moe.encoding import RowError, is_missing, to_id, to_number
from tfr_moe.errors import UserError, describe

_DAY = 86400.0


class PastFeature(BaseModel):
    """One feature of the past.

    Attributes:
        name: the column that it makes.
        kind: `count`: number of events; `rate`: share of events whose `of` is above 0; `mean`: mean of
            `of`; `days_since`: days since the latest event; `history`: the latest `length` values of
            `of`, the latest last.
        by: the columns that an event has in common with the row, the first one of them an id with many
            values (item, user, query): events are brought together by it.
        of: the column that is looked at.
        where: column -> values; only events with one of them count.
        window_days: how far back it looks; everything by default.
        delay_days: an event is known only so long after its time, such as a purchase after the view.
        prior: of `rate` and `mean`: so many imagined events are added ...
        prior_mean: ... of this value, so that

                value = (sum of x_i + prior prior_mean) / (number of events + prior);

            a CTR of one view and one click is then not 1. With prior 0 and no event there is no value.
        length: of a `history`.
        distinct: of a `history`: a value that comes again counts only as its latest.

    Example:
        >>> ctr = PastFeature(name="item_ctr", kind="rate", by=("item",), of="click", prior=20)
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
    def _check(self) -> PastFeature:
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
        """The columns of an event that it reads."""
        return list(dict.fromkeys([*self.by, *([self.of] if self.of else []), *self.where]))


def load_features(path: str) -> list[PastFeature]:
    """The features of a YAML or JSON file, a list of them.

    Raises:
        UserError: naming the file and the feature at fault.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"past {path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"past {path}: not valid YAML ({' '.join(str(error).split())})") from error
    try:
        features = TypeAdapter(list[PastFeature]).validate_python(data)
    except ValidationError as error:
        raise UserError(f"past {path}: {describe(error, data)}") from error
    names = [feature.name for feature in features]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"past {path}: feature {twice[0]!r} stands there twice")
    return features


class Event(NamedTuple):
    """Something that happened.

    Attributes:
        time: Unix seconds.
        place: (file, line, order), by which events of one moment are ordered.
        values: what `Past` was told to read of it, in its order.
    """

    time: float
    place: tuple[int, int, int]
    values: tuple[Any, ...]


class _Line(NamedTuple):
    """The events of one sub-key in the order of time."""

    times: list[float]
    sums: list[float]
    values: list[str]


class Past:
    """The features of the past of rows that share the first column of `by`.

    Args:
        features: all with the same first column in `by`.
    """

    def __init__(self, features: Sequence[PastFeature]):
        self.features = list(features)
        self.key = self.features[0].by[0]
        if any(feature.by[0] != self.key for feature in self.features):
            raise ValueError("features of one Past must have the first column of `by` in common")
        needs = dict.fromkeys(column for f in self.features for column in f.needs())
        self.event_columns = [column for column in needs if column != self.key]
        by = dict.fromkeys(column for f in self.features for column in f.by[1:])
        self.row_columns = list(by)
        self.names = [feature.name for feature in self.features]

    def lines(self, events: Iterable[Event]) -> list[dict[tuple[str, ...], _Line]]:
        """For each feature its events in the order of time, by the rest of its `by`."""
        ordered = sorted(events, key=lambda event: event[:2])
        return [self._lines(feature, ordered) for feature in self.features]

    def _lines(self, feature: PastFeature, events: list[Event]) -> dict[tuple[str, ...], _Line]:
        at = {column: i for i, column in enumerate(self.event_columns)}
        rest = [at[column] for column in feature.by[1:]]
        wanted = [(at[c], {_id(c, value) for value in vs}) for c, vs in feature.where.items()]
        of = at.get(feature.of) if feature.of else None
        found: dict[tuple[str, ...], _Line] = {}
        for time, _, values in events:
            if any(_id("where", values[i]) not in allowed for i, allowed in wanted):
                continue
            if of is not None and is_missing(values[of]):
                continue
            key = tuple([_id("by", values[i]) for i in rest])
            line = found.get(key)
            if line is None:
                line = found[key] = _Line([], [], [])
            line.times.append(time)
            if feature.kind == "history":
                line.values.append(_id(feature.of or "", values[of]))  # type: ignore[index]
            elif of is not None:
                number = to_number(feature.of or "", values[of])
                line.sums.append(float(number > 0) if feature.kind == "rate" else number)
        return {
            key: line._replace(sums=[0.0, *accumulate(line.sums)]) for key, line in found.items()
        }

    def values(
        self, lines: list[dict[tuple[str, ...], _Line]], time: float, row: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The features of one row.

        Args:
            lines: of the row's key, from `lines`.
            time: of the row.
            row: its values of `row_columns`.
        """
        ids = dict(zip(self.row_columns, (_id("by", value) for value in row), strict=True))
        return tuple(
            _value(feature, line.get(tuple([ids[c] for c in feature.by[1:]])), time)
            for feature, line in zip(self.features, lines, strict=True)
        )


def _id(column: str, value: Any) -> str:
    try:
        return "" if is_missing(value) else to_id(column, value)
    except RowError:
        return ""  # Whether such a row is taken is for the parser to say.


def is_numeric(feature: PastFeature) -> bool:
    """Whether `of` must be a number."""
    return feature.kind in ("rate", "mean")


def _value(feature: PastFeature, line: _Line | None, time: float) -> Any:
    low = high = 0
    if line is not None:
        high = bisect_left(line.times, time - feature.delay_days * _DAY)
        if feature.window_days is not None:
            low = bisect_left(line.times, time - feature.window_days * _DAY, 0, high)
    if feature.kind == "count":
        return high - low
    if feature.kind == "history":
        return _history(feature, line.values[low:high]) if line is not None else []
    if feature.kind == "days_since":
        return None if line is None or high == low else (time - line.times[high - 1]) / _DAY
    total = high - low + feature.prior
    if not total:
        return None
    seen = line.sums[high] - line.sums[low] if line is not None else 0.0
    return (seen + feature.prior * feature.prior_mean) / total


def _history(feature: PastFeature, values: list[str]) -> list[str]:
    if feature.distinct:
        values = list(dict.fromkeys(reversed(values)))[::-1]
    return values[-feature.length :]
