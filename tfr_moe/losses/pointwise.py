"""Pointwise losses: cross-entropy, RMSE and ordinal loss."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf, tfr
from tfr_moe.layers.base import Configured
from tfr_moe.losses.base import ItemLoss, ListLoss, Lists


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SigmoidCrossEntropyLoss(ItemLoss):
    r"""Cross-entropy of each item, averaged over the valid items of the global batch.

    $$ CE = -\frac{\sum_i w_i
                   \left( y_i \log \sigma(s_i) + (1 - y_i) \log (1 - \sigma(s_i)) \right)}
                  {\sum_i w_i} $$

    (eqs. 12 and 13 of Xiao et al.) with i over items with a label >= 0. Grades above 1 count as 1,
    since the paper's label is whether the item was purchased.

    Example:
        >>> loss = SigmoidCrossEntropyLoss()
        >>> round(float(loss([[1.0, 0.0, -1.0]], [[0.0, 0.0, 7.0]])), 4)
        0.6931
    """

    def per_item(self, lists: Lists) -> tf.Tensor:
        """See `ItemLoss`."""
        return tf.nn.sigmoid_cross_entropy_with_logits(tf.minimum(lists.labels, 1.0), lists.logits)


class _GradedLoss(Configured):
    """Base of losses that need the highest grade of the labels."""

    def __init__(self, max_label: int = 4, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_label = max_label


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class RMSELoss(_GradedLoss, ListLoss):
    r"""Distance between the grades and a sigmoid of the logits scaled to the highest grade.

    $$ \ell = \sqrt{\sum_i \left( y_i - y_{\max} \, \sigma(s_i) \right)^2} $$

    per list, then the mean over lists (Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084,
    section 5.2.1, whose formula has the sum and not the mean under the root).

    Args:
        max_label: the highest grade, y_max; higher labels count as this.

    Example:
        >>> loss = RMSELoss(max_label=4)
        >>> float(loss([[2.0, 4.0, -1.0]], [[0.0, 0.0, 9.0]]))
        2.0
    """

    def per_list(self, lists: Lists) -> tf.Tensor:
        """See `ListLoss`."""
        labels = tf.minimum(lists.labels, float(self.max_label))
        errors = labels - self.max_label * tf.sigmoid(lists.logits)
        total = tf.reduce_sum(lists.shares * tf.square(errors), axis=1)
        # The root has an infinite slope at 0, where every grade is predicted exactly.
        return tf.where(total > 0, tf.sqrt(tf.where(total > 0, total, 1.0)), 0.0)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class OrdinalLoss(_GradedLoss, ItemLoss):
    r"""A binary cross-entropy for each grade from 1 up: is the label at least this grade?

    $$ \ell_i = -\frac{1}{M} \sum_{m=1}^{M} [y_i \ge m] \log \sigma(s_{im})
                + [y_i < m] \log (1 - \sigma(s_{im})) $$

    over the M = max_label outputs of an item, then the mean over valid items (Pobrotyn et al. 2020,
    section 5.2.2). The score of an item is the sum of its M sigmoids, see `expected_grade` in
    `tfr_moe.layers.outputs`.

    Args:
        max_label: the highest grade, M; higher labels count as this.

    Raises:
        ValueError: for logits that are not [B, L, M], or [B, L] if M is 1.

    Example:
        >>> loss = OrdinalLoss(max_label=2)
        >>> round(float(loss([[1.0, -1.0]], [[[0.0, 0.0], [5.0, 5.0]]])), 4)
        0.6931
    """

    _ranks = (2, 3)

    def per_item(self, lists: Lists) -> tf.Tensor:
        """See `ItemLoss`."""
        logits = lists.logits
        if logits.shape.rank == 2 and self.max_label == 1:
            logits = tf.expand_dims(logits, axis=-1)
        if logits.shape.rank != 3 or logits.shape[-1] != self.max_label:
            raise ValueError(
                f"the ordinal loss needs {self.max_label} outputs for each item. "
                f"Received: logits of shape {logits.shape}"
            )
        entropies = tfr.python.losses_impl.OrdinalLoss("ordinal", ordinal_size=self.max_label)
        sums, _ = entropies.compute_unreduced_loss(lists.labels, logits, mask=lists.valid)
        return sums / self.max_label
