"""Groups of items: by an id, by bands of a number, by their position in the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

import numpy as np

from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK, Feature, FeatureSchema

Features: TypeAlias = Mapping[str, Array]

MAX_IDS = 12
NUM_BANDS = 7
OTHERS = "(others)"


class Grouping(Protocol):
    """Assigns the items of a batch to groups; `labels` are the names of the groups."""

    labels: list[str]

    def __call__(self, features: Features) -> Array:
        """Numbers of the groups, int [B, L]; -1 for items of no group."""


class Positions:
    """Groups items by their position in the list.

    Args:
        limit: number of positions; items after them are in no group.

    Example:
        >>> positions = Positions(2)
        >>> positions({MASK: np.array([[True, False, True, True]])}).tolist(), positions.labels
        ([[0, -1, 1, -1]], ['1', '2'])
    """

    def __init__(self, limit: int):
        self.labels = [str(position + 1) for position in range(limit)]

    def __call__(self, features: Features) -> Array:
        """See `Grouping`."""
        mask = features[MASK]
        positions = np.cumsum(mask, axis=1) - 1
        return np.where(mask & (positions < len(self.labels)), positions, -1)


class Ids:
    """Groups items by the most frequent ids of a feature, with one group for all others.

    Args:
        feature: the feature.
        sample: batches in which the ids are counted.
    """

    def __init__(self, feature: Feature, sample: Iterable[Features]):
        self._name = feature.name
        counted: Counter[str] = Counter()
        for features in sample:
            counted.update(self._ids(features)[features[MASK]].tolist())
        common = [name for name, _ in counted.most_common(MAX_IDS)]
        self.labels = common + ([OTHERS] if len(counted) > MAX_IDS else [])
        self._groups = {name: group for group, name in enumerate(common)}

    def _ids(self, features: Features) -> Array:
        decode = np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])
        return decode(features[self._name][..., 0])

    def __call__(self, features: Features) -> Array:
        """See `Grouping`; ids outside the sample belong to the others, if there are any."""
        rest = len(self._groups) if OTHERS in self.labels else -1
        group_of = np.vectorize(lambda name: self._groups.get(name, rest), otypes=[np.int64])
        return np.where(features[MASK], group_of(self._ids(features)), -1)


class Bands:
    """Groups items by bands of a numeric feature, with about as many items each.

    Args:
        schema: says in which column the feature is.
        feature: the feature, of width 1.
        sample: batches whose quantiles are the bounds of the bands.
    """

    def __init__(self, schema: FeatureSchema, feature: Feature, sample: Iterable[Features]):
        self._name, self._part = schema.stored_at(feature.name)
        values = np.concatenate([self._values(f)[f[MASK]] for f in sample])
        values = values[~np.isnan(values)]
        shares = np.linspace(0, 1, NUM_BANDS + 1)[1:-1]
        self._bounds = np.unique(np.quantile(values, shares)) if len(values) else np.zeros(0)
        shown = [f"{bound:.4g}" for bound in self._bounds]
        self.labels = [
            f"{low} to {high}" for low, high in zip(["", *shown], [*shown, ""], strict=True)
        ]

    def _values(self, features: Features) -> Array:
        return features[self._name][..., self._part][..., 0]

    def __call__(self, features: Features) -> Array:
        """See `Grouping`; a value on a bound is in the band above it, a missing one in none."""
        values = self._values(features)
        bands = np.searchsorted(self._bounds, values, side="right")
        return np.where(features[MASK] & ~np.isnan(values), bands, -1)


def grouping_of(schema: FeatureSchema, name: str, sample: Iterable[Features]) -> Grouping:
    """The grouping of items by a feature.

    Args:
        schema: of the data.
        name: an id or a number of the items.
        sample: batches from which ids or bounds are taken.

    Raises:
        UserError: for any other name; the message lists the available features.
    """
    usable = [
        feature
        for feature in schema.select("example", "categorical", "numeric")
        if feature.width == 1
    ]
    for feature in usable:
        if feature.name == name:
            numeric = feature.kind == "numeric"
            return Bands(schema, feature, sample) if numeric else Ids(feature, sample)
    known = ", ".join(feature.name for feature in usable) or "none"
    raise UserError(f"by: {name!r} is not an id or number of the items; available: {known}")
