"""Normalization over valid items: hidden values of each expert, and input columns by domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.checks import check_ids, check_items, full_mask
from tfr_moe.layers.dispatch import take_experts, where_valid

Norm = Literal["none", "batch", "layer"]
EPSILON = 1e-3
MOMENTUM = 0.99
_MOVING: dict[str, Any] = {
    "trainable": False,
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.MEAN,
}


def _add_weight(layer: Any, name: str, shape: Any, start: Any, **kwargs: Any) -> Any:
    """Creates a variable that stays float32 under every precision policy."""
    return layer.add_weight(name, shape, tf.float32, start, experimental_autocast=False, **kwargs)


def add_norm_weights(layer: Any, norm: Norm, depth: int, shape: Sequence[int]) -> tuple[Any, ...]:
    """Creates scale and shift of every expert's units, for `batch` also moving mean and variance.

    Args:
        layer: the Keras layer that owns them.
        norm: the normalization; `none` has no weights.
        depth: index of the hidden layer, for the names.
        shape: [N, h].
    """
    if norm == "none":
        return ()
    learned = (
        _add_weight(layer, f"norm_scale_{depth}", shape, "ones"),
        _add_weight(layer, f"norm_bias_{depth}", shape, "zeros"),
    )
    if norm == "layer":
        return learned
    return (
        *learned,
        _add_weight(layer, f"moving_mean_{depth}", shape, "zeros", **_MOVING),
        _add_weight(layer, f"moving_variance_{depth}", shape, "ones", **_MOVING),
    )


class ExpertMoments:
    """Mean and variance of the rows of a batch by expert, which update the moving averages."""

    def __init__(self) -> None:
        self._of_depth: dict[int, list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]] = defaultdict(list)

    def __call__(self, depth: int, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of the rows [T, h] of the next expert, or [N, T, h] of all."""
        count = tf.cast(tf.shape(values)[-2], tf.float32)
        size = tf.maximum(count, 1.0)
        mean = tf.reduce_sum(values, -2, keepdims=True) / size
        variance = tf.reduce_sum(tf.square(values - mean), -2, keepdims=True) / size
        self._record(depth, mean, variance, tf.fill(tf.shape(mean)[:-1], count))
        return mean, variance

    def _record(self, depth: int, mean: tf.Tensor, variance: tf.Tensor, counts: tf.Tensor) -> None:
        self._of_depth[depth].append((mean, variance, counts))

    def update(self, norms: Sequence[Sequence[Any]]) -> None:
        """Updates the moving averages of the experts that had a row in this batch.

        Args:
            norms: by hidden layer, the weights of `add_norm_weights`.
        """
        for depth, recorded in self._of_depth.items():
            *_, moving_mean, moving_variance = norms[depth]
            parts = zip(*recorded, strict=True)
            means, variances, counts = (tf.concat(part, 0) for part in parts)
            used = tf.reshape(counts, [-1, 1]) > 0
            for moving, values in ((moving_mean, means), (moving_variance, variances)):
                of_batch = tf.reshape(values, tf.shape(moving))
                change = (1 - MOMENTUM) * (of_batch - moving)
                moving.assign_add(tf.where(used, change, tf.zeros_like(change)))


class GroupMoments(ExpertMoments):
    """Moments of rows in groups (see `group_rows`).

    Args:
        experts: int32 [G], the expert of each group.
        valid: bool [G, C], whether a slot has a row.
        num_experts: N.
    """

    def __init__(self, experts: tf.Tensor, valid: tf.Tensor, num_experts: int):
        super().__init__()
        self._experts = experts
        self._valid = tf.cast(valid, tf.float32)[..., tf.newaxis]
        self._num_experts = num_experts

    def _sum(self, values: tf.Tensor) -> tf.Tensor:
        by_group = tf.reduce_sum(values * self._valid, axis=1)
        return tf.math.unsorted_segment_sum(by_group, self._experts, self._num_experts)

    def __call__(self, depth: int, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments [G, 1, h] of the expert of each group, from rows [G, C, h]."""
        counts = self._sum(tf.ones_like(values[..., :1]))
        size = tf.maximum(counts, 1.0)
        means = self._sum(values) / size
        mean = tf.gather(means, self._experts)[:, tf.newaxis]
        variances = self._sum(tf.square(values - mean)) / size
        self._record(depth, means, variances, counts)
        return mean, tf.gather(variances, self._experts)[:, tf.newaxis]


def normalize(values: tf.Tensor, norm: Sequence[tf.Tensor], moments: Any, depth: int) -> tf.Tensor:
    r"""Normalizes hidden values, in float32 whatever their dtype.

    $$ \hat{h} = \gamma \frac{h - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta $$

    with mean and variance over the units of each item (layer normalization, Ba et al. 2016,
    https://arxiv.org/abs/1607.06450), or of each unit over the items of the expert (batch
    normalization, Ioffe and Szegedy 2015, https://arxiv.org/abs/1502.03167): those of the batch in
    training, moving averages otherwise.

    Args:
        values: [..., T, h].
        norm: the expert's scale, shift and, for batch normalization, moving mean and variance, of
            shapes that broadcast to `values`.
        moments: an `ExpertMoments` in training; None for the moving averages.
        depth: index of the hidden layer, for `moments`.

    Example:
        >>> norm = (tf.ones([2]), tf.zeros([2]))
        >>> normalize(tf.constant([[1.0, 3.0]]), norm, None, 0).numpy().round(2).tolist()
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


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PartitionedNormalization(Configured, tf.keras.layers.Layer):
    r"""Normalizes each column of the items by the moments of its list's domain.

    $$ \hat{z} = \gamma \gamma_p \frac{z - \mu_p}{\sqrt{\sigma_p^2 + \epsilon}} + \beta + \beta_p $$

    for an item z of domain p (Sheng et al. 2021, "One Model to Serve All: Star Topology Adaptive
    Recommender for Multi-Domain CTR Prediction", https://arxiv.org/abs/2101.11427): scale and shift
    combine those of all domains with those of the domain. In training mean and variance are those
    of the domain's valid items in the batch, otherwise moving ones.

    Batches of lists mix domains, and a small domain has few items in each. Its moving moments
    therefore count items, not batches: m_p is a sum of the batches' items that decays by 0.99 with
    each batch of the domain, and n new items move the mean by n / m_p of the difference, whatever
    its start; likewise the variance, including the variance between batches. A domain without an
    item in training uses the moments of domain 0, or leaves z unchanged if that has none either.

    Columns that all items of a domain share, such as the embedding of a category that is the
    domain, become 0. gamma_p is stored as its difference from 1, so that weight decay shrinks a
    domain to what is shared. Computes in float32 whatever its policy.

    Args:
        num_domains: number of domains, including domain 0 of unknown ones.

    Raises:
        ValueError: for no domain, or inputs or domains of the wrong shape.

    Example:
        >>> norm = PartitionedNormalization(num_domains=2)
        >>> items = tf.constant([[[1.0], [3.0]], [[10.0], [30.0]]])
        >>> norm(items, tf.constant([0, 1]), training=True).numpy().round(1).tolist()
        [[[-1.0], [1.0]], [[-1.0], [1.0]]]
    """

    def __init__(self, num_domains: int, **kwargs: Any):
        super().__init__(**kwargs)
        if num_domains < 1:
            raise ValueError(f"num_domains must be >= 1. Received: num_domains={num_domains}")
        self.num_domains = num_domains

    def build(self, input_shape: Any) -> None:
        """Creates scales and shifts, [n] of all and [domains, n], and the moving moments."""
        width = int(input_shape[-1])
        each = [self.num_domains, width]
        self.scale = _add_weight(self, "norm_scale", [width], "ones")
        self.shift = _add_weight(self, "norm_bias", [width], "zeros")
        self.domain_scale = _add_weight(self, "domain_norm_scale", each, "zeros")
        self.domain_shift = _add_weight(self, "domain_norm_bias", each, "zeros")
        self.moving_mean = _add_weight(self, "moving_mean", each, "zeros", **_MOVING)
        self.moving_variance = _add_weight(self, "moving_variance", each, "ones", **_MOVING)
        counts = [self.num_domains, 1]
        self.moving_items = _add_weight(self, "moving_items", counts, "zeros", **_MOVING)
        super().build(input_shape)

    def call(
        self,
        inputs: tf.Tensor,
        domains: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Normalizes the valid items of each list.

        Args:
            inputs: [B, L, n].
            domains: int32 [B].
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: whether moments are those of the batch, and update the moving ones.

        Returns:
            float32 [B, L, n], 0 at padded items.
        """
        check_items(inputs, mask)
        check_ids("domains", domains, inputs)
        values = tf.cast(inputs, tf.float32)
        mask = full_mask(inputs, mask)
        # First of all, since padded items may hold NaN.
        values = where_valid(values, mask)
        means, variances = (
            self._batch_moments(values, domains, mask) if training else self._moving_moments()
        )

        def of_list(by_domain: tf.Tensor) -> tf.Tensor:
            return take_experts(by_domain, domains)[:, tf.newaxis]

        factor = self.scale * (1.0 + tf.convert_to_tensor(self.domain_scale))
        scales = factor * tf.math.rsqrt(variances + EPSILON)
        shifts = self.shift + tf.convert_to_tensor(self.domain_shift)
        result = (values - of_list(means)) * of_list(scales) + of_list(shifts)
        return where_valid(result, mask)

    def _batch_moments(
        self, values: tf.Tensor, domains: tf.Tensor, mask: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances by domain, [domains, n]; updates the moving moments."""

        def summed(items: tf.Tensor) -> tf.Tensor:
            by_list = tf.reduce_sum(where_valid(items, mask), axis=1)
            return tf.math.unsorted_segment_sum(by_list, domains, self.num_domains)

        counts = summed(tf.ones_like(values[..., :1]))
        size = tf.maximum(counts, 1.0)
        means = summed(values) / size
        of_list = take_experts(means, domains)[:, tf.newaxis]
        variances = summed(tf.square(values - of_list)) / size
        self._update(tf.stop_gradient(means), tf.stop_gradient(variances), counts)
        return means, variances

    def _update(self, means: tf.Tensor, variances: tf.Tensor, counts: tf.Tensor) -> None:
        before = tf.convert_to_tensor(self.moving_items)
        items = tf.where(counts > 0, MOMENTUM * before + counts, before)
        rate = tf.math.divide_no_nan(counts, items)
        difference = means - self.moving_mean
        between = (1.0 - rate) * tf.square(difference)
        self.moving_variance.assign_add(rate * (variances + between - self.moving_variance))
        self.moving_mean.assign_add(rate * difference)
        self.moving_items.assign(items)

    def _moving_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        trained = tf.convert_to_tensor(self.moving_items) > 0
        moments = (self.moving_mean, self.moving_variance)
        means, variances = (tf.where(trained, m, tf.convert_to_tensor(m)[:1]) for m in moments)
        return means, variances
