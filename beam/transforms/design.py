"""How lists are made of interactions: what every step of it has to know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfr_moe.encoding import is_missing

from ..sources import RawRow
from .past import PastFeature

FIRST = "first event of the user with the item"
"""The column in which an event says so."""
_HOUR = 3600.0


class Design(NamedTuple):
    """How lists are made of interactions.

    Attributes:
        user, item, time: columns of the events.
        levels: columns of the items with the category, top first.
        level: negatives share so many of them with the positive.
        negatives: most negatives of a list.
        min_negatives: lists with fewer are left out.
        exponent: a negative is drawn with probability ~ (earlier events)^exponent.
        repeats: whether an item that the user had before can be the positive; then it can be a
            negative as well.
        refresh_hours: length of the periods in which counts for the draw are brought up to date.
        candidates_share: items whose first event is not within this share of the events, by time,
            are no candidates.
        max_user_events: of each user so many of the earliest events are kept.
        past: features of the past.
        event_columns: columns of the events to carry along.
        item_columns: columns of the items to carry along, `levels` among them.
        list_id, label: columns to make.
        seed: of the draws.
    """

    user: str
    item: str
    time: str
    levels: tuple[str, ...]
    level: int
    negatives: int
    min_negatives: int
    exponent: float
    repeats: bool
    refresh_hours: float
    candidates_share: float
    max_user_events: int
    past: tuple[PastFeature, ...]
    event_columns: tuple[str, ...]
    item_columns: tuple[str, ...]
    list_id: str
    label: str
    seed: int

    def notes(self) -> dict[str, Any]:
        """What the manifest says about the negatives."""
        spared = "an item of the same user and moment" if self.repeats else "an item of the user"
        return {
            "negatives": "sampled: these items were not shown to anybody",
            "negatives_per_list": self.negatives,
            "drawn": f"without replacement, probability ~ (earlier events)^{self.exponent:g}, "
            f"brought up to date every {self.refresh_hours:g} hours",
            "same_category": list(self.levels[: self.level]),
            "never": spared,
            "candidates": "items with an event before the period, the first one within the first "
            f"{self.candidates_share:g} of the events; the positive too",
            "seed": self.seed,
        }

    def period(self, time: float) -> int:
        """The period of a time."""
        return math.floor(time / (self.refresh_hours * _HOUR))


def category_of(design: Design, values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names that the items of a list share, None if one is missing."""
    names = [values.get(column) for column in design.levels[: design.level]]
    return None if any(is_missing(name) for name in names) else tuple(map(str, names))


def list_name(design: Design, event: RawRow) -> str:
    """The id of the list of an event."""
    values: Mapping[str, Any] = event.values  # type: ignore[assignment]
    time = f"{values[design.time]:f}".rstrip("0").rstrip(".")
    return f"{values[design.user]}-{time}-{values[design.item]}"
