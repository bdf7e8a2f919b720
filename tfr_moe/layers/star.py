"""STAR: normalization by domain, and a tower whose weights each domain multiplies by others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import Dense, gather_rows, where_valid
from tfr_moe.layers.experts import TOWER, ExpertTowers, ItemTower
from tfr_moe.layers.shapes import sizes

EPSILON = 1e-3
MOMENTUM = 0.99
_MOVING: dict[str, Any] = {
    "trainable": False,
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.MEAN,
}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PartitionedNormalization(ConfiguredLayer):
    r"""Normalizes each column of the items by the moments of its list's domain.

    $$ \hat{z} = \gamma \gamma_p \frac{z - \mu_p}{\sqrt{\sigma_p^2 + \epsilon}} + \beta + \beta_p $$

    for an item z of domain p (Sheng et al. 2021, https://arxiv.org/abs/2101.11427): scale and shift
    combine those of all domains with those of the domain. In training mean and variance are those
    of the domain's valid items in the batch, otherwise moving ones.

    Batches of lists mix domains, and a small domain has few items in each. Its moving moments
    therefore count items, not batches: m_p is a sum of the batches' items that decays by 0.99 with
    each batch of the domain, and n new items move the mean by n / m_p of the difference, whatever
    its start; likewise the variance, including the variance between batches. A domain without an
    item in training uses the moments of domain 0, or leaves z unchanged if that has none either.

    gamma_p is stored as its difference from 1, so that weight decay shrinks a domain to what is
    shared. Computes in float32 whatever its policy.

    Args:
        num_domains: number of domains, including domain 0 of unknown ones.

    Raises:
        ValueError: for inputs or domains of the wrong shape.

    Example:
        >>> norm = PartitionedNormalization(num_domains=2)
        >>> items = tf.constant([[[1.0], [3.0]], [[10.0], [30.0]]])
        >>> norm(items, tf.constant([0, 1]), training=True).numpy().round(1).tolist()
        [[[-1.0], [1.0]], [[-1.0], [1.0]]]
    """

    def __init__(self, num_domains: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: Any) -> None:
        """Creates scales and shifts, [n] of all and [domains, n], and the moving moments."""
        width = int(input_shape[-1])
        each = [self.num_domains, width]
        self.scale = self.add_float32_weight("norm_scale", [width], "ones")
        self.shift = self.add_float32_weight("norm_bias", [width], "zeros")
        self.domain_scale = self.add_float32_weight("domain_norm_scale", each, "zeros")
        self.domain_shift = self.add_float32_weight("domain_norm_bias", each, "zeros")
        self.moving_mean = self.add_float32_weight("moving_mean", each, "zeros", **_MOVING)
        self.moving_variance = self.add_float32_weight("moving_variance", each, "ones", **_MOVING)
        counts = [self.num_domains, 1]
        self.moving_items = self.add_float32_weight("moving_items", counts, "zeros", **_MOVING)
        super().build(input_shape)

    def call(
        self,
        inputs: tf.Tensor,
        domains: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Normalizes the items [B, L, n] of lists of domains int32 [B] -> float32 [B, L, n].

        The result is 0 outside of `mask`, bool [B, L]. In training moments are those of the batch,
        and update the moving ones.
        """
        mask = valid_items(inputs, mask)
        check_argument("domains", domains, "integers", inputs.shape[:1])
        values = tf.cast(inputs, tf.float32)
        # First of all, since padded items may hold NaN.
        values = where_valid(values, mask)
        if training:
            means, variances = self._batch_moments(values, domains, mask)
        else:
            trained = tf.convert_to_tensor(self.moving_items) > 0
            moments = (self.moving_mean, self.moving_variance)
            means, variances = (tf.where(trained, m, tf.convert_to_tensor(m)[:1]) for m in moments)

        def of_list(by_domain: tf.Tensor) -> tf.Tensor:
            return tf.expand_dims(gather_rows(by_domain, domains), axis=1)

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
        of_list = tf.expand_dims(gather_rows(means, domains), axis=1)
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


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class StarTowers(ExpertTowers):
    r"""A tower for each domain, each weight the product of a shared one and one of the domain.

    $$ W_p^* = W \otimes W_p, \qquad b_p^* = b + b_p, \qquad h \leftarrow a(W_p^* h + b_p^*) $$

    layer by layer, with element-wise products (Sheng et al. 2021, https://arxiv.org/abs/2101.11427,
    section on the star topology). W_p starts as ones and b_p as zeros, so that all domains start as
    the shared tower, and a domain without training lists stays it. W_p is stored as its difference
    from 1: weight decay shrinks a domain to what is shared, not to zero.

    Arguments are those of `ExpertTowers`; `num_experts` is the number of domains, and initializers
    are those of the shared tower.
    """

    def build(self, input_shape: Any) -> None:
        """Creates the stacked weights of the domains, and a shared kernel and bias per layer."""
        super().build(input_shape)
        self.shared: list[tuple[Any, Any]] = []
        widths = [int(input_shape[-1]), *(bias.shape[-1] for bias in self.biases)]
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            kernel = seeded_initializer(self.kernel_initializer, self.offset_seed(depth))
            starts = kernel, super()._starts(depth)[1]
            self.shared.append(self._add_layer(depth, [fan_in, fan_out], starts, "shared_"))

    def _starts(self, depth: int) -> tuple[Any, Any]:
        return "zeros", "zeros"

    def _effective(self, layers: Sequence[Dense]) -> list[Dense]:
        """The products of the shared tower and the weights of the selected domains."""
        effective = []
        for (kernel, bias), (difference, shift) in zip(self.shared, layers, strict=True):
            shared = tf.cast(kernel, difference.dtype)
            product = shared + shared * difference
            effective.append(Dense(product, tf.cast(bias, shift.dtype) + shift))
        return effective


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class StarTopology(ConfiguredLayer):
    r"""The star topology adaptive recommender: scores items by the domain of their list.

    $$ s(z, p) = f_p(\hat{z}) + g([z, e_p]) $$

    (Sheng et al. 2021, "One Model to Serve All: Star Topology Adaptive Recommender for Multi-Domain
    CTR Prediction", https://arxiv.org/abs/2101.11427). z is the input vector of an item and p the
    domain of its list. f_p are the `StarTowers` over the vector normalized by
    `PartitionedNormalization`; g is the auxiliary network, a small tower shared by all domains that
    receives the domain as an embedding e_p.

    Arguments that are not listed are those of `ExpertTowers`, for f and g.

    Args:
        num_domains: number of domains, including domain 0 of unknown ones.
        hidden_dims: widths of the hidden layers of f_p.
        auxiliary_hidden_dims: widths of the hidden layers of g.
        domain_dim: width of e_p.
        domain_norm: whether the vectors are normalized by domain.

    Raises:
        ValueError: for inputs or domains of the wrong shape.

    Example:
        >>> layer = StarTopology(num_domains=3, hidden_dims=[8], auxiliary_hidden_dims=[4])
        >>> layer(tf.ones([2, 5, 6]), tf.constant([1, 0])).shape
        TensorShape([2, 5])
    """

    def __init__(
        self,
        num_domains: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        auxiliary_hidden_dims: Sequence[int] = (64,),
        domain_dim: int = 16,
        domain_norm: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        common = {**self.arguments(*TOWER[1:]), "dtype": self.dtype_policy}
        later = self.offset_seed(100)
        self.norm = PartitionedNormalization(num_domains, name="norm", dtype="float32")
        self.towers = StarTowers(num_domains, hidden_dims, seed=seed, name="towers", **common)
        self.auxiliary = ItemTower(auxiliary_hidden_dims, seed=later, name="auxiliary", **common)
        self.embedding = tf.keras.layers.Embedding(
            num_domains,
            domain_dim,
            embeddings_initializer=tf.keras.initializers.RandomUniform(-0.05, 0.05, seed=later),
            name="domain_embedding",
            dtype=self.dtype_policy,
        )

    def call(
        self,
        inputs: tf.Tensor,
        domains: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Items z [B, L, n] and domains int32 [B] -> float32 logits [B, L], 0 outside of `mask`."""
        valid_items(inputs, mask)
        check_argument("domains", domains, "integers", inputs.shape[:1])
        vectors = inputs
        if self.domain_norm:
            vectors = self.norm(inputs, domains, mask=mask, training=training)
        of_lists = tf.expand_dims(domains, axis=1)
        of_domain = self.towers(vectors, of_lists, mask=mask, training=training)
        embedded = tf.repeat(self.embedding(of_lists), sizes(inputs)[1], axis=1)
        with_domain = tf.concat([inputs, tf.cast(embedded, inputs.dtype)], axis=-1)
        auxiliary = self.auxiliary(with_domain, mask=mask, training=training)
        return tf.cast(tf.squeeze(of_domain, axis=2), tf.float32) + auxiliary
