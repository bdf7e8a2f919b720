"""What weights mean, and the mean that every loss of ours ends in: the one place for both.

A weight of 2 counts a list, or an item, twice. Weights come as [B] or [B, 1] for lists or [B, L] for
items. A list weighs the mean of its items' weights; what remains, each item's weight over that mean,
multiplies the item's own term of the loss: its error in a pointwise loss, the pairs in which it is the
better one in a pairwise loss, its factor of the likelihood in a listwise loss. An item of weight 0 has
no term, but stays a rival of the others.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.reduction import mean_over_items


class Lists(NamedTuple):
    """What a loss sees of a batch.

    Attributes:
        labels: [B, L] float32, 0 at padded items.
        logits: [B, L] or [B, L, outputs] float32, 0 at padded items.
        valid: [B, L] bool.
        weights: [B, L] float32 weights of the items, 0 at padded items.
        shares: [B, L], the weights over the mean weight of their list: 1 where all are equal.
        list_weights: [B], that mean; 0 for a list of nothing but padding.
    """

    labels: Any
    logits: Any
    valid: Any
    weights: Any
    shares: Any
    list_weights: Any


def lists_of(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Lists:
    """Labels (negative: padding), logits and weights as a loss sees them.

    Example:
        >>> lists = lists_of([[1.0, 0.0, -1.0]], [[2.0, 3.0, 4.0]], [[3.0, 1.0, 5.0]])
        >>> lists.list_weights.numpy(), lists.shares.numpy()
        (array([2.], dtype=float32), array([[1.5, 0.5, 0. ]], dtype=float32))
    """
    labels = tf.cast(tf.convert_to_tensor(y_true), tf.float32)
    logits = tf.cast(tf.convert_to_tensor(y_pred), tf.float32)
    valid = labels >= 0.0
    present = tf.cast(valid, tf.float32)
    weights = present
    if sample_weight is not None:
        given = tf.cast(tf.convert_to_tensor(sample_weight), tf.float32)
        given = given[:, tf.newaxis] if given.shape.rank == 1 else given
        weights = tf.where(valid, given * tf.ones_like(labels), 0.0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(weights, axis=1), tf.reduce_sum(present, axis=1))
    places = valid if logits.shape.rank == 2 else valid[..., tf.newaxis]
    return Lists(
        labels=tf.where(valid, labels, 0.0),
        logits=tf.where(places, logits, 0.0),
        valid=valid,
        weights=weights,
        shares=tf.math.divide_no_nan(weights, mean[:, tf.newaxis]),
        list_weights=mean,
    )


class _Loss(tf.keras.losses.Loss, metaclass=abc.ABCMeta):
    """A loss over labels [B, L] (negative: padding), logits and weights, see this module."""

    def __init__(self, name: str | None = None, reduction: Any = "auto"):
        super().__init__(reduction=reduction, name=name)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The weighted mean as a float32 scalar, over all replicas; 0 where nothing is valid.

        Args:
            y_true: [B, L] labels, negative at padded places.
            y_pred: [B, L] logits of any float type.
            sample_weight: [B], [B, 1] or [B, L]; see the module.
        """
        return mean_over_items(*self.terms(lists_of(y_true, y_pred, sample_weight)))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The same without weights."""
        return self(y_true, y_pred)

    @abc.abstractmethod
    def terms(self, lists: Lists) -> tuple[Any, Any]:
        """What is averaged, and with which weights: a value per list [B] or per item [B, L]."""


class ListLoss(_Loss):
    r"""A loss that has a value for each list: their mean, weighted by the lists' weights.

    $$ \frac{\sum_l w_l \, \ell_l}{\sum_l w_l} $$

    Subclasses implement `per_list`.
    """

    @abc.abstractmethod
    def per_list(self, lists: Lists) -> Any:
        """[B] values, finite also for lists of nothing but padding, each item's term by its share."""

    def judged(self, lists: Lists) -> Any:
        """[B] bool: lists that are in the mean; by default all with an item."""
        return tf.reduce_any(lists.valid, axis=1)

    def terms(self, lists: Lists) -> tuple[Any, Any]:
        """See `_Loss`."""
        weights = tf.where(self.judged(lists), lists.list_weights, 0.0)
        return self.per_list(lists), weights


class ItemLoss(_Loss):
    r"""A loss that has a value for each item: their mean over the valid items.

    $$ \frac{\sum_i w_i \, \ell_i}{\sum_i w_i} $$

    Subclasses implement `per_item`.
    """

    @abc.abstractmethod
    def per_item(self, lists: Lists) -> Any:
        """[B, L] values; what stands at padded items is not read."""

    def terms(self, lists: Lists) -> tuple[Any, Any]:
        """See `_Loss`."""
        return self.per_item(lists), lists.weights
