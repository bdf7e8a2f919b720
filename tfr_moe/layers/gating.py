"""Noisy top-K gating, its balancing term, and training metrics of gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured, ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import check_argument
from tfr_moe.layers.distribute import seed_of_replica

DEAD_SHARE = 0.01
"""An expert with less than this part of an equal share is dead."""


class GateOutput(NamedTuple):
    """The decision of a gate for each list (`...` = B) or each item (`...` = B, L).

    Attributes:
        logits: [..., N] clean logits G, without noise.
        indices: int32 [..., K], the selected experts, best first.
        weights: [..., K], their softmax weights; they sum to 1.
    """

    logits: tf.Tensor
    indices: tf.Tensor
    weights: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class NoisyTopKGate(ConfiguredLayer):
    r"""Selects K of N experts from a dense gate input.

    $$ G = x W, \qquad P_i = \frac{\exp(H_i)}{\sum_{j \in U_K} \exp(H_j)} \text{ for } i \in U_K,
       \text{ 0 elsewhere} $$

    (eqs. 4 to 6 of Xiao et al., "Adversarial Mixture Of Experts with Category Hierarchy Soft
    Constraint"). U_K is the set of the K largest H. Outside training H = G. In training
    H = G + softplus(x W_noise) * e with e ~ Normal(0, 1) per expert (Shazeer et al., 2017,
    https://arxiv.org/abs/1701.06538), so that the choice of experts is explored and differentiable
    in expectation.

    The kernel is stored divided by `learning_rate_multiplier` and multiplied back in the forward
    pass. Under Adam and its variants, whose step does not depend on the scale of the gradient, the
    gate then learns that many times faster than the rest of the model.

    Args:
        num_experts: N.
        top_k: K, 1 <= K <= N.
        learning_rate_multiplier: factor on the gate's step under Adam-like optimizers, > 0.

    Raises:
        ValueError: if K is not in 1 .. N, or the gate input is not a float tensor.

    Example:
        >>> gate = NoisyTopKGate(num_experts=4, top_k=2)
        >>> out = gate(tf.ones([3, 8]))
        >>> out.indices.shape, out.weights.shape
        (TensorShape([3, 2]), TensorShape([3, 2]))
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        noisy: bool = True,
        learning_rate_multiplier: float = 1.0,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        if not 1 <= top_k <= num_experts:
            raise ValueError(
                f"top_k must be in 1 .. num_experts = {num_experts}. Received: top_k={top_k}"
            )

    def build(self, input_shape: Any) -> None:
        """Creates the two kernels, [q, N]."""
        shape = [int(input_shape[-1]), self.num_experts]
        factor = 1.0 / self.learning_rate_multiplier
        self.kernel = self.add_weight(
            "kernel",
            shape,
            initializer=seeded_initializer(self.kernel_initializer, self.seed, factor=factor),
            regularizer=self.kernel_regularizer,
        )
        if self.noisy:
            self.noise_kernel = self.add_weight("noise_kernel", shape, initializer="zeros")
        super().build(input_shape)

    def call(
        self, inputs: tf.Tensor, offset: tf.Tensor | None = None, training: bool = False
    ) -> GateOutput:
        """Gate inputs x [..., q] -> the selected experts, with noise in training.

        `offset` [..., N], logits of another gate, such as a parent's, is added to the clean logits.
        """
        width = self.kernel.shape[0]
        check_argument("inputs", inputs, "float vectors", [None, width], [None, None, width])
        scaled = inputs * tf.cast(self.learning_rate_multiplier, inputs.dtype)
        logits = tf.matmul(scaled, tf.cast(self.kernel, inputs.dtype))
        if offset is not None:
            logits += tf.cast(offset, logits.dtype)
        noisy_logits = logits
        if training and self.noisy:
            stddev = tf.nn.softplus(tf.matmul(scaled, tf.cast(self.noise_kernel, inputs.dtype)))
            seed = seed_of_replica(self.seed)
            noise = tf.random.normal(tf.shape(logits), dtype=logits.dtype, seed=seed)
            noisy_logits = logits + stddev * noise
        top, indices = tf.math.top_k(noisy_logits, k=self.top_k)
        return GateOutput(logits, indices, tf.nn.softmax(top))


def gate_arguments(layer: Any) -> dict[str, Any]:
    """The arguments of the gates of a layer, but for their seeds, names and noise."""
    return {
        "num_experts": layer.num_experts,
        "top_k": layer.top_k,
        "learning_rate_multiplier": layer.gate_learning_rate_multiplier,
        "kernel_initializer": layer.gate_initializer,
        "kernel_regularizer": layer.gate_regularizer,
        "dtype": "float32",
    }


def expert_importance(gate: GateOutput, num_items: tf.Tensor, num_experts: int) -> tf.Tensor:
    """Sums the gate weights of each expert over items (Shazeer et al. 2017, section 4) -> [N].

    `num_items` [...] are the valid items behind each decision: those of a list, or 1 or 0.
    """
    weights = gate.weights * tf.expand_dims(tf.cast(num_items, gate.weights.dtype), axis=-1)
    return tf.math.unsorted_segment_sum(
        tf.reshape(weights, [-1]), tf.reshape(gate.indices, [-1]), num_experts
    )


def squared_variation(loads: tf.Tensor) -> tf.Tensor:
    """The squared coefficient of variation, Var(v) / Mean(v)^2; 0 if all loads are 0."""
    loads = tf.cast(loads, tf.float32)
    mean = tf.reduce_mean(loads)
    return tf.math.divide_no_nan(tf.math.reduce_variance(loads), tf.square(mean))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TrainingMean(tf.keras.metrics.Mean):
    """A running mean, NaN instead of 0 before anything is recorded.

    The regularizers exist in training only. In an evaluation their metrics have no value. The
    update takes a fraction of the time to trace of that of Keras, which checks for broadcasting.
    """

    def update_state(self, values: tf.Tensor, sample_weight: Any = None) -> None:
        """Adds values to the mean; those of weight 0 are ignored, NaN included."""
        values = tf.cast(values, self.total.dtype)
        weights = tf.ones_like(values)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, weights.dtype)
        values = tf.where(weights > 0, values, 0.0)
        self.total.assign_add(tf.reduce_sum(weights * values))
        self.count.assign_add(tf.reduce_sum(weights))

    def result(self) -> tf.Tensor:
        """The mean so far."""
        return self.total / self.count


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertUsage(Configured, tf.keras.metrics.Metric):
    r"""The distribution of an epoch's gate weight over the experts.

    With u_i the gate weight that expert i received since the last reset and s_i = u_i / sum(u), the
    result holds `dead_experts`, the number of experts with s_i < 0.01 / N (less than a hundredth of
    an equal share), and `busiest_share`, the sum of the K largest s_i, which is K / N under perfect
    balance and 1 if K experts receive all items. Both are NaN before anything is recorded, and
    their names end in `suffix`, such as `_click` for the gate of a task.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        suffix: str = "",
        name: str = "expert_usage",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.keep({"num_experts": num_experts, "top_k": top_k, "suffix": suffix})
        self.usage = self.add_weight("usage", shape=[num_experts], initializer="zeros")

    def update_state(self, importance: tf.Tensor, sample_weight: Any = None) -> None:
        """Adds the gate weight [N] of a batch by expert."""
        self.usage.assign_add(tf.cast(importance, self.usage.dtype))

    def reset_state(self) -> None:
        """Resets the sums to 0."""
        self.usage.assign(tf.zeros_like(self.usage))

    def result(self) -> dict[str, tf.Tensor]:
        """`dead_experts` and `busiest_share` as float scalars."""
        total = tf.reduce_sum(self.usage)
        share = tf.math.divide_no_nan(self.usage, total)
        dead = tf.reduce_sum(tf.cast(share < DEAD_SHARE / self.num_experts, share.dtype))
        busiest = tf.reduce_sum(tf.math.top_k(share, k=self.top_k).values)
        return {
            f"dead_experts{self.suffix}": tf.where(total > 0, dead, float("nan")),
            f"busiest_share{self.suffix}": tf.where(total > 0, busiest, float("nan")),
        }


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class GateMonitor(ConfiguredLayer):
    r"""Passes gate weights through and, in training, records how each gate distributes them.

    Per gate g the Keras metrics are `gate_entropy_<g>` (nats, mean over items of
    -sum_i w_i log w_i: 0 for one expert, ln N for an even mixture), `busiest_share_<g>` and
    `dead_experts_<g>` (see `ExpertUsage`, K being `top_k`). `gates` are the names of the G gates,
    `("",)` for a single one without `_<g>`.

    Example:
        >>> monitor = GateMonitor(num_experts=2, gates=["click"])
        >>> _ = monitor(tf.constant([[[1.0, 0.0]]]), training=True)
        >>> {name: float(v) for name, v in monitor.metrics[1].result().items()}
        {'dead_experts_click': 1.0, 'busiest_share_click': 1.0}
    """

    def __init__(
        self, num_experts: int, top_k: int = 1, gates: Sequence[str] = ("",), **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        suffixes = [f"_{gate}" if gate else "" for gate in self.gates]
        self._entropies = [TrainingMean(name=f"gate_entropy{suffix}") for suffix in suffixes]
        self._usages = [
            ExpertUsage(num_experts, top_k, suffix, name=f"expert_usage{suffix}")
            for suffix in suffixes
        ]

    def call(
        self, weights: tf.Tensor, num_items: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """Returns gate weights [T, G, N] and, in training, records them.

        `num_items` [T] is the number of items behind each decision; None for 1.
        """
        if training:
            exact = tf.cast(weights, tf.float32)
            mass = tf.ones_like(exact[:, 0, 0]) if num_items is None else num_items
            entropies = -tf.reduce_sum(tf.math.xlogy(exact, exact), axis=-1)
            importance = tf.einsum("tgn,t->gn", exact, mass)
            for g, (entropy, usage) in enumerate(zip(self._entropies, self._usages, strict=True)):
                entropy.update_state(entropies[:, g], mass)
                usage.update_state(importance[g])
        return weights
