"""Sizes of batches and lists: filling them up, and holding them to a fixed one."""

from __future__ import annotations

from collections.abc import Iterable

from tfr_moe._compat import tf

from .gaps import Features


def at_least(value: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    """Fills an axis that is shorter than `size` up to it, with zeros, False or empty strings.

    Example:
        >>> at_least(tf.constant([[1.0], [2.0]]), axis=1, size=3).numpy().tolist()
        [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    """
    lack = tf.maximum(size - tf.shape(value)[axis], 0)
    return tf.pad(value, [[0, lack if i == axis else 0] for i in range(value.shape.rank)])


def hold_to(features: Features, names: Iterable[str], list_size: int) -> Features:
    """Fills lists up to a fixed size, so that all shapes but the batch's are known.

    Args:
        features: tensors by name.
        names: those of items, [B, L, ...].
        list_size: the size.

    Raises:
        tf.errors.InvalidArgumentError: when it runs, for a longer list, with both numbers.
    """
    held = dict(features)
    for name in names:
        value = features[name]
        fits = tf.debugging.Assert(
            tf.shape(value)[1] <= list_size,
            ["a list has", tf.shape(value)[1], f"items; this model takes at most {list_size}"],
        )
        with tf.control_dependencies([fits]):
            filled = at_least(value, 1, list_size)
        held[name] = tf.ensure_shape(filled, [None, list_size, *value.shape[2:]])
    return held
