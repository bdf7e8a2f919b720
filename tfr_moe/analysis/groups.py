"""Items in groups: by an id, by bands of a number, by their place in the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema

Array: TypeAlias = NDArray[Any]
Features: TypeAlias = Mapping[str, Array]

MAX_IDS = 12
NUM_BANDS = 7
OTHERS = "(others)"


class Grouping(Protocol):
    """Puts the items of a batch into groups; `labels` are the groups' names."""

    labels: list[str]

    def __call__(self, features: Features) -> Array:
        """Numbers of the groups, int [B, L]; -1 for items of no group."""


class Places:
    """The place in the list.

    Args:
        limit: places after this one are of no group.

    Example:
        >>> places = Places(2)
        >>> places({MASK: np.array([[True, False, True, True]])}).tolist(), places.labels
        ([[0, -1, 1, -1]], ['1', '2'])
    """

    def __init__(self, limit: int):
        self.labels = [str(place + 1) for place in range(limit)]

    def __call__(self, features: Features) -> Array:
        """See `Grouping`."""
        mask = features[MASK]
        places = np.cumsum(mask, axis=1) - 1
        return np.where(mask & (places < len(self.labels)), places, -1)


class Ids:
    """The most frequent ids of a categorical feature, and one group for all others.

    Args:
        feature: the feature.
        sample: batches in which ids are counted.
    """

    def __init__(self, feature: Feature, sample: Iterable[Features]):
        self._name = feature.name
        counted: Counter[str] = Counter()
        for features in sample:
            counted.update(self._ids(features)[features[MASK]].tolist())
        common = [name for name, _ in counted.most_common(MAX_IDS)]
        self.labels = common + ([OTHERS] if len(counted) > MAX_IDS else [])
        self._places = {name: place for place, name in enumerate(common)}

    def _ids(self, features: Features) -> Array:
        decode = np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])
        return decode(features[self._name][..., 0])

    def __call__(self, features: Features) -> Array:
        """See `Grouping`; an id that the sample did not have is among the others, where there are any."""
        rest = len(self._places) if OTHERS in self.labels else -1
        find = np.vectorize(lambda name: self._places.get(name, rest), otypes=[np.int64])
        return np.where(features[MASK], find(self._ids(features)), -1)


class Bands:
    """Bands of a numeric feature with about as many items each.

    Args:
        schema: says where the feature stands.
        feature: the feature, of width 1.
        sample: batches whose quantiles are the bands' bounds.
    """

    def __init__(self, schema: FeatureSchema, feature: Feature, sample: Iterable[Features]):
        self._name = feature.name
        self._column = None
        if schema.packed:
            self._column = schema.packed_columns("example").index(feature.name)
        values = np.concatenate([self._values(f)[f[MASK]] for f in sample])
        shares = np.linspace(0, 1, NUM_BANDS + 1)[1:-1]
        self._bounds = np.unique(np.quantile(values, shares)) if len(values) else np.zeros(0)
        shown = [f"{bound:.4g}" for bound in self._bounds]
        self.labels = [
            f"{low} to {high}" for low, high in zip(["", *shown], [*shown, ""], strict=True)
        ]

    def _values(self, features: Features) -> Array:
        if self._column is None:
            return features[self._name][..., 0]
        return features[PACKED["example"]][..., self._column]

    def __call__(self, features: Features) -> Array:
        """See `Grouping`; a value on a bound is in the band above."""
        bands = np.searchsorted(self._bounds, self._values(features), side="right")
        return np.where(features[MASK], bands, -1)


def grouping_of(schema: FeatureSchema, name: str, sample: Iterable[Features]) -> Grouping:
    """How items are grouped by a feature.

    Args:
        schema: of the data.
        name: an id or a number of the items.
        sample: batches to take ids or bounds from.

    Raises:
        UserError: for anything else, with the features that there are.
    """
    fit = [
        feature
        for feature in schema.select("example", "categorical", "numeric")
        if feature.width == 1
    ]
    for feature in fit:
        if feature.name == name:
            numeric = feature.kind == "numeric"
            return Bands(schema, feature, sample) if numeric else Ids(feature, sample)
    known = ", ".join(feature.name for feature in fit) or "none"
    raise UserError(f"--by {name!r}: is no id or number of the items; there are: {known}")
