"""The category-gated mixture of experts: gates, experts and regularizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import DEFAULT_CAPACITY, where_valid
from tfr_moe.layers.distribute import sum_over_replicas
from tfr_moe.layers.experts import TOWER, Dispatch, ExpertTowers, ItemTower
from tfr_moe.layers.gating import (
    ExpertUsage,
    GateOutput,
    NoisyTopKGate,
    TrainingMean,
    expert_importance,
    gate_arguments,
    squared_variation,
)
from tfr_moe.layers.regularizers import (
    AdversarialExpertPenalty,
    ConstraintGate,
    sample_idle_experts,
)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryMixtureOfExperts(ConfiguredLayer):
    r"""Scores the items of a list by the experts of its category (Xiao et al., Fig. 2).

    $$ \hat{y} = \sum_{i \in U_{topK}} P_i(x^{sc}) E_i(X), \qquad
       J = CE + \lambda_1 HSC - \lambda_2 AdvLoss + w_I CV^2(\text{importance}) $$

    (eqs. 7 and 13; the last term is that of Shazeer et al. 2017, https://arxiv.org/abs/1701.06538,
    by default off). CE is the loss of the model; the other terms are added with `add_loss`, in
    training only, each a mean over valid items. The idle experts of AdvLoss are computed in
    training only. Gates, mixing and regularizers run in float32 under every precision policy; the
    experts follow the policy.

    Training records the metrics `hsc`, `adversarial`, `adversarial_share`, `gate_entropy`,
    `dead_experts` and `busiest_share`, which docs/library.md explains.

    Arguments that are not listed are those of `ExpertTowers`.

    Args:
        num_experts: N.
        top_k: K.
        num_adversarial: D <= N - K idle experts compared with the active ones; 0 disables AdvLoss.
        hsc_weight: lambda_1; None omits the constraint gate altogether.
        adversarial_weight: lambda_2.
        importance_weight: w_I.
        gate_learning_rate_multiplier: see `NoisyTopKGate`; applies to all gates.
        gate_residual: uses G^P(x^tc) + G^R(x^sc) as the logits of the inference gate: a gate of the
            parent category plus a residual that starts at 0. A category with little data stays with
            its parent. HSC compares the sum with the constraint gate.
        shared_expert: adds the logit of one more expert, which scores every item.

    Raises:
        ValueError: if K > N or D > N - K, or for inputs of the wrong shape or type.

    Example:
        >>> moe = CategoryMixtureOfExperts(
        ...     num_experts=4, top_k=2, num_adversarial=1, expert_hidden_dims=[8]
        ... )
        >>> items, sc, tc = tf.ones([2, 3, 5]), tf.ones([2, 4]), tf.ones([2, 4])
        >>> out = moe(items, sc, tc, mask=tf.ones([2, 3], tf.bool))
        >>> out["logits"].shape, out["expert_ids"].shape
        (TensorShape([2, 3]), TensorShape([2, 2]))
    """

    def __init__(
        self,
        num_experts: int = 10,
        top_k: int = 4,
        num_adversarial: int = 1,
        expert_hidden_dims: Sequence[int] = (1024, 512, 256),
        hsc_weight: float | None = 1e-3,
        adversarial_weight: float = 1e-3,
        importance_weight: float = 0.0,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        gate_residual: bool = False,
        shared_expert: bool = False,
        dispatch: Dispatch = "auto",
        expert_capacity: int = DEFAULT_CAPACITY,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        gate_initializer: Any = "glorot_uniform",
        gate_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        gates = gate_arguments(self)
        residual = {"kernel_initializer": "zeros"} if gate_residual else {}
        self.inference_gate = NoisyTopKGate(
            noisy=noisy_gate, **{**gates, **residual}, seed=seed, name="inference_gate"
        )
        if num_adversarial > num_experts - top_k:
            raise ValueError(
                f"num_adversarial must be <= num_experts - top_k = {num_experts - top_k}. "
                f"Received: num_adversarial={num_adversarial}"
            )
        self.parent_gate: NoisyTopKGate | None = None
        if gate_residual:
            self.parent_gate = NoisyTopKGate(
                noisy=False, **gates, seed=self.offset_seed(2), name="parent_gate"
            )
        towers = {
            **self.arguments(*TOWER[1:]),
            "hidden_dims": self.expert_hidden_dims,
            "dtype": self.dtype_policy,
        }
        self.shared: ItemTower | None = None
        if shared_expert:
            self.shared = ItemTower(seed=self.offset_seed(1000), name="shared", **towers)
        self.towers = ExpertTowers(
            num_experts,
            seed=seed,
            dispatch=dispatch,
            capacity=expert_capacity,
            name="towers",
            **towers,
        )
        self.constraint_gate: ConstraintGate | None = None
        if hsc_weight is not None:
            self.constraint_gate = ConstraintGate(
                weight=hsc_weight, **gates, seed=self.offset_seed(1), name="constraint_gate"
            )
        monitored = ["gate_entropy"]
        if num_adversarial:
            self.adversarial = AdversarialExpertPenalty(
                adversarial_weight, name="adversarial", dtype="float32"
            )
            monitored += ["adversarial", "adversarial_share"]
        self._monitors = {name: TrainingMean(name=name) for name in monitored}
        self._usage = ExpertUsage(num_experts, top_k)

    def call(
        self,
        inputs: tf.Tensor,
        gate_inputs: tf.Tensor,
        constraint_inputs: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Scores the valid items of each list; training adds noise, losses and the idle experts.

        Args:
            inputs: [B, L, n] input vectors X.
            gate_inputs: x^sc, [B, q] for a gate per list, [B, L, q] for a gate per item.
            constraint_inputs: x^tc, [B, q']; required unless `hsc_weight` is None and
                `gate_residual` is False.
            mask: bool [B, L], True at valid items; None takes every item as valid.

        Returns:
            `logits` float32 [B, L], 0 at padded items;
            `expert_ids` int32 and `expert_weights` float32, [B, K] or [B, L, K], best expert first.
        """
        mask = valid_items(inputs, mask)
        of_lists, of_items = [inputs.shape[0], None], [*inputs.shape[:2], None]
        check_argument("gate_inputs", gate_inputs, "float vectors", of_lists, of_items)
        needs_constraint = self.constraint_gate is not None or self.parent_gate is not None
        if constraint_inputs is not None:
            check_argument("constraint_inputs", constraint_inputs, "float vectors", of_lists)
        elif needs_constraint:
            raise ValueError(
                "constraint_inputs are required unless hsc_weight is None and gate_residual is "
                "False. Received: constraint_inputs=None"
            )
        gate_inputs = tf.cast(gate_inputs, tf.float32)
        by_item = len(gate_inputs.shape) == 3
        if by_item:
            # Values of padded items must reach neither the balance of experts nor a gradient.
            gate_inputs = where_valid(gate_inputs, mask)
        gate = self.decide(gate_inputs, constraint_inputs, training)
        experts = gate.indices
        with_idle = training and self.num_adversarial > 0
        if with_idle:
            others = sample_idle_experts(
                gate.indices, self.num_experts, self.num_adversarial, self.seed
            )
            experts = tf.concat([gate.indices, others], axis=-1)
        outputs = tf.cast(self.towers(inputs, experts, mask=mask, training=training), tf.float32)
        active = outputs
        if with_idle:
            active, idle = tf.split(outputs, [self.top_k, self.num_adversarial], axis=2)
        weights = gate.weights if by_item else tf.expand_dims(gate.weights, axis=1)
        logits = tf.reduce_sum(active * weights, axis=2)
        if self.shared is not None:
            logits += self.shared(inputs, mask=mask, training=training)
        num_items = tf.cast(mask, tf.float32)
        if not by_item:
            num_items = tf.reduce_sum(num_items, axis=-1)
        if self.constraint_gate is not None:
            self.constraint_gate.constrain(gate, constraint_inputs, num_items, training)
        if training:
            self._balance(gate, num_items)
        if with_idle:
            self._disagree(active, idle, mask)
        return {"logits": logits, "expert_ids": gate.indices, "expert_weights": gate.weights}

    def decide(
        self,
        gate_inputs: tf.Tensor,
        constraint_inputs: tf.Tensor | None = None,
        training: bool = False,
    ) -> GateOutput:
        """Runs the inference gate on x^sc, with `gate_residual` also on x^tc."""
        offset = None
        if self.parent_gate is not None:
            offset = self.parent_gate(tf.cast(constraint_inputs, tf.float32)).logits
            if len(gate_inputs.shape) == 3:
                offset = tf.expand_dims(offset, axis=1)
        return self.inference_gate(
            tf.cast(gate_inputs, tf.float32), offset=offset, training=training
        )

    def _disagree(self, active: tf.Tensor, idle: tf.Tensor, mask: tf.Tensor) -> None:
        disagreement = self.adversarial(active, idle, mask, training=True)
        self._monitors["adversarial"].update_state(disagreement, mask)
        most = float(self.top_k * self.num_adversarial)
        self._monitors["adversarial_share"].update_state(disagreement / most, mask)

    def _balance(self, gate: GateOutput, num_items: tf.Tensor) -> None:
        importance = expert_importance(gate, num_items, self.num_experts)
        if self.importance_weight > 0:
            # Over the global batch: balance within each replica would be a stronger demand.
            variation = squared_variation(sum_over_replicas(importance))
            self.add_loss(self.importance_weight * variation)
        entropy = -tf.reduce_sum(tf.math.xlogy(gate.weights, gate.weights), axis=-1)
        self._monitors["gate_entropy"].update_state(entropy, num_items)
        self._usage.update_state(importance)
