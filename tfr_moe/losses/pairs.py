"""The sum of logistic losses over all pairs of a list, without ever holding all pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf

PAIRS_AT_A_TIME = 2**21
"""So many pairs of a batch are held at once, in some ten float32 tensors."""


class Items(NamedTuple):
    """Items of lists, each attribute [B, n].

    Attributes:
        logits: float32.
        labels: float32, negative at padded items.
        shares: float32, the items' own weights within the list.
        gains: float32, what the grades are worth.
        ranks: float32 from 1 up, the place by falling logit.
    """

    logits: Any
    labels: Any
    shares: Any
    gains: Any
    ranks: Any


PairWeight = Callable[[Items, Items], Any]
"""Weight of pairs (i, j): Items [B, n, 1] and Items [B, 1, L] -> broadcastable to [B, n, L]."""


def _slopes(better: Items, worse: Items, weight: PairWeight) -> tuple[Any, Any]:
    """[B, n, L] losses of the pairs, and their derivatives by the better one's logit."""
    ordered = (better.labels > worse.labels) & (worse.labels >= 0.0)
    factor = tf.where(ordered, better.shares * weight(better, worse), 0.0) / np.log(2.0)
    margin = better.logits - worse.logits
    return factor * tf.nn.softplus(-margin), -factor * tf.sigmoid(-margin)


def logistic_loss_of_pairs(items: Items, weight: PairWeight) -> Any:
    r"""Weighted logistic losses of all pairs whose first item has the higher label, added up.

    $$ \sum_{y_i > y_j} w_i \, \omega_{ij} \log_2 \left( 1 + e^{-(s_i - s_j)} \right) $$

    The pairs are gone through in blocks of some rows i against the whole list, and the gradient is
    added up on the way, so that memory is O(B L) and a constant, where plain back-propagation holds
    several tensors [B, L, L]. The weights have no gradient, as in LambdaLoss.

    Args:
        items: of B lists of L places.
        weight: omega.

    Returns:
        [B] float32.

    Example:
        >>> one = tf.ones([1, 2])
        >>> items = Items(0.0 * one, tf.constant([[1.0, 0.0]]), one, one, one)
        >>> logistic_loss_of_pairs(items, lambda better, worse: 1.0).numpy()
        array([1.], dtype=float32)
    """
    lists, length = tf.shape(items.logits)[0], tf.shape(items.logits)[1]
    rows = tf.maximum(1, PAIRS_AT_A_TIME // tf.maximum(1, lists * length))

    @tf.custom_gradient
    def total(logits: Any) -> tuple[Any, Callable[[Any], Any]]:
        everything = items._replace(logits=logits)
        against = Items(*(values[:, tf.newaxis, :] for values in everything))

        def block(start: Any, losses: Any, gradient: Any) -> tuple[Any, Any, Any]:
            places = tf.range(start, tf.minimum(start + rows, length))
            chosen = Items(
                *(tf.gather(values, places, axis=1)[..., tf.newaxis] for values in everything)
            )
            values, slopes = _slopes(chosen, against, weight)
            own = tf.transpose(tf.reduce_sum(slopes, axis=2))
            gradient += tf.transpose(tf.scatter_nd(places[:, tf.newaxis], own, [length, lists]))
            gradient -= tf.reduce_sum(slopes, axis=1)
            return start + rows, losses + tf.reduce_sum(values, axis=[1, 2]), gradient

        _, losses, gradient = tf.while_loop(
            lambda start, *_: start < length,
            block,
            (tf.constant(0), tf.zeros_like(logits[:, 0]), tf.zeros_like(logits)),
            shape_invariants=(tf.TensorShape([]), logits[:, 0].shape, logits.shape),
            parallel_iterations=1,
        )
        return losses, lambda upstream: upstream[:, tf.newaxis] * gradient

    return total(items.logits)
