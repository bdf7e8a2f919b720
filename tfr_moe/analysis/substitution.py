"""Scores of items with features of other items, and shares of features in a difference of scores.

What the score changes by, when one feature after the other is replaced, adds up to the difference
of two items; the mean over orders is the Shapley value with the other item as the baseline
(Sundararajan and Najmi 2020, https://arxiv.org/abs/1908.08474). It needs nothing but scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tfr_moe.metrics.per_list import Array, Bools, Floats
from tfr_moe.schema import MASK, FeatureSchema

Ints = NDArray[np.int64]
Score = Callable[[dict[str, Array]], Floats]
"""Features with the mask [B, L] -> [B, L, V]: the score, then the terms that it is the sum of."""

MAX_ORDERS = 32
_CHUNK = 1 << 13  # items scored at once
_TOLERANCE = 1e-4  # of scores in float32 that are computed in other shapes


class ShapleyValues:
    r"""Mean change of a value over orders in which features are replaced.

    $$ \phi_j = \frac{1}{R} \sum_{r=1}^{R} v(S_{rj}) - v(S_{rj} \cup \{j\}) $$

    with S_rj the features before j in order r. Up to four features are replaced in all orders. More
    are replaced in random ones, each with its reverse: this is exact where no more than two
    features interact. `replaced`, bool [T, m], has the sets of features whose values are needed.
    """

    def __init__(self, count: int, max_orders: int = MAX_ORDERS):
        if count <= 4:
            orders = np.array(list(itertools.permutations(range(count))), np.int64)
        else:
            once = np.tile(np.arange(count), (max_orders // 2, 1))
            random = np.random.default_rng(count).permuted(once, axis=1)
            orders = np.concatenate([random, random[:, ::-1]])
        self._ranks = np.argsort(orders, axis=1)
        sets = self._ranks[:, np.newaxis, :] < np.arange(count + 1)[:, np.newaxis]
        self.replaced: Bools
        rows = sets.reshape(len(orders) * (count + 1), count)
        self.replaced, index = np.unique(rows, axis=0, return_inverse=True)
        self._index = index.reshape(sets.shape[:2])

    def __call__(self, values: Floats) -> Floats:
        """Values [T, V] of `replaced` -> [m, V], which add up to v(none) - v(all)."""
        changes = -np.diff(values[self._index], axis=1)
        return np.take_along_axis(changes, self._ranks[..., np.newaxis], axis=1).mean(axis=0)


class Substitutions:
    """Scores the items of one list, parsed without padding, with features of other items.

    `values`, [L, V], are those of the items as they are. `pointwise` says that the score of an item
    does not depend on the other items; otherwise an item is scored in its list.
    """

    def __init__(self, score: Score, schema: FeatureSchema, features: Mapping[str, Array]):
        self._score = score
        self.names = [feature.name for feature in schema.select("example")]
        self._at = {name: schema.stored_at(name) for name in self.names}
        stored = {tensor for tensor, _ in self._at.values()}
        self._context = {n: v for n, v in features.items() if n not in stored and n != MASK}
        self._items = {name: features[name][0] for name in sorted(stored)}
        rows = np.arange(len(features[MASK][0]))
        self.values = self._scored(self._items, rows[np.newaxis])[0]
        alone = self._scored(self._items, rows[:, np.newaxis])[:, 0, 0]
        tolerance = _TOLERANCE * max(1.0, float(np.abs(alone).max()))
        self.pointwise = bool(np.abs(alone - self.values[:, 0]).max() <= tolerance)

    def value(self, item: int, name: str) -> Array:
        """The stored value of a feature of an item, [width]."""
        tensor, part = self._at[name]
        return self._items[tensor][item, ..., part]

    def differing(self, one: int, other: int) -> list[str]:
        """The features in which two items differ; missing numbers are equal."""
        values = ((n, self.value(one, n), self.value(other, n)) for n in self.names)
        return [n for n, a, b in values if not ((a == b) | ((a != a) & (b != b))).all()]

    def add(self, item: int, name: str, value: Array) -> int:
        """Adds an item from which features can be taken: another one with a value replaced."""
        tensor, part = self._at[name]
        for stored, rows in self._items.items():
            self._items[stored] = np.concatenate([rows, rows[item : item + 1]])
        self._items[tensor][-1, ..., part] = value
        return len(self._items[tensor]) - 1

    def score(self, items: Ints, rivals: Ints, donors: Ints) -> tuple[Floats, Floats]:
        """Scores items [H] with features of other items, each in a list of its own with a rival.

        `donors` [H, features] are the items that each of `names` is taken from. Returns the values
        [H, V] of the changed items, and the scores [H] of the rivals in the same lists.
        """
        each, size = np.arange(len(items)), len(self.values)
        changed: dict[str, Array] = {name: rows[items] for name, rows in self._items.items()}
        for column, (tensor, part) in enumerate(self._at.values()):
            changed[tensor][..., part] = self._items[tensor][donors[:, column], ..., part]
        if self.pointwise:
            return self._scored(changed, each[:, np.newaxis])[:, 0], self.values[rivals, 0]
        rows = np.tile(np.arange(size), (len(each), 1))
        rows[each, items] = size + each
        pool = {n: np.concatenate([self._items[n][:size], changed[n]]) for n in changed}
        lists = self._scored(pool, rows)
        return lists[each, items], lists[each, rivals, 0]

    def _scored(self, items: Mapping[str, Array], rows: Ints) -> Floats:
        """Lists of rows of `items`, [H, L] -> [H, L, V]."""
        step = max(1, _CHUNK // rows.shape[1])
        parts = []
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            lists = {name: np.repeat(v, len(part), axis=0) for name, v in self._context.items()}
            lists |= {name: values[part] for name, values in items.items()}
            parts.append(self._score({**lists, MASK: np.ones(part.shape, bool)}))
        return np.concatenate(parts)
