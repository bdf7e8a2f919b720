"""Losses of pairs: RankNet, LambdaRank and NDCGLoss 2++, which differ in the weight of a pair."""

from __future__ import annotations

import abc
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.losses.mean import ListLoss, Lists
from tfr_moe.losses.pairs import Items, logistic_loss_of_pairs


def _discount(ranks: Any) -> Any:
    """1 / D_r = 1 / log2(1 + r) of ranks from 1 up."""
    return tf.math.log(2.0) / tf.math.log1p(ranks)


def ranks_by_logit(logits: Any, valid: Any) -> Any:
    """[B, L] float32 places from 1 up by falling logit, equal ones as in the record, padding last.

    Example:
        >>> ranks_by_logit(tf.constant([[1.0, 5.0, 9.0]]), tf.constant([[True, True, False]])).numpy()
        array([[2., 1., 3.]], dtype=float32)
    """
    # An order of its own for padding, since a real logit may be as low as any number.
    by_logit = tf.argsort(logits, axis=1, direction="DESCENDING", stable=True)
    padded = tf.gather(tf.cast(~valid, tf.int32), by_logit, batch_dims=1)
    order = tf.gather(by_logit, tf.argsort(padded, axis=1, stable=True), batch_dims=1)
    return tf.cast(tf.argsort(order, axis=1), tf.float32) + 1.0


def normalized_gains(labels: Any, valid: Any) -> Any:
    """[B, L] gains G = (2^y - 1) / maxDCG of a list, 0 at padding and where nothing is relevant.

    Example:
        >>> normalized_gains(tf.constant([[0.0, 1.0]]), tf.constant([[True, True]])).numpy()
        array([[0., 1.]], dtype=float32)
    """
    gains = tf.where(valid, tf.pow(2.0, labels) - 1.0, 0.0)
    places = tf.range(1.0, tf.cast(tf.shape(gains)[1], tf.float32) + 1.0)
    best = tf.sort(gains, axis=1, direction="DESCENDING") * _discount(places)
    return tf.math.divide_no_nan(gains, tf.reduce_sum(best, axis=1, keepdims=True))


class _PairwiseLoss(ListLoss):
    """Logistic losses of the pairs of a list, each with a weight."""

    @abc.abstractmethod
    def pair_weight(self, better: Items, worse: Items) -> Any:
        """The weight of pairs of items, see `tfr_moe.losses.pairs.PairWeight`."""

    def per_list(self, lists: Lists) -> Any:
        """See `ListLoss`."""
        items = Items(
            lists.logits,
            tf.where(lists.valid, lists.labels, -1.0),
            lists.shares,
            normalized_gains(lists.labels, lists.valid),
            ranks_by_logit(lists.logits, lists.valid),
        )
        return logistic_loss_of_pairs(items, self.pair_weight)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class RankNetLoss(_PairwiseLoss):
    r"""Logistic losses of all pairs that the labels order, added up.

    $$ \ell = \sum_{y_i > y_j} \log_2 \left( 1 + e^{-(s_i - s_j)} \right) $$

    (Burges et al. 2005; Pobrotyn et al. 2020, section 5.2.3), then the mean over lists; a list without
    such a pair counts with 0. TensorFlow Ranking's `pairwise_logistic_loss` has the natural logarithm,
    and divides by all places of the batch, padding included.

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
    r"""RankNet with each pair weighted by what swapping it would change of the NDCG.

    $$ \ell = \sum_{y_i > y_j} |G_i - G_j| \, \rho_{ij} \log_2 \left( 1 + e^{-(s_i - s_j)} \right),
       \qquad G_i = \frac{2^{y_i} - 1}{\max \text{DCG}}, \quad
       \rho_{ij} = \left| \frac{1}{D_i} - \frac{1}{D_j} \right|, \quad D_i = \log_2(1 + i) $$

    with i and j also the ranks by the present scores (Burges et al. 2007; Pobrotyn et al. 2020, section
    5.2.3), then the mean over lists. TensorFlow Ranking's NDCG weights are these times the list size,
    padding included.

    Example:
        >>> loss = LambdaRankLoss()
        >>> round(float(loss([[1.0, 0.0]], [[0.0, 0.0]])), 4)  # 1 - 1 / log2(3)
        0.3691
    """

    def pair_weight(self, better: Items, worse: Items) -> Any:
        """Change of the NDCG."""
        change = tf.abs(_discount(better.ranks) - _discount(worse.ranks))
        return tf.abs(better.gains - worse.gains) * change


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class NDCGLoss2PPLoss(_PairwiseLoss):
    r"""NDCGLoss 2++ of the LambdaLoss framework.

    $$ \ell = \sum_{y_i > y_j} (\rho_{ij} + \mu \, \delta_{ij}) \, |G_i - G_j|
              \log_2 \left( 1 + e^{-(s_i - s_j)} \right), \qquad
       \delta_{ij} = \left| \frac{1}{D_{|i-j|}} - \frac{1}{D_{|i-j|+1}} \right| $$

    with G, rho and D as in `LambdaRankLoss` (Wang et al. 2018; Pobrotyn et al. 2020, section 5.2.3),
    then the mean over lists.

    Args:
        mu: the weight of delta.
        **kwargs: `name`.

    Example:
        >>> loss = NDCGLoss2PPLoss(mu=10.0)
        >>> round(float(loss([[1.0, 0.0]], [[0.0, 0.0]])), 4)  # 11 (1 - 1 / log2(3))
        4.0598
    """

    def __init__(self, mu: float = 10.0, **kwargs: Any):
        super().__init__(**kwargs)
        if mu < 0:
            raise ValueError(f"mu must be >= 0. Received: mu={mu}")
        self.mu = mu

    def pair_weight(self, better: Items, worse: Items) -> Any:
        """rho and delta."""
        rho = tf.abs(_discount(better.ranks) - _discount(worse.ranks))
        # An item is never its own pair; the maximum keeps its unused weight finite.
        apart = tf.maximum(tf.abs(better.ranks - worse.ranks), 1.0)
        delta = _discount(apart) - _discount(apart + 1.0)
        return (rho + self.mu * delta) * tf.abs(better.gains - worse.gains)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "mu": self.mu}
