"""Multi-gate mixture of experts that is gated by category, with a soft constraint per task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import put_rows, take_rows
from tfr_moe.layers.gating import GateMonitor, GateOutput, NoisyTopKGate, gate_arguments
from tfr_moe.layers.multi_task import MultiTaskLayer
from tfr_moe.layers.regularizers import ConstraintGate


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryMMoE(MultiTaskLayer):
    r"""Each task selects K of the N shared experts for a list by a gate on its sub-category.

    $$ f^k(X) = \sum_{i \in U^k_{topK}} P^k_i(x^{sc}) E_i(X), \qquad y_k = h^k(f^k(X)), \qquad
       J = \sum_k L_k + \lambda_1 \sum_k HSC_k $$

    This is the multi-gate mixture of Ma et al. 2018 (https://doi.org/10.1145/3219819.3220007) with
    the inference gate, the constraint gate and the hierarchical soft constraint of Xiao et al. 2021
    (eqs. 4 to 10, https://arxiv.org/abs/2007.12349), one pair of gates per task. An expert that
    several tasks select for a list is computed once, an expert that none selects is not computed.
    Gates, mixing and HSC run in float32 under every precision policy.

    Training records `hsc_<task>` and the metrics of `GateMonitor`.

    Args:
        num_experts: N.
        top_k: K, of each task.
        hsc_weight: lambda_1; None leaves out the constraint gates.
        gate_initializer: of the kernels of all gates, as is `gate_regularizer`.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each expert.

    Example:
        >>> layer = CategoryMMoE(num_tasks=2, hidden_dims=[8], num_experts=4, top_k=2)
        >>> items, sc, tc = tf.ones([3, 5, 6]), tf.ones([3, 4]), tf.ones([3, 4])
        >>> outputs = layer(items, sc, tc)
        >>> outputs["logits"].shape, outputs["expert_ids_task_0"].shape
        (TensorShape([3, 5, 2]), TensorShape([3, 2]))
    """

    def __init__(
        self,
        num_tasks: int,
        hidden_dims: Sequence[int] = (256,),
        tower_hidden_dims: Sequence[int] = (64,),
        *,
        num_experts: int = 10,
        top_k: int = 4,
        hsc_weight: float | None = 1e-3,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        gate_initializer: Any = "glorot_uniform",
        gate_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(num_tasks, hidden_dims, tower_hidden_dims, **kwargs)
        self.keep(locals())
        self.experts = self._experts(num_experts, "experts")
        self.towers = self._towers()
        gate = gate_arguments(self)
        self.gates = [
            NoisyTopKGate(
                noisy=noisy_gate, seed=self.offset_seed(200 + k), name=f"gate_{task}", **gate
            )
            for k, task in enumerate(self.task_names)
        ]
        self.constraint_gates = [
            ConstraintGate(
                weight=hsc_weight,
                metric_name=f"hsc_{task}",
                seed=self.offset_seed(300 + k),
                name=f"constraint_gate_{task}",
                **gate,
            )
            for k, task in enumerate(self.task_names)
            if hsc_weight is not None
        ]
        self.monitor = GateMonitor(
            num_experts, top_k, self.task_names, name="gates", dtype="float32"
        )

    def call(  # type: ignore[override]
        self,
        inputs: tf.Tensor,
        gate_inputs: tf.Tensor,
        constraint_inputs: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Scores the valid items of each list for every task.

        Items are X [B, L, n], gate inputs x^sc [B, q], constraint inputs x^tc [B, q'], which are
        required unless `hsc_weight` is None. Training adds noise, losses and metrics. Returns
        `logits` float32 [B, L, tasks], 0 at padded items; for each task `expert_ids_<task>` int32
        and `expert_weights_<task>` float32, [B, K], heaviest expert first.
        """
        mask = valid_items(inputs, mask)
        of_lists = [inputs.shape[0], None]
        check_argument("gate_inputs", gate_inputs, "float vectors", of_lists)
        if self.constraint_gates:
            check_argument("constraint_inputs", constraint_inputs, "float vectors", of_lists)
        num_items = tf.reduce_sum(tf.cast(mask, tf.float32), axis=-1)
        gate_inputs = tf.cast(gate_inputs, tf.float32)
        gates = [gate(gate_inputs, training=training) for gate in self.gates]
        for gate, constraint in zip(gates, self.constraint_gates, strict=False):
            constraint.constrain(gate, constraint_inputs, num_items, training)
        weights = tf.stack([self._over_all_experts(gate) for gate in gates], axis=1)
        weights = self.monitor(weights, num_items, training=training)
        outputs = {"logits": self._mix(inputs, weights, mask, training)}
        for task, decided in zip(self.task_names, gates, strict=True):
            outputs[f"expert_ids_{task}"] = decided.indices
            outputs[f"expert_weights_{task}"] = decided.weights
        return outputs

    def _over_all_experts(self, gate: GateOutput) -> tf.Tensor:
        """Weights [B, N] of all experts, 0 where they are not selected."""
        weights = tf.expand_dims(gate.weights, axis=-1)
        each = tf.one_hot(gate.indices, self.num_experts) * weights
        return tf.reduce_sum(each, axis=-2)

    def _mix(
        self, inputs: tf.Tensor, weights: tf.Tensor, mask: tf.Tensor, training: bool
    ) -> tf.Tensor:
        """Items [B, L, n] and weights of all experts [B, tasks, N] -> logits."""
        selected, slots = self._slots(weights)
        rows, positions = take_rows(inputs, mask)
        lists = tf.unstack(positions, axis=1)[0]
        outputs = self.experts(rows, tf.gather(selected, lists), training=training)
        outputs = tf.cast(outputs, tf.float32)  # [T, S, h]
        mixed = tf.matmul(tf.gather(slots, lists), outputs)  # [T, tasks, h]
        logits = tf.cast(self.towers(mixed, training=training), tf.float32)
        return put_rows(logits, positions, inputs)

    def _slots(self, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The experts that any task selected: ids [B, S] or -1, and weights [B, tasks, S]."""
        slots = min(self.num_experts, self.num_tasks * self.top_k)
        top, ids = tf.math.top_k(tf.reduce_max(weights, axis=1), k=slots)
        return tf.where(top > 0, ids, -1), tf.gather(weights, ids, axis=2, batch_dims=1)
