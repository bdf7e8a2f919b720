"""Training metrics of gates and experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TrainingMean(tf.keras.metrics.Mean):
    """A running mean, NaN instead of 0 before anything is recorded.

    The regularizers exist in training only. In an evaluation their metrics have no value.

    Example:
        >>> float(TrainingMean().result())
        nan
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
        return tf.where(self.count > 0, super().result(), float("nan"))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertUsage(Configured, tf.keras.metrics.Metric):
    r"""The distribution of an epoch's gate weight over the experts.

    With u_i the gate weight that expert i received since the last reset and s_i = u_i / sum(u), the
    result holds `dead_experts`, the number of experts with s_i < 0.01 / N (less than a hundredth of
    an equal share), and `busiest_share`, the sum of the K largest s_i, which is K / N under perfect
    balance and 1 if K experts receive all items. Both are NaN before anything is recorded.

    Args:
        num_experts: N.
        top_k: K.
        suffix: of the two names, such as `_click` for the gate of a task.
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
        self.num_experts = num_experts
        self.top_k = top_k
        self.suffix = suffix
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
        dead = tf.reduce_sum(tf.cast(share < 0.01 / self.num_experts, tf.float32))
        busiest = tf.reduce_sum(tf.math.top_k(share, k=self.top_k).values)
        undefined = tf.constant(float("nan"))
        return {
            f"dead_experts{self.suffix}": tf.where(total > 0, dead, undefined),
            f"busiest_share{self.suffix}": tf.where(total > 0, busiest, undefined),
        }


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class GateMonitor(Configured, tf.keras.layers.Layer):
    r"""Passes gate weights through and, in training, records how each gate distributes them.

    Per gate g the Keras metrics are `gate_entropy_<g>` (nats, mean over items of
    -sum_i w_i log w_i: 0 for one expert, ln N for an even mixture), `busiest_share_<g>` and
    `dead_experts_<g>` (see `ExpertUsage`). Without names there is no `_<g>`.

    Args:
        num_experts: N.
        top_k: the number of experts that `busiest_share` sums up.
        gates: names of the G gates; `("",)` for a single nameless one.

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
        self.num_experts, self.top_k, self.gates = num_experts, top_k, tuple(gates)
        suffixes = [f"_{gate}" if gate else "" for gate in self.gates]
        self._entropies = [TrainingMean(name=f"gate_entropy{suffix}") for suffix in suffixes]
        self._usages = [
            ExpertUsage(num_experts, top_k, suffix, name=f"expert_usage{suffix}")
            for suffix in suffixes
        ]

    def call(
        self, weights: tf.Tensor, num_items: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """Records and returns gate weights.

        Args:
            weights: [T, G, N].
            num_items: [T], the number of items behind each decision; None for 1.
            training: whether to record.
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
