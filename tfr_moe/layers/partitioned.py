"""Normalisation by domain: what is usual in one domain is not in another."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.expert_norm import EPSILON, MOMENTUM
from tfr_moe.layers.grouping import take_experts
from tfr_moe.layers.rows import where_valid


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PartitionedNormalization(tf.keras.layers.Layer):
    r"""Normalises each column of the items by the moments of its list's domain.

    $$ \hat{z} = \gamma \gamma_p \frac{z - \mu_p}{\sqrt{\sigma_p^2 + \epsilon}} + \beta + \beta_p $$

    for an item z of domain p (Sheng et al. 2021, "One Model to Serve All: Star Topology Adaptive
    Recommender for Multi-Domain CTR Prediction", section on partitioned normalisation): scale and shift
    are those of all domains with those of the domain. In training mean and variance are those of the
    domain's valid items in the batch, otherwise moving ones.

    Batches of lists mix domains, and a small domain has few items in each. Its moving moments therefore
    count items, not batches: m_p is a sum of the batches' items that fades by 0.99 with each batch of the
    domain, and n new items move the mean by n / m_p of the difference, from wherever it started, the variance
    likewise with the spread between batches in it. A domain without an item in training has the moments of
    domain 0, or leaves z as it is if that has none either.

    What all items of a domain share, such as the embedding of a category that is the domain, becomes 0.
    gamma_p is kept as its difference from 1, so that weight decay draws a domain to what is shared.

    Computes in float32 whatever its policy.

    Args:
        num_domains: number of domains, with domain 0 of unknown ones.

    Raises:
        ValueError: for no domain.

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

        def weight(name: str, shape: list[int], start: str = "zeros", **kwargs: Any) -> Any:
            return self.add_weight(
                name, shape, tf.float32, start, experimental_autocast=False, **kwargs
            )

        moving: dict[str, Any] = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.MEAN,
        }
        each = [self.num_domains, width]
        self.scale = weight("norm_scale", [width], "ones")
        self.shift = weight("norm_bias", [width])
        self.domain_scale = weight("domain_norm_scale", each)
        self.domain_shift = weight("domain_norm_bias", each)
        self.moving_mean = weight("moving_mean", each, **moving)
        self.moving_variance = weight("moving_variance", each, "ones", **moving)
        self.moving_items = weight("moving_items", [self.num_domains, 1], **moving)
        super().build(input_shape)

    def call(self, inputs: Any, domains: Any, mask: Any = None, training: bool = False) -> Any:
        """Normalises the valid items of each list.

        Args:
            inputs: [B, L, n].
            domains: int32 [B].
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: whether moments are those of the batch, and are learned.

        Returns:
            float32 [B, L, n], 0 at padded items.
        """
        values = tf.cast(inputs, tf.float32)
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        # Before all else: what stands at padded places could be no number.
        values = where_valid(values, mask)
        means, variances = self._of_batch(values, domains, mask) if training else self._remembered()

        def of_list(by_domain: Any) -> Any:
            return take_experts(by_domain, domains)[:, tf.newaxis]

        factor = self.scale * (1.0 + tf.convert_to_tensor(self.domain_scale))
        scales = factor * tf.math.rsqrt(variances + EPSILON)
        shifts = self.shift + tf.convert_to_tensor(self.domain_shift)
        result = (values - of_list(means)) * of_list(scales) + of_list(shifts)
        return where_valid(result, mask)

    def _of_batch(self, values: Any, domains: Any, mask: Any) -> tuple[Any, Any]:
        """Means and variances of the domains in the batch, [domains, n]; learns them."""

        def summed(items: Any) -> Any:
            by_list = tf.reduce_sum(where_valid(items, mask), axis=1)
            return tf.math.unsorted_segment_sum(by_list, domains, self.num_domains)

        counts = summed(tf.ones_like(values[..., :1]))
        size = tf.maximum(counts, 1.0)
        means = summed(values) / size
        own = take_experts(means, domains)[:, tf.newaxis]
        variances = summed(tf.square(values - own)) / size
        self._learn(tf.stop_gradient(means), tf.stop_gradient(variances), counts)
        return means, variances

    def _learn(self, means: Any, variances: Any, counts: Any) -> None:
        before = tf.convert_to_tensor(self.moving_items)
        items = tf.where(counts > 0, MOMENTUM * before + counts, before)
        rate = tf.math.divide_no_nan(counts, items)
        difference = means - self.moving_mean
        spread = (1.0 - rate) * tf.square(difference)
        self.moving_variance.assign_add(rate * (variances + spread - self.moving_variance))
        self.moving_mean.assign_add(rate * difference)
        self.moving_items.assign(items)

    def _remembered(self) -> tuple[Any, Any]:
        seen = tf.convert_to_tensor(self.moving_items) > 0
        moments = (self.moving_mean, self.moving_variance)
        means, variances = (tf.where(seen, m, tf.convert_to_tensor(m)[:1]) for m in moments)
        return means, variances

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "num_domains": self.num_domains}
