"""The multi-gate mixture that is gated by category, with a soft constraint per task."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.diversity import MAX_ROWS, expert_correlation
from tfr_moe.layers.gating import GateOutput, NoisyTopKGate
from tfr_moe.layers.hierarchy import HierarchicalSoftConstraint
from tfr_moe.layers.monitoring import GateMonitor, TrainingMean
from tfr_moe.layers.multitask import MultiTaskLayer
from tfr_moe.layers.rows import put_rows, shapes_are_fixed, take_rows


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryMMoE(MultiTaskLayer):
    r"""Each task chooses K of the N shared experts for a list by a gate over its sub-category.

    $$ f^k(X) = \sum_{i \in U^k_{topK}} P^k_i(x^{sc}) E_i(X), \qquad y_k = h^k(f^k(X)), \qquad
       J = \sum_k L_k + \lambda_1 \sum_k HSC_k $$

    the multi-gate mixture of Ma et al. 2018 with the inference gate, the constraint gate and the
    hierarchical soft constraint of Xiao et al. (eqs. 4 to 10), a pair of gates for each task. An expert
    that several tasks choose for a list is computed once, one that none chooses not at all. Gates, mixing
    and HSC run in float32 under every precision policy.

    In training the layer shows `hsc_<task>`, the metrics of `GateMonitor` and `expert_correlation`, the
    latter over all experts on the first rows of a batch.

    Args:
        num_experts: N.
        top_k: K, of each task.
        hsc_weight: lambda_1; None leaves the constraint gates out.
        gate_learning_rate_multiplier: see `NoisyTopKGate`.
        noisy_gate: whether the inference gates draw noise in training.
        **kwargs: see `MultiTaskLayer`; `hidden_dims` are those of each expert.

    Example:
        >>> layer = CategoryMMoE(num_tasks=2, hidden_dims=[8], num_experts=4, top_k=2)
        >>> items, sc, tc = tf.ones([3, 5, 6]), tf.ones([3, 4]), tf.ones([3, 4])
        >>> layer(items, sc, tc).shape
        TensorShape([3, 5, 2])
    """

    def __init__(
        self,
        num_tasks: int,
        *args: Any,
        num_experts: int = 10,
        top_k: int = 4,
        hsc_weight: float | None = 1e-3,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        **kwargs: Any,
    ):
        super().__init__(num_tasks, *args, **kwargs)
        self.num_experts, self.top_k = num_experts, top_k
        self.hsc_weight = hsc_weight
        self.gate_learning_rate_multiplier = gate_learning_rate_multiplier
        self.noisy_gate = noisy_gate
        self.experts = self._experts(num_experts, self.hidden_dims, "experts", hidden=True)
        self.towers = self._towers()
        self.gates = [
            self._gate("gate", noisy_gate, 200 + k, task) for k, task in enumerate(self.task_names)
        ]
        self.constraint_gates: list[NoisyTopKGate] = []
        if hsc_weight is not None:
            # HSC compares clean logits, so noise would have no effect on these gates.
            self.constraint_gates = [
                self._gate("constraint_gate", False, 300 + k, task)
                for k, task in enumerate(self.task_names)
            ]
            self.hsc = HierarchicalSoftConstraint(hsc_weight, name="hsc", dtype="float32")
            self._shown = {task: TrainingMean(name=f"hsc_{task}") for task in self.task_names}
        self.monitor = GateMonitor(
            num_experts, top_k, self.task_names, name="gates", dtype="float32"
        )
        self._correlation = TrainingMean(name="expert_correlation")

    def _gate(self, kind: str, noisy: bool, offset: int, task: str) -> NoisyTopKGate:
        return NoisyTopKGate(
            self.num_experts,
            self.top_k,
            noisy,
            self.gate_learning_rate_multiplier,
            self._offset(offset),
            name=f"{kind}_{task}",
            dtype="float32",
        )

    def call(
        self,
        inputs: Any,
        gate_inputs: Any,
        constraint_inputs: Any = None,
        mask: Any = None,
        training: bool = False,
    ) -> Any:
        """Scores the valid items of each list for every task.

        Args:
            inputs: [B, L, n] input vectors X.
            gate_inputs: x^sc, [B, q].
            constraint_inputs: x^tc, [B, q']; needed unless `hsc_weight` is None.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: adds noise, losses and metrics.

        Returns:
            Logits, float32 [B, L, tasks], 0 at padded items; with several outputs they are the last
            axis.
        """
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        num_items = tf.reduce_sum(tf.cast(mask, tf.float32), axis=-1)
        weights = self._weights(gate_inputs, constraint_inputs, num_items, training)
        weights = self.monitor(weights, num_items, training=training)
        return self.mix(inputs, weights, mask, training)

    def mix(self, inputs: Any, weights: Any, mask: Any, training: bool = False) -> Any:
        """Items [B, L, n] by the tasks' weights over all experts [B, tasks, N] -> logits [B, L, tasks]."""
        chosen, slots = self._slots(weights)
        if shapes_are_fixed():
            each = tf.cast(self.experts(inputs, chosen, mask=mask), tf.float32)  # [B, L, S, h]
            mixed = tf.matmul(slots[:, tf.newaxis], each)
            rows = tf.reshape(mixed, [-1, *mixed.shape[2:]])
            return put_rows(tf.cast(self.towers(rows), tf.float32), None, inputs)
        rows, places = take_rows(inputs, mask)
        lists = places[:, 0]
        outputs = self.experts(rows, tf.gather(chosen, lists), training=training)
        outputs = tf.cast(outputs, tf.float32)  # [T, S, h]
        if training:
            everyone = self.experts(tf.stop_gradient(rows[:MAX_ROWS]))
            there = tf.sign(tf.shape(rows)[0])
            self._correlation.update_state(expert_correlation(everyone), there)
        mixed = tf.matmul(tf.gather(slots, lists), outputs)  # [T, tasks, h]
        logits = tf.cast(self.towers(mixed, training=training), tf.float32)
        return put_rows(logits, places, inputs)

    def choose(self, gate_inputs: Any, training: bool = False) -> list[GateOutput]:
        """What each task's gate decides about x^sc [B, q], in the order of the tasks."""
        gate_inputs = tf.cast(gate_inputs, tf.float32)
        return [gate(gate_inputs, training=training) for gate in self.gates]

    def _weights(
        self, gate_inputs: Any, constraint_inputs: Any, num_items: Any, training: bool
    ) -> Any:
        """The tasks' gate weights over all experts, [B, tasks, N], 0 where not chosen."""
        found = []
        for k, (task, gate) in enumerate(
            zip(self.task_names, self.choose(gate_inputs, training), strict=True)
        ):
            found.append(self.spread(gate.indices, gate.weights))
            if self.constraint_gates:
                self._constrain(k, task, gate, constraint_inputs, num_items, training)
        return tf.stack(found, axis=1)

    def spread(self, indices: Any, weights: Any) -> Any:
        """A choice of experts, [B, K] each, as weights over all of them [B, N]."""
        each = tf.one_hot(indices, self.num_experts) * weights[..., tf.newaxis]
        return tf.reduce_sum(each, axis=-2)

    def _constrain(
        self,
        k: int,
        task: str,
        gate: GateOutput,
        constraint_inputs: Any,
        num_items: Any,
        training: bool,
    ) -> None:
        constraint_gate = self.constraint_gates[k]
        if not constraint_gate.built:
            # It is called in training only, but its variables belong to every graph.
            with tf.name_scope(constraint_gate.name):
                constraint_gate.build(constraint_inputs.shape)
        if training:
            logits = constraint_gate(tf.cast(constraint_inputs, tf.float32)).logits
            hsc = self.hsc(gate.logits, logits, gate.indices, num_items, training=True)
            self._shown[task].update_state(hsc, num_items)

    def _slots(self, weights: Any) -> tuple[Any, Any]:
        """The experts that any task chose: indices [B, S], -1 for none, and weights [B, tasks, S]."""
        slots = min(self.num_experts, self.num_tasks * self.top_k)
        wanted = tf.reduce_max(weights, axis=1)
        top, indices = tf.math.top_k(wanted, k=slots)
        taken = tf.gather(
            weights, tf.repeat(indices[:, tf.newaxis], self.num_tasks, 1), batch_dims=2
        )
        return tf.where(top > 0, indices, -1), taken

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "hsc_weight": self.hsc_weight,
            "gate_learning_rate_multiplier": self.gate_learning_rate_multiplier,
            "noisy_gate": self.noisy_gate,
        }
