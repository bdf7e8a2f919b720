"""Weights and reduction, the same for all losses of this package.

Weights come as [B] or [B, 1] for lists or [B, L] for items; a weight of 2 counts a list, or an
item, twice. The weight of a list is the mean of its items' weights. The rest, each item's weight
over that mean, multiplies the item's own term of the loss: its error in a pointwise loss, the pairs
in which it is the better item in a pairwise loss, its factor of the likelihood in a listwise loss.
An item of weight 0 has no term, but still competes with the others.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.layers.checks import check_scores, dense, item_weights
from tfr_moe.layers.distribute import mean_over_items


class Lists(NamedTuple):
    """A batch as a loss sees it; all are float32 but `valid`, and 0 at padded items.

    Attributes:
        labels: [B, L].
        logits: [B, L] or [B, L, outputs].
        valid: bool [B, L].
        weights: [B, L] weights of the items.
        shares: [B, L], the weights over the mean weight of their list: 1 where all are equal.
        list_weights: [B], that mean; 0 for a list of padding only.
    """

    labels: tf.Tensor
    logits: tf.Tensor
    valid: tf.Tensor
    weights: tf.Tensor
    shares: tf.Tensor
    list_weights: tf.Tensor


def lists_of(
    y_true: Any, y_pred: Any, sample_weight: Any = None, ranks: tuple[int, ...] = (2, 3)
) -> Lists:
    """Converts labels (negative: padding), logits of a rank in `ranks`, and weights.

    Raises a ValueError for wrong shapes.
    """
    labels = tf.cast(dense(y_true), tf.float32)
    logits = tf.cast(dense(y_pred), tf.float32)
    check_scores(labels, logits, ranks)
    valid = labels >= 0.0
    present = tf.cast(valid, tf.float32)
    weights = tf.where(valid, item_weights(sample_weight, labels), 0.0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(weights, axis=1), tf.reduce_sum(present, axis=1))
    valid_logits = valid if logits.shape.rank == 2 else tf.expand_dims(valid, axis=-1)
    return Lists(
        labels=tf.where(valid, labels, 0.0),
        logits=tf.where(valid_logits, logits, 0.0),
        valid=valid,
        weights=weights,
        shares=tf.math.divide_no_nan(weights, tf.expand_dims(mean, axis=1)),
        list_weights=mean,
    )


class _Loss(tf.keras.losses.Loss, metaclass=abc.ABCMeta):
    """A loss over labels [B, L] (negative: padding), logits and weights; see the module.

    `reduction` is `auto` or `sum_over_batch_size` for the weighted mean over all replicas, `sum`
    for the weighted sum of this replica, or `none` for the weighted values, [B] by list or [B, L]
    by item.

    Raises:
        ValueError: for labels, logits or weights of a wrong shape.
    """

    _ranks: tuple[int, ...] = (2,)
    """Ranks of the logits."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        """Computes the loss in float32, whatever the type of the logits; 0 for padding only."""
        lists = lists_of(y_true, y_pred, sample_weight, self._ranks)
        values, weights = self.terms(lists)
        if self.reduction not in ("sum", "none"):
            return mean_over_items(values, weights)
        # where, not a product alone: 0 x NaN is NaN.
        weighted = tf.where(weights > 0, values, 0.0) * weights
        return weighted if self.reduction == "none" else tf.reduce_sum(weighted)

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Computes the loss without weights."""
        return self(y_true, y_pred)

    @abc.abstractmethod
    def terms(self, lists: Lists) -> tuple[tf.Tensor, tf.Tensor]:
        """Values by list [B] or by item [B, L], and their weights in the mean."""


class ListLoss(_Loss):
    r"""A loss with a value for each list: their mean, weighted by the weights of the lists.

    $$ \frac{\sum_l w_l \, \ell_l}{\sum_l w_l} $$

    Subclasses implement `per_list`.
    """

    @abc.abstractmethod
    def per_list(self, lists: Lists) -> tf.Tensor:
        """[B] values, each item's term times its share; finite for lists of padding only, too."""

    def is_defined(self, lists: Lists) -> tf.Tensor:
        """[B] bool, the lists that count in the mean; by default all with a valid item."""
        return tf.reduce_any(lists.valid, axis=1)

    def terms(self, lists: Lists) -> tuple[tf.Tensor, tf.Tensor]:
        """See `_Loss`."""
        weights = tf.where(self.is_defined(lists), lists.list_weights, 0.0)
        return self.per_list(lists), weights


class ItemLoss(_Loss):
    r"""A loss with a value for each item: their weighted mean over the valid items.

    $$ \frac{\sum_i w_i \, \ell_i}{\sum_i w_i} $$

    Subclasses implement `per_item`.
    """

    @abc.abstractmethod
    def per_item(self, lists: Lists) -> tf.Tensor:
        """[B, L] values; those of padded items are ignored."""

    def terms(self, lists: Lists) -> tuple[tf.Tensor, tf.Tensor]:
        """See `_Loss`."""
        return self.per_item(lists), lists.weights
