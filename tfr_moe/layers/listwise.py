"""What turns the logits of a list into probabilities over its items."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ListLogProbability(tf.keras.layers.Layer):
    r"""The logarithm of the softmax over the valid items of each list.

    $$ Score(i) = P(y_i) = \text{softmax}(z)_i $$

    (eq. 8 of PRM, Pei et al. 2019), as log P: the order is the same, no probability rounds to 0, and
    the loss of eq. 9, -sum_i y_i log P(y_i), is the softmax loss of these scores as of the logits z.

    Example:
        >>> scores = ListLogProbability()(
        ...     tf.constant([[1.0, 1.0, 9.0]]), mask=tf.constant([[True, True, False]])
        ... )
        >>> tf.exp(scores).numpy().round(3).tolist()
        [[0.5, 0.5, 1.0]]
    """

    def call(self, logits: Any, mask: Any = None) -> Any:
        """Logits [B, L] and mask [B, L] -> float32 log P [B, L], 0 at padded items."""
        logits = tf.cast(logits, tf.float32)
        if mask is None:
            return tf.nn.log_softmax(logits)
        lowest = tf.where(mask, logits, logits.dtype.min)
        return tf.where(mask, tf.nn.log_softmax(lowest), 0.0)
