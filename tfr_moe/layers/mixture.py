"""The category-gated mixture of experts: gate, constraint gate, towers and both regularisers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.adversarial import AdversarialExpertPenalty, sample_idle_experts
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.gating import (
    GateOutput,
    NoisyTopKGate,
    expert_importance,
    expert_load,
    squared_variation,
)
from tfr_moe.layers.hierarchy import HierarchicalSoftConstraint
from tfr_moe.layers.mixture_options import arguments_of, given_options
from tfr_moe.layers.monitoring import ExpertUsage, TrainingMean
from tfr_moe.layers.star import StarTowers
from tfr_moe.layers.tower import ItemTower
from tfr_moe.reduction import sum_over_replicas


def _outputs_as_items(logits: Any) -> Any:
    """[B, L, S, n] -> [B, L n, S]."""
    shape = tf.shape(logits)
    by_output = tf.transpose(logits, [0, 1, 3, 2])
    return tf.reshape(by_output, [shape[0], shape[1] * shape[3], logits.shape[2]])


def _gate_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the inference gate, which as a residual starts at 0."""
    found = arguments_of("gate", options)
    return {**found, "init_scale": 0.0} if options.get("gate_residual") else found


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryMixtureOfExperts(tf.keras.layers.Layer):
    r"""Scores the items of a list by the experts of its category (Xiao et al., Fig. 2).

    $$ \hat{y} = \sum_{i \in U_{topK}} P_i(x^{sc}) E_i(X), \qquad
       J = CE + \lambda_1 HSC - \lambda_2 AdvLoss + w_I CV^2(\text{importance}) + w_L CV^2(\text{load}) $$

    (eqs. 7 and 13; the last two terms are those of Shazeer et al. 2017, by default off). CE is the
    model's own loss; the others are added with `add_loss`, in training only, each a mean over valid
    items. The idle experts of AdvLoss are computed in training only. Gates, mixing and regularisers
    run in float32 under every precision policy; the towers follow the policy.

    In training the layer feeds these Keras metrics: `hsc`, `adversarial` (AdvLoss), `adversarial_share`
    (AdvLoss over its maximum K D), `importance_cv2`, `load_cv2`, `gate_entropy` (nats, of the K
    weights), `dead_experts` and `busiest_share` (see `ExpertUsage`).

    Args:
        num_experts: N.
        top_k: K.
        num_adversarial: D <= N - K idle experts compared with the active ones; 0 turns AdvLoss off.
        expert_hidden_dims: widths of a tower's hidden layers.
        hsc_weight: lambda_1; None leaves the constraint gate out altogether.
        adversarial_weight: lambda_2.
        importance_weight: w_I.
        load_weight: w_L.
        gate_learning_rate_multiplier: see `NoisyTopKGate`; applies to both gates.
        noisy_gate: whether the inference gate draws noise in training.
        activation: of the towers.
        dropout: of the towers.
        seed: seed of initialisation, noise, dropout and the draw of idle experts.
        num_outputs: logits of an expert for each item; AdvLoss is then a mean over them.
        options: what is beyond the paper, by the names of `tfr_moe.layers.mixture_options`. With
            `gate_residual` the inference gate is G^P(x^tc) + G^R(x^sc), a parent's gate and a
            residual that starts at 0: a small category stays with its parent by construction, and HSC,
            where it is on, compares the sum with the constraint gate. With `shared_expert` one more
            tower scores every item, and its logit is added. With `shared_weights` the experts are
            `StarTowers`: one tower, whose weights each expert multiplies by factors of its own, so
            that what few lists teach one expert is not lost on the others.
        towers: further arguments of the experts: `norm`, `dispatch`, `capacity`, `jit_compile`.

    Raises:
        ValueError: if K > N or D > N - K.

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
        load_weight: float = 0.0,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        towers: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_adversarial > num_experts - top_k:
            raise ValueError(
                f"num_adversarial must be <= num_experts - top_k = {num_experts - top_k}. "
                f"Received: num_adversarial={num_adversarial}"
            )
        given = given_options(options or {})
        self._config: dict[str, Any] = {
            "options": given,
            "num_experts": num_experts,
            "top_k": top_k,
            "num_adversarial": num_adversarial,
            "expert_hidden_dims": list(expert_hidden_dims),
            "hsc_weight": hsc_weight,
            "adversarial_weight": adversarial_weight,
            "importance_weight": importance_weight,
            "load_weight": load_weight,
            "gate_learning_rate_multiplier": gate_learning_rate_multiplier,
            "noisy_gate": noisy_gate,
            "activation": activation,
            "dropout": dropout,
            "seed": seed,
            "num_outputs": num_outputs,
            "towers": dict(towers or {}),
        }
        self.num_experts, self.top_k, self.num_adversarial = num_experts, top_k, num_adversarial
        self.importance_weight, self.load_weight = importance_weight, load_weight
        self.seed, self.num_outputs = seed, num_outputs

        def gate(name: str, noisy: bool, offset: int, **own: Any) -> NoisyTopKGate:
            return NoisyTopKGate(
                num_experts,
                top_k,
                noisy=noisy,
                learning_rate_multiplier=gate_learning_rate_multiplier,
                seed=None if seed is None else seed + offset,
                name=name,
                dtype="float32",
                **own,
            )

        self.inference_gate = gate("inference_gate", noisy_gate, 0, **_gate_arguments(given))
        self.parent_gate: NoisyTopKGate | None = None
        if given.get("gate_residual"):
            scale = given.get("gate_init_scale", 1.0)
            self.parent_gate = gate("parent_gate", False, 2, init_scale=scale)
        self.shared: ItemTower | None = None
        if given.get("shared_expert"):
            own_seed = None if seed is None else seed + 1000
            self.shared = ItemTower(
                expert_hidden_dims,
                activation,
                dropout,
                own_seed,
                num_outputs,
                name="shared",
                dtype=self.dtype_policy,
            )
        kind = StarTowers if given.get("shared_weights") else ExpertTowers
        self.towers = kind(
            num_experts,
            expert_hidden_dims,
            activation,
            dropout,
            seed,
            num_outputs=num_outputs,
            name="towers",
            dtype=self.dtype_policy,
            **(towers or {}),
        )
        self.constraint_gate: NoisyTopKGate | None = None
        if hsc_weight is not None:
            # HSC compares clean logits, so noise would have no effect on this gate.
            self.constraint_gate = gate("constraint_gate", False, 1)
            self.hsc = HierarchicalSoftConstraint(
                hsc_weight, name="hsc", dtype="float32", **arguments_of("hsc", given)
            )
        if num_adversarial:
            self.adversarial = AdversarialExpertPenalty(
                adversarial_weight,
                name="adversarial",
                dtype="float32",
                **arguments_of("adversarial", given),
            )
        self._monitors = {name: TrainingMean(name=name) for name in self._monitored()}
        self._usage = ExpertUsage(num_experts, top_k)

    def _monitored(self) -> list[str]:
        names = ["importance_cv2", "load_cv2", "gate_entropy"]
        if self.constraint_gate is not None:
            names.append("hsc")
        if self.num_adversarial:
            names += ["adversarial", "adversarial_share"]
        return names

    def call(
        self,
        inputs: Any,
        gate_inputs: Any,
        constraint_inputs: Any = None,
        mask: Any = None,
        training: bool = False,
    ) -> dict[str, Any]:
        """Scores the valid items of each list.

        Args:
            inputs: [B, L, n] input vectors X.
            gate_inputs: x^sc, [B, q] for a gate per list, [B, L, q] for a gate per item.
            constraint_inputs: x^tc, [B, q']; needed unless `hsc_weight` is None, and by `gate_residual`.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: adds noise and losses, and computes the idle experts.

        Returns:
            `logits` float32 [B, L], with several outputs [B, L, num_outputs], 0 at padded items;
            `expert_ids` int32 and `expert_weights` float32, [B, K] or [B, L, K], best expert first.
        """
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        if self.constraint_gate is not None and not self.constraint_gate.built:
            # It is called in training only, but its variables belong to every graph.
            with tf.name_scope(self.constraint_gate.name):
                self.constraint_gate.build(constraint_inputs.shape)
        gate_inputs = tf.cast(gate_inputs, tf.float32)
        if len(gate_inputs.shape) == 3:
            # What stands at padded items must reach neither the balance of experts nor a gradient.
            gate_inputs = tf.where(mask[..., tf.newaxis], gate_inputs, 0.0)
        gate = self.decide(gate_inputs, constraint_inputs, training)
        experts = gate.indices
        if training and self.num_adversarial:
            idle = sample_idle_experts(
                gate.indices, self.num_experts, self.num_adversarial, self.seed
            )
            experts = tf.concat([gate.indices, idle], axis=-1)
        outputs = tf.cast(self.towers(inputs, experts, mask=mask, training=training), tf.float32)
        active = outputs[:, :, : self.top_k]
        logits = self.mix(active, gate.weights)
        if self.shared is not None:
            logits += self.shared(inputs, mask=mask, training=training)
        if training:
            num_items = tf.cast(mask, tf.float32)
            if len(gate.indices.shape) == 2:
                num_items = tf.reduce_sum(num_items, axis=-1)
            self._balance(gate, num_items)
            if self.constraint_gate is not None:
                constraint = self.constraint_gate(tf.cast(constraint_inputs, tf.float32))
                self._constrain(gate, constraint, num_items)
            if self.num_adversarial:
                self._disagree(active, outputs[:, :, self.top_k :], mask)
        return {"logits": logits, "expert_ids": gate.indices, "expert_weights": gate.weights}

    def decide(
        self, gate_inputs: Any, constraint_inputs: Any = None, training: bool = False
    ) -> GateOutput:
        """What the inference gate decides about x^sc, with `gate_residual` about x^tc too."""
        offset = None
        if self.parent_gate is not None:
            offset = self.parent_gate(tf.cast(constraint_inputs, tf.float32)).logits
            if len(gate_inputs.shape) == 3:
                offset = offset[:, tf.newaxis, :]
        return self.inference_gate(
            tf.cast(gate_inputs, tf.float32), offset=offset, training=training
        )

    def mix(self, outputs: Any, weights: Any) -> Any:
        """Adds up the experts' outputs, [B, L, K] or [..., num_outputs], by weights [B, K] or [B, L, K]."""
        if len(weights.shape) == 2:
            weights = weights[:, tf.newaxis, :]
        if self.num_outputs > 1:
            weights = weights[..., tf.newaxis]
        return tf.reduce_sum(outputs * weights, axis=2)

    def _constrain(self, gate: GateOutput, constraint: GateOutput, num_items: Any) -> None:
        hsc = self.hsc(gate.logits, constraint.logits, gate.indices, num_items, training=True)
        self._record("hsc", hsc, num_items)

    def _disagree(self, active: Any, idle: Any, mask: Any) -> None:
        if self.num_outputs > 1:
            active, idle = _outputs_as_items(active), _outputs_as_items(idle)
            mask = tf.repeat(mask, self.num_outputs, axis=1)
        disagreement = self.adversarial(active, idle, mask, training=True)
        self._record("adversarial", disagreement, mask)
        most = float(self.top_k * self.num_adversarial)
        self._record("adversarial_share", disagreement / most, mask)

    def _balance(self, gate: GateOutput, num_items: Any) -> None:
        importance = expert_importance(gate, num_items, self.num_experts)
        chosen_by = self.inference_gate.as_selected(gate)
        load = expert_load(chosen_by, num_items, self.top_k)
        # Balance is that of the global batch: each replica's own would ask for more of it.
        terms = {
            "importance_cv2": sum_over_replicas(importance),
            "load_cv2": sum_over_replicas(load),
        }
        factors = {"importance_cv2": self.importance_weight, "load_cv2": self.load_weight}
        for name, values in terms.items():
            variation = squared_variation(values)
            if factors[name] > 0:
                self.add_loss(factors[name] * variation)
            self._record(name, variation, 1.0)
        entropy = -tf.reduce_sum(tf.math.xlogy(gate.weights, gate.weights), axis=-1)
        self._record("gate_entropy", entropy, num_items)
        self._usage.update_state(importance)
        self.inference_gate.balance(terms["load_cv2"])

    def _record(self, name: str, values: Any, weights: Any) -> None:
        self._monitors[name].update_state(values, tf.cast(weights, tf.float32))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        # Keras wraps the dicts that a layer holds.
        plain = {name: dict(self._config[name]) for name in ("towers", "options")}
        return {**super().get_config(), **self._config, **plain}
