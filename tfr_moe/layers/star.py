"""STAR: one tower for all domains, bent by each domain to its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.partitioned import PartitionedNormalization
from tfr_moe.layers.stacks import Dense
from tfr_moe.layers.tower import ItemTower


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class StarTowers(ExpertTowers):
    r"""A tower for each domain, whose every weight is a shared one times one of the domain's own.

    $$ W_p^* = W \otimes W_p, \qquad b_p^* = b + b_p, \qquad h \leftarrow a(W_p^* h + b_p^*) $$

    layer by layer, with element-wise products (Sheng et al. 2021, "One Model to Serve All", section on
    the star topology). W_p starts as all ones and b_p as zeros, so that all domains start as the shared
    tower and a domain that training never sees stays it. W_p is kept as its difference from 1: weight
    decay draws a domain to what is shared, not to nothing.

    The towers of the domains in use are computed as those of experts are: each item passes one. Making
    W_p^* costs a product for each weight of each domain and step; a single list, as in most requests,
    makes those of its domain alone. There are (domains + 1) times the parameters of one tower.

    Args are those of `ExpertTowers`, `num_experts` being the number of domains.

    Example:
        >>> towers = StarTowers(num_experts=3, hidden_dims=[4])
        >>> towers(tf.ones([2, 5, 3]), tf.constant([[1], [0]])).shape
        TensorShape([2, 5, 1])
    """

    def build(self, input_shape: Any) -> None:
        """Creates the domains' differences, stacked, and the shared kernel and bias per layer."""
        super().build(input_shape)
        self.shared: list[tuple[Any, Any]] = []
        widths = [int(input_shape[-1]), *(bias.shape[-1] for bias in self.biases)]
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            start = super()._kernel_start(depth, fan_in, fan_out)
            kernel = self.add_weight(f"shared_kernel_{depth}", [fan_in, fan_out], initializer=start)
            bias = self.add_weight(f"shared_bias_{depth}", [fan_out], initializer="zeros")
            self.shared.append((kernel, bias))

    def _kernel_start(self, depth: int, fan_in: int, fan_out: int) -> Any:
        return "zeros"

    def own_weights(self) -> list[Dense]:
        """The layers of all domains as they are computed with, kernels [D, in, out] and biases [D, out]."""
        return self._effective(self._stacks(self.kernels[0].dtype))

    def _effective(self, layers: Sequence[Dense]) -> list[Dense]:
        """The shared tower as the picked domains have it."""
        found = []
        for (kernel, bias), (difference, shift, norm) in zip(self.shared, layers, strict=True):
            shared = tf.cast(kernel, difference.dtype)
            own = shared + shared * difference
            found.append(Dense(own, tf.cast(bias, shift.dtype) + shift, norm))
        return found


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class StarTopology(tf.keras.layers.Layer):
    r"""The star topology adaptive recommender: a score by the domain of the list.

    $$ s(z, p) = f_p(\hat{z}) + g([z, e_p]) $$

    (Sheng et al. 2021, "One Model to Serve All: Star Topology Adaptive Recommender for Multi-Domain CTR
    Prediction"). z is an item's input vector and p the domain of its list. f_p are the `StarTowers` over the
    vector as `PartitionedNormalization` leaves it; g is the auxiliary network, a small tower of all
    domains that is told the domain by an embedding e_p of its own.

    The paper scores single items and draws each of its batches from one domain. Here a batch has lists of
    all domains, and each list trains the weights of its own.

    Args:
        num_domains: number of domains, with domain 0 of unknown ones.
        hidden_dims: widths of the hidden layers of f_p.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        num_outputs: logits for each item.
        auxiliary_hidden_dims: widths of the hidden layers of g.
        domain_dim: width of e_p.
        domain_norm: whether the vectors are normalised by domain.

    Example:
        >>> layer = StarTopology(num_domains=3, hidden_dims=[8], auxiliary_hidden_dims=[4])
        >>> layer(tf.ones([2, 5, 6]), tf.constant([1, 0])).shape
        TensorShape([2, 5])
    """

    def __init__(
        self,
        num_domains: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        auxiliary_hidden_dims: Sequence[int] = (64,),
        domain_dim: int = 16,
        domain_norm: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._config = {
            "num_domains": num_domains,
            "hidden_dims": list(hidden_dims),
            "activation": activation,
            "dropout": dropout,
            "seed": seed,
            "num_outputs": num_outputs,
            "auxiliary_hidden_dims": list(auxiliary_hidden_dims),
            "domain_dim": domain_dim,
            "domain_norm": domain_norm,
        }
        same: dict[str, Any] = {
            "activation": activation,
            "dropout": dropout,
            "num_outputs": num_outputs,
            "dtype": self.dtype_policy,
        }
        later = None if seed is None else seed + 100
        self.norm = PartitionedNormalization(num_domains, name="norm", dtype="float32")
        self.towers = StarTowers(num_domains, hidden_dims, seed=seed, name="towers", **same)
        self.auxiliary = ItemTower(auxiliary_hidden_dims, seed=later, name="auxiliary", **same)
        self.embedding = tf.keras.layers.Embedding(
            num_domains,
            domain_dim,
            embeddings_initializer=tf.keras.initializers.RandomUniform(-0.05, 0.05, seed=later),
            name="domain_embedding",
            dtype=self.dtype_policy,
        )
        self.domain_norm = domain_norm

    def call(self, inputs: Any, domains: Any, mask: Any = None, training: bool = False) -> Any:
        """Scores the valid items of each list.

        Args:
            inputs: [B, L, n] input vectors z.
            domains: int32 [B].
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: whether moments are those of the batch and dropout is active.

        Returns:
            Logits, float32 [B, L], with several outputs [B, L, num_outputs]; 0 at padded items.
        """
        vectors = inputs
        if self.domain_norm:
            vectors = self.norm(inputs, domains, mask=mask, training=training)
        own = self.towers(vectors, domains[:, tf.newaxis], mask=mask, training=training)
        size = tf.shape(inputs)[1]
        told = tf.repeat(self.embedding(domains)[:, tf.newaxis], size, axis=1)
        with_domain = tf.concat([inputs, tf.cast(told, inputs.dtype)], axis=-1)
        auxiliary = self.auxiliary(with_domain, mask=mask, training=training)
        return tf.cast(tf.squeeze(own, axis=2), tf.float32) + auxiliary

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), **self._config}
