"""Keras layers: gates, experts, regularisers, mixtures, tasks, domains, attention, features."""

from tfr_moe.layers.adversarial import AdversarialExpertPenalty, sample_idle_experts
from tfr_moe.layers.attention import EncoderBlock, SelfAttentionEncoder
from tfr_moe.layers.crosses import CrossedWeights
from tfr_moe.layers.diversity import expert_correlation
from tfr_moe.layers.domains import DomainOfCategory
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.extraction import ProgressiveExtraction
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.layers.gating import (
    GateOutput,
    NoisyTopKGate,
    expert_importance,
    expert_load,
    squared_variation,
)
from tfr_moe.layers.hierarchy import HierarchicalSoftConstraint
from tfr_moe.layers.listwise import ListLogProbability
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.monitoring import ExpertUsage, GateMonitor, TrainingMean
from tfr_moe.layers.multitask import MMoE, OMoE, SharedBottom, SingleTask, TaskTowers
from tfr_moe.layers.multitask_category import CategoryMMoE
from tfr_moe.layers.multitask_registry import (
    MULTITASK,
    make_multitask,
    match_budget,
    parameter_count,
)
from tfr_moe.layers.multitask_scores import (
    CombinedScore,
    TaskOfCategory,
    TaskScores,
    joint_logit,
)
from tfr_moe.layers.multitask_sharing import CrossStitch, L2Constrained, TensorFactorization
from tfr_moe.layers.partitioned import PartitionedNormalization
from tfr_moe.layers.positions import PositionEncoding, places_in_list, sinusoidal_encoding
from tfr_moe.layers.recurrent import DeepListwiseContext
from tfr_moe.layers.star import StarTopology, StarTowers
from tfr_moe.layers.tower import ItemTower

__all__ = [
    "MULTITASK",
    "AdversarialExpertPenalty",
    "CategoryMMoE",
    "CategoryMixtureOfExperts",
    "CombinedScore",
    "CrossStitch",
    "CrossedWeights",
    "DeepListwiseContext",
    "DomainOfCategory",
    "EncodedFeatures",
    "EncoderBlock",
    "ExpertTowers",
    "ExpertUsage",
    "FeatureEncoder",
    "GateMonitor",
    "GateOutput",
    "HierarchicalSoftConstraint",
    "ItemTower",
    "L2Constrained",
    "ListLogProbability",
    "MMoE",
    "NoisyTopKGate",
    "OMoE",
    "PartitionedNormalization",
    "PositionEncoding",
    "ProgressiveExtraction",
    "SelfAttentionEncoder",
    "SharedBottom",
    "SingleTask",
    "StarTopology",
    "StarTowers",
    "TaskOfCategory",
    "TaskScores",
    "TaskTowers",
    "TensorFactorization",
    "TrainingMean",
    "expert_correlation",
    "expert_importance",
    "expert_load",
    "joint_logit",
    "make_multitask",
    "match_budget",
    "parameter_count",
    "places_in_list",
    "sample_idle_experts",
    "sinusoidal_encoding",
    "squared_variation",
]
