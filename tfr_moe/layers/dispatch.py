"""Items to experts and back: rows of valid items, and stacked weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfr_moe._compat import tf


def take_rows(inputs: tf.Tensor, mask: Any = None) -> tuple[tf.Tensor, Any]:
    """Selects the valid items of a batch, so that padding is not computed.

    Args:
        inputs: [..., n], such as [B, n] or [B, L, n].
        mask: bool [...], True at valid items; None for all.

    Returns:
        The rows [T, n] and their positions, int32 [T, number of leading axes]; None instead of
        positions without a mask.

    Example:
        >>> rows, positions = take_rows(
        ...     tf.constant([[[1.0], [2.0]], [[3.0], [4.0]]]),
        ...     tf.constant([[True, False], [True, True]]),
        ... )
        >>> rows.numpy().ravel().tolist(), positions.numpy().tolist()
        ([1.0, 3.0, 4.0], [[0, 0], [1, 0], [1, 1]])
    """
    if mask is None:
        return tf.reshape(inputs, [-1, inputs.shape[-1]]), None
    positions = tf.cast(tf.where(mask), tf.int32)
    return tf.gather_nd(inputs, positions), positions


def put_rows(values: tf.Tensor, positions: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Puts values of rows back at the positions of their items.

    Args:
        values: [T, ...] by row.
        positions: as returned by `take_rows`.
        inputs: [..., n], the argument of `take_rows`.

    Returns:
        The leading axes of `inputs`, then those of a value; 0 at padded items.
    """
    shape = tf.concat([tf.shape(inputs)[:-1], tf.shape(values)[1:]], axis=0)
    static = [*inputs.shape[:-1], *values.shape[1:]]
    if positions is None:
        return tf.ensure_shape(tf.reshape(values, shape), static)
    return tf.ensure_shape(tf.scatter_nd(positions, values, shape), static)


def selection_of_rows(indices: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """The experts selected for rows, from those of lists [B, S] or items [B, L, S] -> [T, S]."""
    if len(indices.shape) == 2:
        return tf.gather(indices, positions[:, 0])
    return tf.gather_nd(indices, positions)


def where_valid(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Values [B, L, ...] with 0 at padded items, NaN included.

    Example:
        >>> where_valid(tf.constant([[5.0, 6.0]]), tf.constant([[True, False]])).numpy().tolist()
        [[5.0, 0.0]]
    """
    shape = tf.concat([tf.shape(mask), tf.ones([len(values.shape) - 2], tf.int32)], 0)
    return tf.where(tf.reshape(mask, shape), values, tf.zeros([], values.dtype))


def take_experts(weights: tf.Tensor, experts: tf.Tensor) -> tf.Tensor:
    """Weights [N, ...] of some experts [G], with a dense gradient.

    The gradient of `tf.gather` would be slices, which an optimizer treats as embedding rows.

    Example:
        >>> weights = tf.constant([[1.0], [2.0]])
        >>> take_experts(weights, tf.constant([0, 1, 1])).numpy().ravel().tolist()
        [1.0, 2.0, 2.0]
    """

    @tf.custom_gradient
    def take(stacked: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(upstream, experts, stacked.shape[0])

        return tf.gather(stacked, experts), gradient

    return take(weights)


class Dense(NamedTuple):
    """The weights of a dense layer of one tower, or of several in the leading axes.

    Attributes:
        kernel: [..., in, out].
        bias: [..., out].
        norm: weights of the normalization (see `normalize`), each [..., out]; empty for none.
    """

    kernel: tf.Tensor
    bias: tf.Tensor
    norm: tuple[tf.Tensor, ...] = ()


def select_weights(
    layers: Sequence[Dense], select: Callable[[Any], Any], batched: bool = False
) -> list[Dense]:
    """Selects weights of some towers from each layer.

    Args:
        layers: stacked in the first axis.
        select: selects from a stack.
        batched: whether vectors get an axis for the rows, [..., 1, out], as batched products need.

    Example:
        >>> layers = [Dense(tf.ones([3, 4, 2]), tf.zeros([3, 2]))]
        >>> [layer] = select_weights(layers, lambda w: w[1:], batched=True)
        >>> layer.kernel.shape, layer.bias.shape
        (TensorShape([2, 4, 2]), TensorShape([2, 1, 2]))
    """

    def vector(stacked: tf.Tensor) -> Any:
        values = select(stacked)
        return values[..., tf.newaxis, :] if batched else values

    return [
        Dense(select(layer.kernel), vector(layer.bias), tuple(map(vector, layer.norm)))
        for layer in layers
    ]


def glorot_uniform(fan_in: int, fan_out: int, seed: int | None = None) -> Any:
    """An initializer of stacked kernels [..., fan_in, fan_out]: glorot-uniform for each of them.

    Example:
        >>> kernels = glorot_uniform(2, 4, seed=1)([100, 2, 4])
        >>> bool(tf.reduce_max(tf.abs(kernels)) <= 1.0)  # sqrt(6 / (2 + 4))
        True
    """
    limit = (6.0 / (fan_in + fan_out)) ** 0.5
    return tf.keras.initializers.RandomUniform(-limit, limit, seed=seed)


def seeded_initializer(
    initializer: Any, seed: int | None = None, num_kernels: int = 1, factor: float = 1.0
) -> Any:
    """Copies a Keras initializer with a seed, for one kernel or a stack of kernels.

    Keras treats the leading axis of a stack [N, in, out] as that of a convolution, so its
    variance-scaling initializers (Glorot, He, LeCun) would start the kernels too small.

    Args:
        initializer: a Keras initializer.
        seed: seed of the copy if the initializer has none.
        num_kernels: N, for variance-scaling initializers; 1 for a single kernel [in, out].
        factor: scales the values, > 0.

    Example:
        >>> glorot = tf.keras.initializers.GlorotUniform()
        >>> kernels = seeded_initializer(glorot, seed=1, num_kernels=100)([100, 2, 4])
        >>> float(tf.reduce_max(tf.abs(kernels))) > 0.9  # sqrt(6 / (2 + 4)) = 1
        True
    """
    keras = tf.keras.initializers
    if isinstance(initializer, keras.VarianceScaling):
        scale = initializer.scale * num_kernels * factor**2
        own = initializer.seed
        return keras.VarianceScaling(
            scale, initializer.mode, initializer.distribution, seed if own is None else own
        )
    copy = initializer
    if isinstance(initializer, keras.Initializer):
        config = initializer.get_config()
        if "seed" in config and config["seed"] is None:
            config["seed"] = seed
        copy = type(initializer).from_config(config)
    if factor == 1:
        return copy

    def scaled(shape: Any, dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        return factor * copy(shape, dtype=dtype, **kwargs)

    return scaled
