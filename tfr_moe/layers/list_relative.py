"""Where a number lies among those of its list."""

from __future__ import annotations

from tfr_moe._compat import tf


def list_ranks(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    r"""The share of the other items of the list with a smaller value; equal values count half.

    $$ r_i = \frac{1}{n - 1} \sum_{j \ne i} [x_j < x_i] + \tfrac{1}{2} [x_j = x_i] $$

    over the n valid items of the list: 0 for the smallest value, 1 for the largest, and 0 in a list
    of one item. Counts are exact, so no bit of a rank depends on the order of the list. Sums of
    floats do: with a mean of the list in float32, a model can learn where in the record the
    relevant items stand.

    Args:
        values: float [B, L, n].
        mask: bool [B, L], True at valid items.

    Returns:
        float32 [B, L, n], 0 at padded items.

    Example:
        >>> mask = tf.constant([[True, True, True, False]])
        >>> ranks = list_ranks(tf.constant([[[5.0], [1.0], [5.0], [3.0]]]), mask)
        >>> ranks[0, :, 0].numpy().tolist()
        [0.75, 0.0, 0.75, 0.0]
    """
    valid = mask[..., tf.newaxis]
    of_lists = tf.transpose(tf.where(valid, values, values.dtype.max), [0, 2, 1])
    ordered = tf.sort(of_lists, axis=-1)
    twice = tf.searchsorted(ordered, of_lists) + tf.searchsorted(ordered, of_lists, "right") - 1
    others = tf.reduce_sum(tf.cast(valid, tf.int32), axis=1, keepdims=True) - 1
    ranks = tf.transpose(twice, [0, 2, 1]) / tf.maximum(2 * others, 1)
    return tf.where(valid, tf.cast(ranks, tf.float32), 0.0)
