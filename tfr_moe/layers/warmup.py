"""Weights of regularisers that begin at 0 and grow to their value over the first training steps."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def make_step(layer: tf.keras.layers.Layer, steps: int) -> Any:
    """A variable of the layer that counts its training steps, so that a resumed run goes on; None for 0.

    Raises:
        ValueError: for a negative number of steps.
    """
    if steps < 0:
        raise ValueError(f"warmup_steps must be >= 0. Received: warmup_steps={steps}")
    if not steps:
        return None
    return layer.add_weight(
        "warmup_step",
        shape=[],
        dtype=tf.float32,
        initializer="zeros",
        trainable=False,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def next_factor(step: Any, steps: int) -> Any:
    r"""The factor min(1, t / T) of the t-th training step, t = 0, 1, ..., and counts it; 1 without a step.

    Args:
        step: of `make_step`.
        steps: T.

    Example:
        >>> step = make_step(tf.keras.layers.Layer(), 2)
        >>> [float(next_factor(step, 2)) for _ in range(4)]
        [0.0, 0.5, 1.0, 1.0]
    """
    if step is None:
        return tf.ones([])
    factor = tf.minimum(1.0, tf.convert_to_tensor(step) / steps)
    with tf.control_dependencies([factor]):
        step.assign_add(1.0)
    return factor
