"""The hierarchical soft constraint (HSC) between the gates of sub-category and top category."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.reduction import mean_over_items


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class HierarchicalSoftConstraint(tf.keras.layers.Layer):
    r"""Draws the gate of a sub-category to the gate of its top category.

    $$ HSC = \sum_{i \in U_{topK}} \left( p^I_i - p^C_i \right)^2, \qquad
       p^I = \text{softmax}(G^I(x^{sc})), \quad p^C = \text{softmax}(G^C(x^{tc})) $$

    (eqs. 8 to 10 of Xiao et al.). Both softmaxes run over all N experts and over clean logits; the sum
    runs over the experts that the inference gate selected in this forward pass. In training the layer
    adds `weight` times the mean over valid items to the losses. Gradients reach both gates and both
    embeddings, never the towers. The paper's public code takes raw logits instead of probabilities; we
    follow the paper.

    Args:
        weight: lambda_1, >= 0.

    Example:
        >>> hsc = HierarchicalSoftConstraint(weight=0.1)
        >>> logits = tf.constant([[0.0, 0.0]])
        >>> hsc(logits, logits, tf.constant([[1]]), num_items=tf.constant([3.0])).numpy()
        array([0.], dtype=float32)
    """

    def __init__(self, weight: float = 1e-3, **kwargs: Any):
        super().__init__(**kwargs)
        if weight < 0:
            raise ValueError(f"weight must be >= 0. Received: weight={weight}")
        self.weight = weight

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
        inference = tf.nn.softmax(inference_logits)
        # Keras casts the first argument only.
        constraint = tf.nn.softmax(tf.cast(constraint_logits, inference.dtype))
        if len(inference_logits.shape) == 3:
            constraint = tf.broadcast_to(constraint[:, tf.newaxis, :], tf.shape(inference))
        gap = tf.square(inference - constraint)
        hsc = tf.reduce_sum(tf.gather(gap, indices, batch_dims=len(gap.shape) - 1), axis=-1)
        if training and self.weight > 0:
            self.add_loss(self.weight * mean_over_items(hsc, num_items))
        return hsc

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "weight": self.weight}
