"""Pairwise losses: RankNet, LambdaRank and NDCGLoss 2++, which differ in the weight of a pair.

The sum over all pairs of a list is computed in blocks, so that memory does not grow with [B, L, L].
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.outputs import ranks_by_score, scaled_gains
from tfr_moe.losses.base import ListLoss, Lists

PAIRS_AT_A_TIME = 2**21
"""Pairs of a batch that are computed at once, in about ten float32 tensors."""


class Items(NamedTuple):
    """Items of lists, each attribute float32 [B, n].

    Labels are negative at padded items; `shares` are the items' weights within the list, `gains`
    the normalized gains of the grades, `ranks` are from 1, by descending logit.
    """

    logits: tf.Tensor
    labels: tf.Tensor
    shares: tf.Tensor
    gains: tf.Tensor
    ranks: tf.Tensor


PairWeight = Callable[[Items, Items], Any]
"""Weight of pairs (i, j): Items [B, n, 1] and Items [B, 1, L] -> broadcastable to [B, n, L]."""


def _slopes(better: Items, worse: Items, weight: PairWeight) -> tuple[tf.Tensor, tf.Tensor]:
    """[B, n, L] losses of the pairs, and their derivatives by the better item's logit."""
    ordered = (better.labels > worse.labels) & (worse.labels >= 0.0)
    factor = tf.where(ordered, better.shares * weight(better, worse), 0.0) / np.log(2.0)
    margin = better.logits - worse.logits
    return factor * tf.nn.softplus(-margin), -factor * tf.sigmoid(-margin)


def logistic_loss_of_pairs(items: Items, weight: PairWeight) -> tf.Tensor:
    r"""Sums the weighted logistic losses of all pairs whose first item has the higher label -> [B].

    $$ \sum_{y_i > y_j} w_i \, \omega_{ij} \log_2 \left( 1 + e^{-(s_i - s_j)} \right) $$

    Pairs are computed in blocks of rows i against the whole list, and the gradient is accumulated
    in the same pass: memory is O(B L) plus a constant, where plain back-propagation holds several
    tensors [B, L, L]. The weights omega have no gradient, as in LambdaLoss.
    """
    lists, length = tf.shape(items.logits)[0], tf.shape(items.logits)[1]
    rows = tf.maximum(1, PAIRS_AT_A_TIME // tf.maximum(1, lists * length))
    logits = tf.stop_gradient(items.logits)
    everything = items._replace(logits=logits)
    worse = Items(*(tf.expand_dims(values, axis=1) for values in everything))

    def block(start: Any, losses: Any, gradient: Any) -> tuple[Any, Any, Any]:
        indices = tf.range(start, tf.minimum(start + rows, length))
        better = Items(
            *(tf.gather(values, indices, axis=1)[..., tf.newaxis] for values in everything)
        )
        values, slopes = _slopes(better, worse, weight)
        of_better = tf.transpose(tf.reduce_sum(slopes, axis=2))
        scattered = tf.scatter_nd(indices[:, tf.newaxis], of_better, [length, lists])
        gradient += tf.transpose(scattered)
        gradient -= tf.reduce_sum(slopes, axis=1)
        return start + rows, losses + tf.reduce_sum(values, axis=[1, 2]), gradient

    _, losses, gradient = tf.while_loop(
        lambda start, *_: start < length,
        block,
        (tf.constant(0), tf.zeros_like(logits[:, 0]), tf.zeros_like(logits)),
        shape_invariants=(tf.TensorShape([]), logits[:, 0].shape, logits.shape),
        parallel_iterations=1,
    )
    # 0, with the gradient that was accumulated.
    slope = tf.reduce_sum(tf.stop_gradient(gradient) * (items.logits - logits), axis=1)
    return tf.stop_gradient(losses) + slope


def _discount(ranks: tf.Tensor) -> tf.Tensor:
    """1 / D_r = 1 / log2(1 + r) of ranks from 1."""
    return tf.math.log(2.0) / tf.math.log1p(ranks)


def normalized_gains(labels: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """[B, L] gains G = (2^y - 1) / maxDCG; 0 at padding and in lists without a relevant item."""
    gains = scaled_gains(labels, valid)
    ranks = tf.range(1.0, tf.cast(tf.shape(gains)[1], tf.float32) + 1.0)
    best = tf.sort(gains, axis=1, direction="DESCENDING") * _discount(ranks)
    return tf.math.divide_no_nan(gains, tf.reduce_sum(best, axis=1, keepdims=True))


class _PairwiseLoss(ListLoss):
    """Weighted logistic losses of the pairs of a list."""

    @abc.abstractmethod
    def pair_weight(self, better: Items, worse: Items) -> Any:
        """The weight of pairs of items, see `PairWeight`."""

    def per_list(self, lists: Lists) -> tf.Tensor:
        """See `ListLoss`."""
        items = Items(
            lists.logits,
            tf.where(lists.valid, lists.labels, -1.0),
            lists.shares,
            normalized_gains(lists.labels, lists.valid),
            ranks_by_score(lists.logits, lists.valid),
        )
        return logistic_loss_of_pairs(items, self.pair_weight)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class RankNetLoss(_PairwiseLoss):
    r"""The sum of logistic losses of all pairs with different labels.

    $$ \ell = \sum_{y_i > y_j} \log_2 \left( 1 + e^{-(s_i - s_j)} \right) $$

    (Burges et al. 2005; Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 5.2.3),
    then the mean over lists; a list without such a pair counts with 0.

    Example:
        >>> loss = RankNetLoss()
        >>> float(loss([[1.0, 0.0, -1.0]], [[0.0, 0.0, 9.0]]))
        1.0
    """

    def pair_weight(self, better: Items, worse: Items) -> Any:
        """1."""
        return 1.0


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class LambdaRankLoss(_PairwiseLoss):
    r"""RankNet with each pair weighted by the change of NDCG if the two items were swapped.

    $$ \ell = \sum_{y_i > y_j} |G_i - G_j| \, \rho_{ij} \log_2 \left( 1 + e^{-(s_i - s_j)} \right),
       \qquad G_i = \frac{2^{y_i} - 1}{\max \text{DCG}}, \quad
       \rho_{ij} = \left| \frac{1}{D_i} - \frac{1}{D_j} \right|, \quad D_i = \log_2(1 + i) $$

    with i and j also the ranks by the current scores (Burges et al. 2007; Pobrotyn et al. 2020,
    section 5.2.3), then the mean over lists.

    Example:
        >>> loss = LambdaRankLoss()
        >>> round(float(loss([[1.0, 0.0]], [[0.0, 0.0]])), 4)  # 1 - 1 / log2(3)
        0.3691
    """

    def pair_weight(self, better: Items, worse: Items) -> tf.Tensor:
        """Change of the NDCG."""
        change = tf.abs(_discount(better.ranks) - _discount(worse.ranks))
        return tf.abs(better.gains - worse.gains) * change


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class NDCGLoss2PPLoss(Configured, _PairwiseLoss):
    r"""NDCGLoss 2++ of the LambdaLoss framework.

    $$ \ell = \sum_{y_i > y_j} (\rho_{ij} + \mu \, \delta_{ij}) \, |G_i - G_j|
              \log_2 \left( 1 + e^{-(s_i - s_j)} \right), \qquad
       \delta_{ij} = \left| \frac{1}{D_{|i-j|}} - \frac{1}{D_{|i-j|+1}} \right| $$

    with G, rho and D as in `LambdaRankLoss` (Wang et al. 2018; Pobrotyn et al. 2020, section
    5.2.3), then the mean over lists.

    Args:
        mu: the weight of delta.

    Example:
        >>> loss = NDCGLoss2PPLoss(mu=10.0)
        >>> round(float(loss([[1.0, 0.0]], [[0.0, 0.0]])), 4)  # 11 (1 - 1 / log2(3))
        4.0598
    """

    def __init__(self, mu: float = 10.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.mu = mu

    def pair_weight(self, better: Items, worse: Items) -> tf.Tensor:
        """rho and delta."""
        rho = tf.abs(_discount(better.ranks) - _discount(worse.ranks))
        # An item is never paired with itself; the maximum keeps its unused weight finite.
        apart = tf.maximum(tf.abs(better.ranks - worse.ranks), 1.0)
        delta = _discount(apart) - _discount(apart + 1.0)
        return (rho + self.mu * delta) * tf.abs(better.gains - worse.gains)
