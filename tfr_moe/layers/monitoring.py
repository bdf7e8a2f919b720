"""Keras metrics through which the regularisers and the gate are watched while training."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class TrainingMean(tf.keras.metrics.Mean):
    """A running mean that is NaN, not 0, where nothing was recorded.

    The regularisers exist in training only. In an evaluation their metrics have no value, and a 0
    would be a false one.

    Example:
        >>> float(TrainingMean().result())
        nan
    """

    def result(self) -> Any:
        """The mean so far."""
        return tf.where(self.count > 0, super().result(), float("nan"))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertUsage(tf.keras.metrics.Metric):
    r"""How an epoch's gate weight is spread over the experts.

    With u_i the gate weight that expert i received since the last reset and s_i = u_i / sum(u), the
    result holds `dead_experts`, the number of experts with s_i < 0.01 / N (less than a hundredth of
    an equal share), and `busiest_share`, the sum of the K largest s_i, which is K / N under perfect
    balance and 1 when K experts do all the work. Both are NaN where nothing was recorded.

    Args:
        num_experts: N.
        top_k: K.
    """

    def __init__(self, num_experts: int, top_k: int, name: str = "expert_usage", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.num_experts = num_experts
        self.top_k = top_k
        self.usage = self.add_weight("usage", shape=[num_experts], initializer="zeros")

    def update_state(self, importance: Any, sample_weight: Any = None) -> None:
        """Adds the gate weight [N] that a batch gave to each expert."""
        self.usage.assign_add(tf.cast(importance, self.usage.dtype))

    def reset_state(self) -> None:
        """Forgets what was recorded."""
        self.usage.assign(tf.zeros_like(self.usage))

    def result(self) -> dict[str, Any]:
        """`dead_experts` and `busiest_share` as float scalars."""
        total = tf.reduce_sum(self.usage)
        share = tf.math.divide_no_nan(self.usage, total)
        dead = tf.reduce_sum(tf.cast(share < 0.01 / self.num_experts, tf.float32))
        busiest = tf.reduce_sum(tf.math.top_k(share, k=self.top_k).values)
        nothing = tf.constant(float("nan"))
        return {
            "dead_experts": tf.where(total > 0, dead, nothing),
            "busiest_share": tf.where(total > 0, busiest, nothing),
        }

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "num_experts": self.num_experts, "top_k": self.top_k}
