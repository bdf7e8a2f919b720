"""Keras layers: gates, experts, regularizers, mixtures, tasks, domains, attention, features."""

from tfr_moe.layers.attention import EncoderBlock, PositionEncoding, SelfAttentionEncoder
from tfr_moe.layers.categories import CategoryHead, UnknownDomains
from tfr_moe.layers.category_mmoe import CategoryMMoE
from tfr_moe.layers.crossed_weights import CrossedWeights
from tfr_moe.layers.dlcm import DeepListwiseContext
from tfr_moe.layers.experts import ExpertTowers, ItemTower
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.layers.gating import ExpertUsage, GateMonitor, GateOutput, NoisyTopKGate, TrainingMean
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multi_task import MMoE, OMoE, SharedBottom, SingleTask, TaskTowers, logits_of
from tfr_moe.layers.outputs import CombinedScore, TaskScores
from tfr_moe.layers.ple import ProgressiveExtraction
from tfr_moe.layers.position_bias import PositionBiasTower
from tfr_moe.layers.regularizers import (
    AdversarialExpertPenalty,
    ConstraintGate,
    HierarchicalSoftConstraint,
)
from tfr_moe.layers.star import PartitionedNormalization, StarTopology, StarTowers
from tfr_moe.layers.task_sharing import (
    MULTITASK,
    CrossStitch,
    L2Constrained,
    TensorFactorization,
    dims_of_budget,
)

__all__ = [
    "MULTITASK",
    "AdversarialExpertPenalty",
    "CategoryHead",
    "CategoryMMoE",
    "CategoryMixtureOfExperts",
    "CombinedScore",
    "ConstraintGate",
    "CrossStitch",
    "CrossedWeights",
    "DeepListwiseContext",
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
    "MMoE",
    "NoisyTopKGate",
    "OMoE",
    "PartitionedNormalization",
    "PositionBiasTower",
    "PositionEncoding",
    "ProgressiveExtraction",
    "SelfAttentionEncoder",
    "SharedBottom",
    "SingleTask",
    "StarTopology",
    "StarTowers",
    "TaskScores",
    "TaskTowers",
    "TensorFactorization",
    "TrainingMean",
    "UnknownDomains",
    "dims_of_budget",
    "logits_of",
]


def __dir__() -> list[str]:
    return __all__
