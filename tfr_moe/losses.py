"""Losses by name: TensorFlow Ranking's where it has them, with one rule for the mean.

TensorFlow Ranking averages a pointwise loss over all places of a batch, padding included, so that the
same items cost less in a wider batch. The registry therefore wraps every loss: pointwise losses are
averaged over valid items, listwise and pairwise ones as TensorFlow Ranking defines them, over lists.
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.reduction import mean_over_items


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SigmoidCrossEntropyLoss(tfr.keras.losses.SigmoidCrossEntropyLoss):
    r"""Cross-entropy of each item, averaged over the valid items of the global batch.

    $$ CE = -\frac{\sum_i w_i \left( y_i \log \sigma(s_i) + (1 - y_i) \log (1 - \sigma(s_i)) \right)}
                  {\sum_i w_i} $$

    (eqs. 12 and 13 of Xiao et al.), where i runs over items with a label >= 0 and w_i is 1 or the
    sample weight ([B], [B, 1] for lists, [B, L] for items): a weight of 2 counts a list twice. Grades
    above 1 count as 1, since the paper's label says whether the item was purchased.

    Example:
        >>> loss = SigmoidCrossEntropyLoss()
        >>> round(float(loss([[1.0, 0.0, -1.0]], [[0.0, 0.0, 7.0]])), 4)
        0.6931
    """

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The loss of `y_true` [B, L] (negative: padding) under logits `y_pred` [B, L]."""
        labels = tf.convert_to_tensor(y_true)
        logits = tf.cast(y_pred, tf.float32)
        labels = tf.minimum(tf.cast(labels, tf.float32), 1.0)
        losses, valid = self._loss.compute_unreduced_loss(labels=labels, logits=logits)
        return mean_over_items(losses, valid * _item_weights(sample_weight, labels))


def _item_weights(sample_weight: Any, labels: Any) -> Any:
    """Weights for lists [B], [B, 1] or items [B, L] as weights of items, broadcastable to [B, L]."""
    if sample_weight is None:
        return tf.ones_like(labels)
    weight = tf.cast(sample_weight, tf.float32)
    return weight[:, tf.newaxis] if len(weight.shape) == 1 else weight


OWN = {"sigmoid_cross_entropy": SigmoidCrossEntropyLoss}
_UNWANTED = ("sigmoid_cross_entropy_loss",)  # TFR's own, with the mean over padding


def names() -> list[str]:
    """The names that `get` takes: ours, then the keys of the installed TensorFlow Ranking."""
    keys = tfr.keras.losses.RankingLossKey.all_keys()
    return [*OWN, *sorted(key for key in keys if key not in _UNWANTED)]


def get(name: str) -> Any:
    """A new Keras loss by name, over labels [B, L] (negative: padding) and logits [B, L].

    Raises:
        UserError: for an unknown name; the message lists the known ones.
    """
    if name in OWN:
        return OWN[name](name=name)
    if name not in names():
        raise UserError(f"loss {name!r} is unknown; there are: {', '.join(names())}")
    return tfr.keras.losses.get(name, name=name)
