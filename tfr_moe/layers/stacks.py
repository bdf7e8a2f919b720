"""The layers of N towers, stacked, and the weights that some of them need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfr_moe._compat import tf


class Dense(NamedTuple):
    """A dense layer of one tower, or of several in the leading axes.

    Attributes:
        kernel: [..., in, out].
        bias: [..., out].
        norm: what normalises its values (see `expert_norm`), each [..., out]; empty for nothing.
    """

    kernel: Any
    bias: Any
    norm: tuple[Any, ...] = ()


def glorot_uniform(fan_in: int, fan_out: int, seed: int | None = None) -> Any:
    """An initializer of stacked kernels [..., fan_in, fan_out]: glorot-uniform for each of them.

    Keras' own takes leading axes for those of a convolution, and would make the kernels too small.

    Example:
        >>> kernels = glorot_uniform(2, 4, seed=1)([100, 2, 4])
        >>> bool(tf.reduce_max(tf.abs(kernels)) <= 1.0)  # sqrt(6 / (2 + 4))
        True
    """
    limit = (6.0 / (fan_in + fan_out)) ** 0.5
    return tf.keras.initializers.RandomUniform(-limit, limit, seed=seed)


def picked(
    layers: Sequence[Dense], pick: Callable[[Any], Any], batched: bool = False
) -> list[Dense]:
    """Each layer with weights of its own choice.

    Args:
        layers: stacked in the first axis.
        pick: takes what it wants of a stack.
        batched: whether vectors get an axis for the rows, [..., 1, out], as batched products need it.

    Example:
        >>> layers = [Dense(tf.ones([3, 4, 2]), tf.zeros([3, 2]))]
        >>> [layer] = picked(layers, lambda w: w[1:], batched=True)
        >>> layer.kernel.shape, layer.bias.shape
        (TensorShape([2, 4, 2]), TensorShape([2, 1, 2]))
    """

    def vector(stacked: Any) -> Any:
        found = pick(stacked)
        return found[..., tf.newaxis, :] if batched else found

    return [
        Dense(pick(layer.kernel), vector(layer.bias), tuple(map(vector, layer.norm)))
        for layer in layers
    ]
