"""The mixture family: MoE, Adv-MoE, HSC-MoE, Adv & HSC-MoE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.dispatch import DEFAULT_CAPACITY
from tfr_moe.layers.experts import Dispatch
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.scorers.base import FeatureScorer, Scores

ALL_FEATURES = "all"
MIXTURE = "mixture"
"""Name of the layer that mixes the experts."""


@dataclass(eq=False, kw_only=True)
class MixtureScorer(FeatureScorer):
    """`moe`, `adv_moe`, `hsc_moe`, `adv_hsc_moe`: experts selected by the category of the list.

    Args are those of `FeatureScorer` and `CategoryMixtureOfExperts`, and:

    Args:
        gate_features: inputs of the inference gate: names of context features (None: the child
            category, the best of Table VII of the paper), or `("all",)` for all of X, which makes a
            gate per item.

    Raises:
        UserError: if the schema names no hierarchy or `gate_features` holds no context feature.
    """

    gate_features: Sequence[str] | None = None
    num_experts: int = 20
    top_k: int = 2
    num_adversarial: int = 1
    hsc_weight: float | None = 0.1
    adversarial_weight: float = 1e-3
    importance_weight: float = 0.01
    gate_learning_rate_multiplier: float = 5.0
    noisy_gate: bool = True
    gate_residual: bool = True
    shared_expert: bool = True
    dispatch: Dispatch = "auto"
    expert_capacity: int = DEFAULT_CAPACITY

    def __post_init__(self) -> None:
        """Checks the arguments against the schema."""
        super().__post_init__()
        hierarchy, gate_features = self.schema.hierarchy, self.gate_features
        needs_hierarchy = gate_features is None or self.hsc_weight is not None or self.gate_residual
        if hierarchy is None and needs_hierarchy:
            raise UserError(
                "schema: a mixture needs `hierarchy` with its child and parent category; only moe "
                "and adv_moe work without, with gate_features and gate_residual: false"
            )
        if gate_features is None and hierarchy is not None:
            gate_features = (hierarchy.child,)
        self.gate_features = tuple(gate_features or ())
        known = [f.name for f in self.schema.select("context")]
        allowed = f"allowed: {', '.join(known)}, or {ALL_FEATURES!r} alone"
        if not self.gate_features:
            raise UserError(f"gate_features: must not be empty; {allowed}")
        for name in self.gate_features:
            if name not in known and self.gate_features != (ALL_FEATURES,):
                raise UserError(f"gate_features: {name!r} is not a context feature; {allowed}")

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        arguments = self.arguments(CategoryMixtureOfExperts)
        mixture = CategoryMixtureOfExperts(**arguments, name=MIXTURE)
        hierarchy = self.schema.hierarchy
        outputs = mixture(
            features.items,
            self._gate_inputs(features),
            None if hierarchy is None else features.context[hierarchy.parent],
            mask=mask,
        )
        return Scores.of_layer(mixture, outputs)

    def _gate_inputs(self, features: EncodedFeatures) -> tf.Tensor:
        if self.gate_features == (ALL_FEATURES,):
            return features.items
        blocks = [features.context[name] for name in self.gate_features or ()]
        return blocks[0] if len(blocks) == 1 else tf.concat(blocks, axis=-1)
