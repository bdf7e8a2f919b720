"""Batch and layer normalisation inside towers: each expert over its own valid items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from tfr_moe._compat import tf

Norm = Literal["none", "batch", "layer"]
EPSILON = 1e-3
MOMENTUM = 0.99


def add_norm_weights(layer: Any, norm: Norm, depth: int, shape: Sequence[int]) -> tuple[Any, ...]:
    """Scale and shift of every expert's units, and for `batch` moving mean and variance.

    Args:
        layer: the Keras layer that holds them.
        norm: which normalisation; `none` has no weights.
        depth: number of the hidden layer, for the names.
        shape: [N, h].
    """
    if norm == "none":
        return ()

    def weight(name: str, start: str, **kwargs: Any) -> Any:
        return layer.add_weight(
            f"{name}_{depth}", shape, tf.float32, start, experimental_autocast=False, **kwargs
        )

    learned = (weight("norm_scale", "ones"), weight("norm_bias", "zeros"))
    if norm == "layer":
        return learned
    moving: dict[str, Any] = {
        "trainable": False,
        "synchronization": tf.VariableSynchronization.ON_READ,
        "aggregation": tf.VariableAggregation.MEAN,
    }
    return (
        *learned,
        weight("moving_mean", "zeros", **moving),
        weight("moving_variance", "ones", **moving),
    )


class Moments:
    """Mean and variance of the rows of a batch, by expert, and what is to be remembered of them."""

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[Any, Any, Any]]] = defaultdict(list)

    def __call__(self, depth: int, values: Any) -> tuple[Any, Any]:
        """Of the rows [T, h] of the next expert, or [N, T, h] of all."""
        count = tf.cast(tf.shape(values)[-2], tf.float32)
        size = tf.maximum(count, 1.0)
        mean = tf.reduce_sum(values, -2, keepdims=True) / size
        variance = tf.reduce_sum(tf.square(values - mean), -2, keepdims=True) / size
        self._note(depth, mean, variance, tf.fill(tf.shape(mean)[:-1], count))
        return mean, variance

    def _note(self, depth: int, mean: Any, variance: Any, counts: Any) -> None:
        self._seen[depth].append((mean, variance, counts))

    def learn(self, norms: Sequence[Sequence[Any]]) -> None:
        """Moves the moving averages of the experts that had a row in this batch.

        Args:
            norms: by hidden layer what `add_norm_weights` made.
        """
        for depth, seen in self._seen.items():
            *_, moving_mean, moving_variance = norms[depth]
            means, variances, counts = (tf.concat(part, 0) for part in zip(*seen, strict=True))
            used = tf.reshape(counts, [-1, 1]) > 0
            for moving, values in ((moving_mean, means), (moving_variance, variances)):
                now = tf.reshape(values, tf.shape(moving))
                change = (1 - MOMENTUM) * (now - moving)
                moving.assign_add(tf.where(used, change, tf.zeros_like(change)))


class GroupMoments(Moments):
    """The same where rows stand in groups.

    Args:
        experts: int32 [G], whose group it is.
        valid: bool [G, C], whether there is a row.
        num_experts: N.
    """

    def __init__(self, experts: Any, valid: Any, num_experts: int):
        super().__init__()
        self._experts = experts
        self._valid = tf.cast(valid, tf.float32)[..., tf.newaxis]
        self._num_experts = num_experts

    def _sum(self, values: Any) -> Any:
        by_group = tf.reduce_sum(values * self._valid, axis=1)
        return tf.math.unsorted_segment_sum(by_group, self._experts, self._num_experts)

    def __call__(self, depth: int, values: Any) -> tuple[Any, Any]:
        """Of the rows [G, C, h], each group's expert's: [G, 1, h]."""
        counts = self._sum(tf.ones_like(values[..., :1]))
        size = tf.maximum(counts, 1.0)
        means = self._sum(values) / size
        mean = tf.gather(means, self._experts)[:, tf.newaxis]
        variances = self._sum(tf.square(values - mean)) / size
        self._note(depth, means, variances, counts)
        return mean, tf.gather(variances, self._experts)[:, tf.newaxis]


def normalised(values: Any, norm: Sequence[Any], moments: Any, depth: int) -> Any:
    r"""Normalises hidden values, in float32 whatever their dtype.

    $$ \hat{h} = \gamma \frac{h - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta $$

    with mean and variance of the units of each item (layer normalisation, Ba et al. 2016), or of each
    unit over the items of the expert (batch normalisation, Ioffe and Szegedy 2015): of the batch in
    training, moving averages of them otherwise.

    Args:
        values: [..., T, h].
        norm: the expert's scale, shift and, for batch normalisation, moving mean and variance; their
            shapes go with `values`.
        moments: gives the batch's mean and variance in training; None for the moving ones.
        depth: number of the hidden layer, for `moments`.

    Example:
        >>> norm = (tf.ones([2]), tf.zeros([2]))
        >>> normalised(tf.constant([[1.0, 3.0]]), norm, None, 0).numpy().round(2).tolist()
        [[-1.0, 1.0]]
    """
    scale, shift, *moving = norm
    exact = tf.cast(values, tf.float32)
    if not moving:
        mean, variance = tf.nn.moments(exact, axes=[-1], keepdims=True)
    elif moments is None:
        mean, variance = moving
    else:
        mean, variance = moments(depth, exact)
    result = (exact - mean) * tf.math.rsqrt(variance + EPSILON) * scale + shift
    return tf.cast(result, values.dtype)
