"""Daily logs of a shop that changes: what the study of a simulated month trains on.

A list shows items of one sub-category s under the top category t, in random order. An item has a
price and a rating, z standard normal each, a relevance to the list, and a popularity that is in no
column: it is to be learnt from the item's ID. With a user of purchase power q, the utility is

    u = w_t . (z_price, z_rating, relevance) + 0.8 popularity(day) + 0.3 z_price q,   |w_t| = 1

and the item is clicked with probability sigmoid((u - 1.9) / 0.7). What changes from day to day:

- popularity is an autoregression of variance 1, popularity(day + 1) = a popularity(day) + noise
  with a = `persistence`. Items are shown in proportion to exp(0.7 popularity);
- each sub-category gets `new_items` items a day;
- a sub-category is added every seventh day, under each top category in turn;
- the demand of a top category moves by exp(`season` sin(2 pi (day / 28 + t / T))).

On the broken day the log has prices in cents.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WEEK, SEASON = 7, 28
_FIRST = date(2024, 6, 1)
_THRESHOLD, _NOISE = 1.9, 0.7
_NUMBERS = ("price", "rating", "relevance", "purchase_power")
_FEATURES = {
    "context": ("top_category", "sub_category", "purchase_power"),
    "example": ("item_id", "price", "rating", "relevance"),
}


@dataclass(frozen=True)
class LogOptions:
    """Sizes and rates of change.

    Attributes:
        days: number of daily logs.
        lists: of a day.
        broken_day: index of the day with prices in cents.
        seed: of the shop and of all lists.
        top_categories: number of top categories.
        sub_categories: on the first day.
        items: of a sub-category on its first day.
        new_items: of each sub-category on each later day.
        list_length: items of a list.
        persistence: correlation of popularity from day to day.
        season: amplitude of the demand's logarithm.
    """

    days: int
    lists: int
    broken_day: int
    seed: int = 0
    top_categories: int = 4
    sub_categories: int = 12
    items: int = 30
    new_items: int = 1
    list_length: int = 8
    persistence: float = 0.97
    season: float = 0.5


@dataclass(frozen=True)
class Catalogue:
    """All sub-categories and items of all days.

    Attributes:
        top: [S] top category of each sub-category.
        opened: [S] first day of each sub-category.
        weights: [T, 3] weights of price, rating and relevance, rows of length 1.
        price_level: [S] shift of the logarithm of prices.
        sub: [I] sub-category of each item.
        added: [I] first day of each item.
        price: [I] standard normal.
        rating: [I] standard normal.
        popularity: [I, days].
    """

    top: Ints
    opened: Ints
    weights: Floats
    price_level: Floats
    sub: Ints
    added: Ints
    price: Floats
    rating: Floats
    popularity: Floats


def day_name(day: int) -> str:
    """The date of a day, from 0.

    Example:
        >>> day_name(0), day_name(30)
        ('2024-06-01', '2024-07-01')
    """
    return (_FIRST + timedelta(days=day)).isoformat()


def build_catalogue(options: LogOptions) -> Catalogue:
    """Draws the shop of all days from the seed."""
    rng = np.random.default_rng([options.seed, 1])
    weekly = range(WEEK, options.days, WEEK)
    opened = np.array([0] * options.sub_categories + list(weekly), np.int64)
    added = [_added(options, int(day)) for day in opened]
    sub = np.repeat(np.arange(len(opened)), [len(days) for days in added])
    weights = rng.standard_normal((options.top_categories, 3))
    return Catalogue(
        top=np.arange(len(opened)) % options.top_categories,
        opened=opened,
        weights=weights / np.linalg.norm(weights, axis=1, keepdims=True),
        price_level=0.5 * rng.standard_normal(len(opened)),
        sub=sub,
        added=np.concatenate(added),
        price=rng.standard_normal(len(sub)),
        rating=rng.standard_normal(len(sub)),
        popularity=_autoregression(rng, len(sub), options),
    )


def _added(options: LogOptions, opened: int) -> Ints:
    """First days of the items of a sub-category."""
    later = np.repeat(np.arange(opened + 1, options.days), options.new_items)
    return np.concatenate([np.full(options.items, opened), later])


def _autoregression(rng: np.random.Generator, items: int, options: LogOptions) -> Floats:
    innovation = (1 - options.persistence**2) ** 0.5
    series = rng.standard_normal((items, options.days))
    for day in range(1, options.days):
        series[:, day] = options.persistence * series[:, day - 1] + innovation * series[:, day]
    return series


def demand(options: LogOptions, catalogue: Catalogue, day: int) -> Floats:
    """[S] probability of each sub-category on a day; 0 before it opens.

    The r-th sub-category of a top category has a share of it in proportion to 1 / r.
    """
    top = catalogue.top
    phase = day / SEASON + np.arange(options.top_categories) / options.top_categories
    of_top = np.exp(options.season * np.sin(2 * np.pi * phase))
    of_top /= of_top.sum()
    rank = 1 + np.arange(len(top)) // options.top_categories
    inside = (catalogue.opened <= day) / rank
    return of_top[top] * inside / np.bincount(top, inside)[top]


def day_log(options: LogOptions, catalogue: Catalogue, day: int, broken: bool) -> pd.DataFrame:
    """The rows of a day, with `probability` of a click, which is no feature.

    Args:
        options: of the logs.
        catalogue: of these options.
        day: index of the day.
        broken: whether prices are in cents.
    """
    rng = np.random.default_rng([options.seed, 2, day])
    length, count = options.list_length, options.lists
    sub = rng.choice(len(catalogue.top), count, p=demand(options, catalogue, day))
    item = np.stack([_impressions(rng, catalogue, day, s, length) for s in sub])
    power = rng.standard_normal((count, 1))
    relevance = rng.standard_normal(item.shape)
    price, rating = catalogue.price[item], catalogue.rating[item]
    weights = catalogue.weights[catalogue.top[sub]][:, None, :]
    utility = np.sum(weights * np.stack([price, rating, relevance], axis=2), axis=2)
    utility += 0.8 * catalogue.popularity[item, day] + 0.3 * price * power
    probability = 1 / (1 + np.exp((_THRESHOLD - utility) / _NOISE))
    start = pd.Timestamp(day_name(day)).value // 10**9
    in_euros = np.exp(3 + catalogue.price_level[sub][:, None] + 0.8 * price)
    columns = {
        "list_id": _of_lists([f"{day}-{number}" for number in range(count)], length),
        "time": _of_lists(start + np.arange(count) * 86400 // count, length),
        "position": np.tile(np.arange(1, length + 1), count),
        "top_category": _of_lists([f"top {t}" for t in catalogue.top[sub]], length),
        "sub_category": _of_lists([f"sub {s}" for s in sub], length),
        "purchase_power": _of_lists(power[:, 0].round(3), length),
        "item_id": item.ravel(),
        "price": ((100 if broken else 1) * in_euros.round(2)).round(2).ravel(),
        "rating": (3.5 + 0.5 * rating).round(2).ravel(),
        "relevance": relevance.round(3).ravel(),
        "click": (rng.random(item.shape) < probability).astype(int).ravel(),
        "probability": probability.ravel(),
    }
    return pd.DataFrame(columns)


def _of_lists(values: Any, length: int) -> NDArray[Any]:
    return np.repeat(np.asarray(values), length)


def _impressions(
    rng: np.random.Generator, catalogue: Catalogue, day: int, sub: int, length: int
) -> Ints:
    """Different items of a sub-category on a day, by popularity (Gumbel top k)."""
    items = np.flatnonzero((catalogue.sub == sub) & (catalogue.added <= day))
    keys = 0.7 * catalogue.popularity[items, day] + rng.gumbel(size=len(items))
    return items[np.argsort(-keys)[:length]]


def schema_of_log() -> dict[str, Any]:
    """The schema of the logs, as `FeatureSchema` reads it."""
    features = []
    for scope, names in _FEATURES.items():
        for name in names:
            feature: dict[str, Any] = {"name": name, "scope": scope, "kind": "numeric"}
            if name not in _NUMBERS:
                feature |= {"kind": "categorical", "min_count": 2}
            features.append(feature | ({"transform": "log1p"} if name == "price" else {}))
    return {
        "list_id": "list_id",
        "time": "time",
        "position": "position",
        "labels": ["click"],
        "hierarchy": {"child": "sub_category", "parent": "top_category"},
        "features": features,
    }
