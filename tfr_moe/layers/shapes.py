"""Shapes of tensors of which a graph knows some axes."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def sizes(tensor: tf.Tensor) -> list[Any]:
    """The sizes of the axes: numbers where they are known, else scalar tensors."""
    known = list(tensor.shape)
    if None not in known:
        return known
    return [s if n is None else n for n, s in zip(known, tf.unstack(tf.shape(tensor)), strict=True)]
