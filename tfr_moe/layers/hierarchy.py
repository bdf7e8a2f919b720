"""The hierarchical soft constraint (HSC) between the gates of sub-category and top category."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.warmup import make_step, next_factor
from tfr_moe.reduction import mean_over_items

Side = Literal["none", "constraint", "inference"]
Compared = Literal["probabilities", "logits"]


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class HierarchicalSoftConstraint(tf.keras.layers.Layer):
    r"""Draws the gate of a sub-category to the gate of its top category.

    $$ HSC = \sum_{i \in U_{topK}} \left( p^I_i - p^C_i \right)^2, \qquad
       p^I = \text{softmax}(G^I(x^{sc})), \quad p^C = \text{softmax}(G^C(x^{tc})) $$

    (eqs. 8 to 10 of Xiao et al.). Both softmaxes run over all N experts and over clean logits; the sum
    runs over the experts that the inference gate selected in this forward pass. In training the layer
    adds `weight` times the mean over valid items to the losses. Gradients reach both gates and both
    embeddings, never the towers. The paper's public code takes raw logits instead of probabilities; we
    follow the paper; `on="logits"` is the other.

    As it stands the constraint moves both gates to each other, and a top category's gate can give up what
    it learned from all its lists for the sake of a sub-category. `fixed_side` stops the gradient of one.

    Args:
        weight: lambda_1, >= 0.
        fixed_side: the gate that HSC does not move: `none`, `constraint` (top categories teach their
            sub-categories) or `inference` (the other way round).
        on: what is compared: `probabilities` or `logits`.
        warmup_steps: training steps over which the weight grows from 0.

    Example:
        >>> hsc = HierarchicalSoftConstraint(weight=0.1)
        >>> logits = tf.constant([[0.0, 0.0]])
        >>> hsc(logits, logits, tf.constant([[1]]), num_items=tf.constant([3.0])).numpy()
        array([0.], dtype=float32)
    """

    def __init__(
        self,
        weight: float = 1e-3,
        fixed_side: Side = "none",
        on: Compared = "probabilities",
        warmup_steps: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if weight < 0:
            raise ValueError(f"weight must be >= 0. Received: weight={weight}")
        for name, value, kind in (("fixed_side", fixed_side, Side), ("on", on, Compared)):
            if value not in get_args(kind):
                raise ValueError(f"{name} must be one of {get_args(kind)}. Received: {value!r}")
        self.weight, self.fixed_side, self.on = weight, fixed_side, on
        self.warmup_steps = warmup_steps
        self.step = make_step(self, warmup_steps)

    def call(
        self,
        inference_logits: Any,
        constraint_logits: Any,
        indices: Any,
        num_items: Any,
        training: bool = False,
    ) -> Any:
        """Computes HSC and, in training, adds it to the losses.

        Args:
            inference_logits: G^I, [..., N] with `...` = B (lists) or B, L (items).
            constraint_logits: G^C, [B, N].
            indices: int32 [..., K], the selected experts.
            num_items: [...] number of valid items behind each gate decision.
            training: whether to add the loss.

        Returns:
            HSC, [...].
        """
        inference = inference_logits
        # Keras casts the first argument only.
        constraint = tf.cast(constraint_logits, inference.dtype)
        if self.on == "probabilities":
            inference, constraint = tf.nn.softmax(inference), tf.nn.softmax(constraint)
        if self.fixed_side == "inference":
            inference = tf.stop_gradient(inference)
        elif self.fixed_side == "constraint":
            constraint = tf.stop_gradient(constraint)
        if len(inference_logits.shape) == 3:
            constraint = tf.broadcast_to(constraint[:, tf.newaxis, :], tf.shape(inference))
        gap = tf.square(inference - constraint)
        hsc = tf.reduce_sum(tf.gather(gap, indices, batch_dims=len(gap.shape) - 1), axis=-1)
        if training and self.weight > 0:
            weight = self.weight * next_factor(self.step, self.warmup_steps)
            self.add_loss(weight * mean_over_items(hsc, num_items))
        return hsc

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "weight": self.weight,
            "fixed_side": self.fixed_side,
            "on": self.on,
            "warmup_steps": self.warmup_steps,
        }
