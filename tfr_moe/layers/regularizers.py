"""Regularizers of the mixture: hierarchical soft constraint and adversarial loss."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer
from tfr_moe.layers.distribute import mean_over_items, seed_of_replica
from tfr_moe.layers.gating import GateOutput, NoisyTopKGate, TrainingMean


class _WeightedPenalty(ConfiguredLayer):
    """A layer with the weight of its loss term."""

    def __init__(self, weight: float = 1e-3, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class HierarchicalSoftConstraint(_WeightedPenalty):
    r"""Pulls the gates of a sub-category and its top category towards each other.

    $$ HSC = \sum_{i \in U_{topK}} \left( p^I_i - p^C_i \right)^2, \qquad
       p^I = \text{softmax}(G^I(x^{sc})), \quad p^C = \text{softmax}(G^C(x^{tc})) $$

    (eqs. 8 to 10 of Xiao et al.). Both softmaxes are over all N experts and over clean logits; the
    sum is over the experts that the inference gate selected in this forward pass. In training the
    layer adds `weight` times the mean over valid items to the losses. Gradients reach both gates
    and both embeddings, never the towers. The paper's public code compares raw logits instead of
    probabilities; this layer follows the paper.

    Args:
        weight: lambda_1, >= 0.

    Example:
        >>> hsc = HierarchicalSoftConstraint(weight=0.1)
        >>> logits = tf.constant([[0.0, 0.0]])
        >>> hsc(logits, logits, tf.constant([[1]]), num_items=tf.constant([3.0])).numpy()
        array([0.], dtype=float32)
    """

    def call(
        self,
        inference_logits: tf.Tensor,
        constraint_logits: tf.Tensor,
        indices: tf.Tensor,
        num_items: tf.Tensor,
        training: bool = False,
    ) -> tf.Tensor:
        """Computes HSC [...], `...` being B (lists) or B, L (items); training adds it as a loss.

        Logits are G^I [..., N] and G^C [B, N], indices those of the selected experts, int32 [...,
        K], and `num_items` [...] the number of valid items behind each decision.
        """
        inference = tf.nn.softmax(inference_logits)
        # Keras casts the first argument only.
        constraint = tf.nn.softmax(tf.cast(constraint_logits, inference.dtype))
        if len(inference_logits.shape) == 3:
            constraint = tf.broadcast_to(tf.expand_dims(constraint, axis=1), tf.shape(inference))
        gap = tf.square(inference - constraint)
        hsc = tf.reduce_sum(tf.gather(gap, indices, batch_dims=len(gap.shape) - 1), axis=-1)
        if training and self.weight > 0:
            self.add_loss(self.weight * mean_over_items(hsc, num_items))
        return hsc


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ConstraintGate(NoisyTopKGate):
    """The gate on the top category, with the soft constraint that ties an inference gate to it.

    Training adds HSC times `weight` to the losses and records it as a metric. Other arguments are
    those of `NoisyTopKGate`; HSC compares clean logits, so this gate has no noise.

    Example:
        >>> gate, constraint = NoisyTopKGate(4, top_k=2), ConstraintGate(4, top_k=2, weight=0.1)
        >>> decided = gate(tf.ones([3, 8]))
        >>> constraint.constrain(decided, tf.ones([3, 8]), tf.ones([3]), training=True)
        >>> len(constraint.losses)
        1
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        weight: float = 1e-3,
        metric_name: str = "hsc",
        **kwargs: Any,
    ):
        super().__init__(num_experts, top_k, **{**kwargs, "noisy": False})
        self.keep(locals())
        self.hsc = HierarchicalSoftConstraint(weight, name="hsc", dtype="float32")
        self._mean = TrainingMean(name=metric_name)

    def constrain(
        self, gate: GateOutput, inputs: tf.Tensor, num_items: tf.Tensor, training: bool
    ) -> None:
        """Adds HSC between the decision of an inference gate and this gate on x^tc, in training.

        Inputs are [B, q]; for `num_items` see `HierarchicalSoftConstraint`.
        """
        if not self.built:
            # It is called in training only, but its variables belong to every graph.
            with tf.name_scope(self.name):
                self.build(inputs.shape)
        if training:
            logits = self(tf.cast(inputs, tf.float32)).logits
            hsc = self.hsc(gate.logits, logits, gate.indices, num_items, training=True)
            self._mean.update_state(hsc, num_items)


def sample_idle_experts(
    indices: tf.Tensor, num_experts: int, num_adversarial: int, seed: int | None = None
) -> tf.Tensor:
    """Draws D experts uniformly without replacement from those that are not selected.

    `indices` are the selected experts, int32 [..., K], with K + D <= N. Returns int32 [..., D],
    drawn anew at each call and for each list (or item).
    """
    active = tf.reduce_max(tf.one_hot(indices, num_experts), axis=-2)
    # The D largest of independent uniform numbers are a uniform draw; active experts rank last.
    draw = tf.random.uniform(tf.shape(active), seed=seed_of_replica(seed)) - 2.0 * active
    return tf.math.top_k(draw, k=num_adversarial).indices


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class AdversarialExpertPenalty(_WeightedPenalty):
    r"""Rewards disagreement between active and idle experts.

    $$ \text{AdvLoss} = \sum_{i \in U_{topK},\, j \in U_D}
       \left( \sigma(E_i(X)) - \sigma(E_j(X)) \right)^2 \;\in\; [0, K D] $$

    (eq. 11 of Xiao et al.). In training the layer adds `-weight` times the mean over valid items to
    the losses, so that more disagreement lowers the objective (eq. 13). Gradients reach active and
    idle towers. The paper's public code compares logits and takes the idle experts with the lowest
    scores; this layer follows the paper: sigmoids, and idle experts drawn at random
    (`sample_idle_experts`).

    Args:
        weight: lambda_2, >= 0.

    Example:
        >>> penalty = AdversarialExpertPenalty(weight=0.1)
        >>> active, idle = tf.zeros([1, 2, 1]), tf.fill([1, 2, 1], 100.0)
        >>> penalty(active, idle, mask=tf.constant([[True, True]])).numpy()
        array([[0.25, 0.25]], dtype=float32)
    """

    def call(
        self,
        active_logits: tf.Tensor,
        idle_logits: tf.Tensor,
        mask: tf.Tensor,
        training: bool = False,
    ) -> tf.Tensor:
        """Active logits [B, L, K] and idle ones [B, L, D] -> AdvLoss [B, L].

        Training subtracts it from the losses, as a mean over the items in `mask`, bool [B, L]. At
        padded items it is 0 if their logits are equal.
        """
        active = tf.expand_dims(tf.sigmoid(active_logits), axis=-1)
        # Keras casts the first argument only.
        idle = tf.sigmoid(tf.cast(idle_logits, active_logits.dtype))
        idle = tf.expand_dims(idle, axis=-2)
        disagreement = tf.reduce_sum(tf.square(active - idle), axis=[-2, -1])
        if training and self.weight > 0:
            self.add_loss(-self.weight * mean_over_items(disagreement, mask))
        return disagreement
