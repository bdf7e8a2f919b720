"""The mixture family: MoE, Adv-MoE, HSC-MoE, Adv & HSC-MoE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.expert_norm import Norm
from tfr_moe.layers.experts import Dispatch
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.grouping import DEFAULT_CAPACITY
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.mixture_options import given_options
from tfr_moe.scorers.base import FeatureScorer

ALL_FEATURES = "all"


class MixtureScorer(FeatureScorer):
    """`moe`, `adv_moe`, `hsc_moe`, `adv_hsc_moe`: towers chosen by the category of the list.

    Args:
        gate_features: what the inference gate sees: names of context features (None: the child
            category, the best of the paper's Table VII), or `["all"]` for all of X, which makes a gate
            per item.
        num_experts: N.
        top_k: K.
        num_adversarial: D; 0 leaves AdvLoss out.
        hsc_weight: lambda_1; None leaves HSC out.
        adversarial_weight: lambda_2.
        importance_weight: see `CategoryMixtureOfExperts`.
        load_weight: see `CategoryMixtureOfExperts`.
        gate_learning_rate_multiplier: see `NoisyTopKGate`.
        noisy_gate: whether the gate draws noise in training.
        expert_norm: `none`, `batch` or `layer`, see `ExpertTowers`, like the next three.
        dispatch: `segments` or `capacity`.
        expert_capacity: places of a group under `capacity`.
        jit_compile: whether XLA compiles the towers in training.
        settings: options beyond the paper, see `tfr_moe.layers.mixture_options`.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: if the schema names no hierarchy or `gate_features` holds no context feature.
    """

    def __init__(
        self,
        *args: Any,
        gate_features: tuple[str, ...] | None = None,
        num_experts: int = 10,
        top_k: int = 4,
        num_adversarial: int = 1,
        hsc_weight: float | None = 1e-3,
        adversarial_weight: float = 1e-3,
        importance_weight: float = 0.0,
        load_weight: float = 0.0,
        gate_learning_rate_multiplier: float = 1.0,
        noisy_gate: bool = True,
        expert_norm: Norm = "none",
        dispatch: Dispatch = "segments",
        expert_capacity: int = DEFAULT_CAPACITY,
        jit_compile: bool = False,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        hierarchy = self.schema.hierarchy
        self.settings = given_options(settings or {})
        residual = bool(self.settings.get("gate_residual"))
        if hierarchy is None and (gate_features is None or hsc_weight is not None or residual):
            raise UserError(
                "schema: a mixture needs `hierarchy` with its child and parent category"
            )
        if gate_features is None and hierarchy is not None:
            gate_features = (hierarchy.child,)
        self.gate_features = tuple(gate_features or ())
        known = [f.name for f in self.schema.select("context")]
        if not self.gate_features:
            raise UserError(
                f"gate_features: names no feature; there are: {', '.join(known)}, "
                f"or {ALL_FEATURES!r} alone"
            )
        for name in self.gate_features:
            if name not in known and self.gate_features != (ALL_FEATURES,):
                raise UserError(
                    f"gate_features: {name!r} is not a context feature; there are: "
                    f"{', '.join(known)}, or {ALL_FEATURES!r} alone"
                )
        self._mixture: dict[str, Any] = {
            "num_experts": num_experts,
            "top_k": top_k,
            "num_adversarial": num_adversarial,
            "hsc_weight": hsc_weight,
            "adversarial_weight": adversarial_weight,
            "importance_weight": importance_weight,
            "load_weight": load_weight,
            "gate_learning_rate_multiplier": gate_learning_rate_multiplier,
            "noisy_gate": noisy_gate,
        }
        self._towers: dict[str, Any] = {
            "expert_norm": expert_norm,
            "dispatch": dispatch,
            "expert_capacity": expert_capacity,
            "jit_compile": jit_compile,
        }

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """See `FeatureScorer`."""
        towers = {name.removeprefix("expert_"): value for name, value in self._towers.items()}
        mixture = CategoryMixtureOfExperts(
            expert_hidden_dims=self.expert_hidden_dims,
            activation=self.activation,
            dropout=self.dropout,
            seed=self.seed,
            num_outputs=self.num_outputs,
            towers=towers,
            name="mixture",
            options=self.settings,
            **self._mixture,
        )
        hierarchy = self.schema.hierarchy
        return mixture(
            features.items,
            self._gate_inputs(features),
            None if hierarchy is None else features.context[hierarchy.parent],
            mask=mask,
        )["logits"]

    def _gate_inputs(self, features: EncodedFeatures) -> Any:
        if self.gate_features == (ALL_FEATURES,):
            return features.items
        blocks = [features.context[name] for name in self.gate_features]
        return blocks[0] if len(blocks) == 1 else tf.concat(blocks, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "gate_features": list(self.gate_features),
            "settings": dict(self.settings),
            **self._mixture,
            **self._towers,
        }
