"""Keras layers: gates, expert towers, regularisers, the mixture, and the feature encoder."""

from tfr_moe.layers.adversarial import AdversarialExpertPenalty, sample_idle_experts
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.layers.gating import (
    GateOutput,
    NoisyTopKGate,
    expert_importance,
    expert_load,
    squared_variation,
)
from tfr_moe.layers.hierarchy import HierarchicalSoftConstraint
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.monitoring import ExpertUsage, TrainingMean
from tfr_moe.layers.tower import ItemTower

__all__ = [
    "AdversarialExpertPenalty",
    "CategoryMixtureOfExperts",
    "EncodedFeatures",
    "ExpertTowers",
    "ExpertUsage",
    "FeatureEncoder",
    "GateOutput",
    "HierarchicalSoftConstraint",
    "ItemTower",
    "NoisyTopKGate",
    "TrainingMean",
    "expert_importance",
    "expert_load",
    "sample_idle_experts",
    "squared_variation",
]
