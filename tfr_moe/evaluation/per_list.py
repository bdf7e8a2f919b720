"""Ranking metrics of single lists, vectorised over lists, in float64.

Every function takes arrays of shape [B, L] (`scores`, `labels`, bool `mask`) and returns [B] float64
values, NaN for a list that the metric can't judge: one with nothing relevant, and for the AUC also
one with nothing irrelevant; `prm_precision` and `prm_map` judge every list. An item is relevant if its
label is above 0; only the NDCG reads grades. What stands at padded places is never read. Ties in a
ranking are broken by the order in the record. Time is O(L log L) a list and memory O(B L), for lists of
any length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfr_moe import metric_names
from tfr_moe.evaluation.batches import Array, Bools, Floats, ListBatch
from tfr_moe.metric_names import MetricName


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
    """Quotients, NaN where the denominator is 0."""
    judged = denominators > 0
    return np.where(judged, numerators / np.where(judged, denominators, 1.0), np.nan)


def first_shown(mask: Bools, positions: Array | None, count: int) -> Bools:
    """Narrows a mask to the `count` items shown first in each list.

    Those are the items with the smallest positions; without positions, the first in the record.
    Positions are counted from 1: items whose position is NaN or below 1 were not shown, and come
    after the others. Equal positions are taken in the order of the record.

    Args:
        mask: [B, L] bool.
        positions: [B, L] or None.
        count: how many items to keep in each list.

    Returns:
        [B, L] bool.

    Example:
        >>> mask = np.array([[True, True, True, False]])
        >>> first_shown(mask, np.array([[3, 1, 2, 0]]), 2)
        array([[False,  True,  True, False]])
        >>> first_shown(mask, None, 2)
        array([[ True,  True, False, False]])
    """
    if positions is None:
        return mask & (np.cumsum(mask, axis=1) <= count)
    order = _order(np.where(positions >= 1, positions, np.inf), mask)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(mask.shape[1])[None, :], axis=1)
    return mask & (places < count)


def session_auc(scores: Array, labels: Array, mask: Bools) -> Floats:
    """Share of the pairs (relevant item, irrelevant item) of a list that the scores order right.

    AUC = sum_{i in P, j in N} ([s_i > s_j] + [s_i = s_j] / 2) / (|P| |N|), P the items with y > 0 and
    N those with y = 0 (Adv & HSC-MoE, section IV-A-3: per session). NaN where P or N is empty.

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
    below = np.take_along_axis(up_to - irrelevant, first, axis=1)
    not_above = np.take_along_axis(up_to, last, axis=1)
    won = np.sum(relevant * (below + not_above), axis=1) / 2.0
    return _divided(won, relevant.sum(axis=1) * irrelevant.sum(axis=1))


def ndcg(scores: Array, labels: Array, mask: Bools, ranked: int | None = None) -> Floats:
    """Normalised discounted cumulative gain of each list.

    DCG = sum_r (2^{y_r} - 1) / log2(1 + r) over ranks r = 1, 2, ... (up to `ranked`), divided by the
    DCG of the best order of the same items (Järvelin and Kekäläinen 2002). NaN where all gains are 0.

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
    """1 / rank of the first relevant item, 0 where that rank is beyond `ranked`.

    Example:
        >>> reciprocal_rank(np.array([[2.0, 1.0]]), np.array([[0, 1]]), np.ones((1, 2), bool))
        array([0.5])
    """
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    best = np.max(hits / np.arange(1.0, hits.shape[1] + 1), axis=1, initial=0.0)
    return np.where(relevant.any(axis=1), best, np.nan)


def average_precision(
    scores: Array, labels: Array, mask: Bools, ranked: int | None = None
) -> Floats:
    """Mean over a list's R relevant items of the precision at their ranks, 0 beyond `ranked`.

    AP@k = (1 / R) sum_{r <= k} [item at r is relevant] P@r, the `map_cut` of trec_eval: the divisor is
    R, all relevant items of the list, also where R > k.

    Example:
        >>> average_precision(
        ...     np.array([[3.0, 2.0, 1.0]]), np.array([[1, 0, 1]]), np.ones((1, 3), bool)
        ... ).round(4)
        array([0.8333])
    """
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    precisions = np.cumsum(hits, axis=1) / np.arange(1.0, hits.shape[1] + 1)
    return _divided(np.sum(hits * precisions, axis=1), relevant.sum(axis=1))


def precision(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    """Share of relevant items among the `ranked` first; the divisor is `ranked` in shorter lists too.

    Example:
        >>> precision(np.array([[2.0, 1.0]]), np.array([[0, 1]]), np.ones((1, 2), bool), 5)
        array([0.2])
    """
    relevant = _relevant(labels, mask)
    hits = _ranked(relevant, scores, mask)[:, :ranked]
    return np.where(relevant.any(axis=1), hits.sum(axis=1) / ranked, np.nan)


def prm_precision(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    """Precision@k of PRM (Pei et al. 2019, eq. 11): a mean over all lists, 0 where nothing is relevant.

    Example:
        >>> prm_precision(np.array([[2.0, 1.0]]), np.array([[0, 0]]), np.ones((1, 2), bool), 5)
        array([0.])
    """
    return np.nan_to_num(precision(scores, labels, mask, ranked))


def prm_map(scores: Array, labels: Array, mask: Bools, ranked: int) -> Floats:
    r"""MAP@k of PRM (Pei et al. 2019, eq. 12), a mean over all lists, 0 where nothing is relevant.

    $$ AP@k = \frac{1}{k} \sum_{i \le k} P@i \, [\text{item at rank } i \text{ is relevant}] $$

    The divisor is k and not the number of relevant items, so that it is never above Precision@k.

    Example:
        >>> prm_map(np.array([[3.0, 2.0, 1.0]]), np.array([[1, 0, 1]]), np.ones((1, 3), bool), 2)
        array([0.5])
    """
    hits = _ranked(_relevant(labels, mask), scores, mask)[:, :ranked]
    precisions = np.cumsum(hits, axis=1) / np.arange(1.0, hits.shape[1] + 1)
    return np.sum(hits * precisions, axis=1) / ranked


_RANKED: dict[str, Callable[..., Floats]] = {
    "ndcg": ndcg,
    "ranked_ndcg": ndcg,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "precision": precision,
    "prm_precision": prm_precision,
    "prm_map": prm_map,
}


@dataclass(frozen=True)
class PerListMetric:
    """A metric by name: which items of a list it judges and what it computes from them.

    Attributes:
        name: such as `ndcg_10`.
        parsed: family and cut-off.
    """

    name: str
    parsed: MetricName

    def judged_items(self, batch: ListBatch) -> Bools:
        """[B, L] bool: all items, or those shown first where the metric has such a cut-off."""
        if self.parsed.shown is None:
            return batch.mask
        return first_shown(batch.mask, batch.positions, self.parsed.shown)

    def nothing_relevant(self, batch: ListBatch) -> Bools:
        """[B] bool: True where none of the judged items is relevant and the policy decides."""
        if self.parsed.family in metric_names.OVER_ALL_LISTS:
            return np.zeros(len(batch.labels), bool)
        return ~_relevant(batch.labels, self.judged_items(batch)).any(axis=1)

    def __call__(self, batch: ListBatch) -> Floats:
        """[B] float64 values, NaN where the list can't be judged."""
        items = self.judged_items(batch)
        if self.parsed.family == "session_auc":
            return session_auc(batch.scores, batch.labels, items)
        function = _RANKED[self.parsed.family]
        return function(batch.scores, batch.labels, items, ranked=self.parsed.ranked)


def resolve(name: str) -> PerListMetric:
    """The metric of that name.

    Raises:
        UserError: for a name that is none; the message lists those there are.

    Example:
        >>> metric = resolve("session_auc_10")
        >>> metric.parsed.shown
        10
    """
    parsed = metric_names.parse(name)
    if parsed is None:
        raise metric_names.unknown(name)
    return PerListMetric(name, parsed)
