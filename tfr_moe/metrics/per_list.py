"""Ranking metrics of single lists, vectorised over lists, in float64.

Every function takes arrays of shape [B, L] (`scores`, `labels`, bool `mask`) and returns [B]
float64 values, NaN for a list on which the metric is undefined: one without a relevant item, and
for the AUC also one without an irrelevant item; `prm_precision`, `prm_map` and `ips_dcg` are
defined on every list. An item is relevant if its label is above 0; only the NDCG uses grades.
Padding is never read. Ties are ranked in record order. O(L log L) time per list, O(B L) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError
from tfr_moe.metrics import naming
from tfr_moe.metrics.naming import MetricName

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
MAX_GRADE = 1000.0  # 2^y - 1 leaves float64 at 1024


@dataclass(frozen=True)
class ListBatch:
    """B scored lists of up to L items.

    Attributes:
        scores: [B, L] scores of the model; padding is never read.
        labels: [B, L] graded relevance >= 0; padding is never read.
        mask: [B, L] bool, True for items. Padding may be anywhere.
        list_ids: [B] strings.
        positions: [B, L] display positions from 1 up, or None if the schema has no position.
        categories: [B] strings, the top category, or None if the schema has no hierarchy.
        sub_categories: [B] strings, `top > sub`, or None.
        weights: [B, L] weights of the items, or None if the schema has none.
    """

    scores: Array
    labels: Array
    mask: Bools
    list_ids: Array
    positions: Array | None = None
    categories: Array | None = None
    sub_categories: Array | None = None
    weights: Array | None = None

    def check(self) -> None:
        """Checks shapes and values; a `UserError` names the list with an invalid score or label."""
        shape = self.scores.shape
        for name in ("labels", "mask", "positions", "weights"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise UserError(
                    f"{name} must have the shape of scores, {shape}. Received: {array.shape}"
                )
        for name in ("list_ids", "categories", "sub_categories"):
            array = getattr(self, name)
            if array is not None and array.shape != shape[:1]:
                raise UserError(f"{name} must have shape {shape[:1]}. Received: {array.shape}")
        self._check_items("score", self.scores, np.isnan(self.scores), "must be a number")
        graded = (self.labels >= 0) & (self.labels <= MAX_GRADE)
        self._check_items("label", self.labels, ~graded, f"must be from 0 to {MAX_GRADE:.0f}")

    def _check_items(self, what: str, values: Array, bad: Bools, rule: str) -> None:
        indices = np.argwhere(bad & self.mask)
        if len(indices):
            row, item = indices[0]
            raise UserError(
                f"list {str(self.list_ids[row])!r}, item {item + 1}: "
                f"{what} {values[row, item]} {rule}"
            )


def _order(keys: Array, mask: Bools) -> NDArray[np.intp]:
    """[B, L] indices that sort by the key, smallest first and stably, padding last."""
    return np.lexsort((np.where(mask, keys, 0), ~mask), axis=-1)


def _ranked(values: Array, scores: Array, mask: Bools) -> Array:
    """[B, L] values in the order of falling scores, padding last."""
    negated = -np.where(mask, scores, 0.0).astype(np.float64)
    return np.take_along_axis(values, _order(negated, mask), axis=1)


def _relevant(labels: Array, mask: Bools) -> Bools:
    return mask & (labels > 0)


def _divided(numerators: Array, denominators: Array) -> Floats:
    """Quotients, NaN if the denominator is 0."""
    defined = denominators > 0
    return np.where(defined, numerators / np.where(defined, denominators, 1.0), np.nan)


def first_shown(mask: Bools, positions: Array, count: int) -> Bools:
    """Narrows a mask [B, L] to the `count` items shown first in each list, by their positions.

    Positions are counted from 1: items whose position is NaN or below 1 were not shown, and come
    after the others. Equal positions are in record order.
    """
    order = _order(np.where(positions >= 1, positions, np.inf), mask)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(mask.shape[1])[None, :], axis=1)
    return mask & (ranks < count)


def session_auc(scores: Array, labels: Array, mask: Bools) -> Floats:
    """Share of the (relevant, irrelevant) pairs of a list in the right order.

    AUC = sum_{i in P, j in N} ([s_i > s_j] + [s_i = s_j] / 2) / (|P| |N|), P the items with y > 0
    and N those with y = 0 (Adv & HSC-MoE, section IV-A-3: per session). NaN if P or N is empty.

    Example:
        >>> session_auc(np.array([[3.0, 2.0, 2.0]]), np.array([[0, 1, 0]]), np.ones((1, 3), bool))
        array([0.25])
    """
    scores = np.where(mask, scores, 0.0)
    order = _order(scores, mask)
    ranked = np.take_along_axis(scores, order, axis=1)
    relevant = np.take_along_axis(_relevant(labels, mask), order, axis=1)
    irrelevant = np.take_along_axis(mask, order, axis=1) & ~relevant
    # Runs of equal scores: the irrelevant items before the run lose, those inside count half.
    changes = ranked[:, 1:] != ranked[:, :-1]
    edge = np.ones((len(scores), min(1, scores.shape[1])), bool)
    index = np.arange(scores.shape[1])
    first = np.where(np.hstack([edge, changes]), index, 0)
    last = np.where(np.hstack([changes, edge]), index, scores.shape[1])
    first = np.maximum.accumulate(first, axis=1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    up_to = np.cumsum(irrelevant, axis=1)
    below: Array = np.take_along_axis(up_to - irrelevant, first, axis=1)
    not_above = np.take_along_axis(up_to, last, axis=1)
    won = np.sum(relevant * (below + not_above), axis=1) / 2.0
    return _divided(won, relevant.sum(axis=1) * irrelevant.sum(axis=1))


def ndcg(scores: Array, labels: Array, mask: Bools, ranked: int | None = None) -> Floats:
    """Normalised discounted cumulative gain of each list.

    DCG = sum_r (2^{y_r} - 1) / log2(1 + r) over ranks r = 1, 2, ... (up to `ranked`), divided by
    the DCG of the best order of the same items (Järvelin and Kekäläinen 2002). NaN if all gains are
    0.

    Example:
        >>> ndcg(np.array([[2.0, 1.0]]), np.array([[0, 1]]), np.ones((1, 2), bool)).round(4)
        array([0.6309])
    """
    gains = np.exp2(np.where(mask, labels, 0).astype(np.float64)) - 1.0
    discounts = 1.0 / np.log2(2.0 + np.arange(scores.shape[1]))
    if ranked is not None:
        discounts[ranked:] = 0.0
    achieved = np.sum(_ranked(gains, scores, mask) * discounts, axis=1)
    ideal = np.sum(np.sort(gains, axis=1)[:, ::-1] * discounts, axis=1)
    return _divided(achieved, ideal)


def reciprocal_rank(scores: Array, labels: Array, mask: Bools, ranked: int | None = None) -> Floats:
    """1 / rank of the first relevant item, 0 if that rank is beyond `ranked`."""
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    best = np.max(hits / np.arange(1.0, hits.shape[1] + 1), axis=1, initial=0.0)
    return np.where(relevant.any(axis=1), best, np.nan)


def average_precision(
    scores: Array, labels: Array, mask: Bools, ranked: int | None = None
) -> Floats:
    """Mean over a list's R relevant items of the precision at their ranks, 0 beyond `ranked`.

    AP@k = (1 / R) sum_{r <= k} [item at r is relevant] P@r, as `map_cut` of trec_eval: the divisor
    is R, the number of relevant items of the list, even if R > k.
    """
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    precisions = np.cumsum(hits, axis=1) / np.arange(1.0, hits.shape[1] + 1)
    return _divided(np.sum(hits * precisions, axis=1), relevant.sum(axis=1))


def precision(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    """Share of relevant items among the `ranked` first, over `ranked` in shorter lists too."""
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    return np.where(relevant.any(axis=1), hits.sum(axis=1) / ranked, np.nan)


def prm_precision(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    """Precision@k of PRM (Pei et al. 2019, eq. 11): 0 without a relevant item."""
    return np.nan_to_num(precision(scores, labels, mask, ranked))


def prm_map(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    r"""MAP@k of PRM (Pei et al. 2019, eq. 12): 0 without a relevant item.

    $$ AP@k = \frac{1}{k} \sum_{i \le k} P@i \, [\text{item at rank } i \text{ is relevant}] $$

    The divisor is k and not the number of relevant items, so that it is never above Precision@k.
    """
    hits = _ranked(_relevant(labels, mask), scores, mask)[:, :ranked]
    precisions = np.cumsum(hits, axis=1) / np.arange(1.0, hits.shape[1] + 1)
    return np.sum(hits * precisions, axis=1) / ranked


def ips_dcg(
    scores: Array, labels: Array, mask: Bools, weights: Array, ranked: int | None = None
) -> Floats:
    r"""DCG of clicks weighted by inverse propensities, 0 without a click.

    $$ \sum_{r \le k} \frac{w_r \, [y_r > 0]}{\log_2(1 + r)} $$

    With w = 1 / p of the position that the item was shown at, its mean over lists is unbiased by
    examination (Joachims et al. 2017, https://arxiv.org/abs/1608.04468). Lists are not normalized:
    in a list with a single click its weight would cancel.
    """
    gains = np.where(_relevant(labels, mask), weights, 0.0).astype(np.float64)
    discounts = 1.0 / np.log2(2.0 + np.arange(scores.shape[1]))
    return np.sum((_ranked(gains, scores, mask) * discounts)[:, :ranked], axis=1)


_RANKED: dict[str, Callable[..., Floats]] = {
    "ndcg": ndcg,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "precision": precision,
    "prm_precision": prm_precision,
    "prm_map": prm_map,
}


@dataclass(frozen=True)
class PerListMetric:
    """A metric by name, such as `ndcg_10`: the items that it evaluates, and its values."""

    name: str
    parsed: MetricName

    def evaluated_items(self, batch: ListBatch) -> Bools:
        """[B, L] bool: all items, or those shown first; a UserError without positions."""
        if self.parsed.shown is None:
            return batch.mask
        if batch.positions is None:
            raise naming.undefined(self.name, "display positions", "position")
        return first_shown(batch.mask, batch.positions, self.parsed.shown)

    def nothing_relevant(self, batch: ListBatch) -> Bools:
        """[B] bool: whether none of the evaluated items is relevant, so that the policy applies."""
        if self.parsed.family in naming.OVER_ALL_LISTS:
            return np.zeros(len(batch.labels), bool)
        return ~_relevant(batch.labels, self.evaluated_items(batch)).any(axis=1)

    def __call__(self, batch: ListBatch) -> Floats:
        """[B] float64 values, NaN if the metric is undefined on the list."""
        items = self.evaluated_items(batch)
        if self.parsed.family == "session_auc":
            return session_auc(batch.scores, batch.labels, items)
        if self.parsed.family == "ips_dcg":
            if batch.weights is None:
                raise naming.undefined(self.name, "weights of the items", "weight")
            arrays = (batch.scores, batch.labels, items, batch.weights)
            return ips_dcg(*arrays, ranked=self.parsed.ranked)
        function = _RANKED[self.parsed.family]
        return function(batch.scores, batch.labels, items, ranked=self.parsed.ranked)


def resolve(name: str) -> PerListMetric:
    """Makes the per-list metric of a name.

    Raises:
        UserError: for an unknown name, with the allowed ones.

    Example:
        >>> metric = resolve("session_auc_shown_10")
        >>> metric.parsed.shown
        10
    """
    return PerListMetric(name, naming.parse(name))
