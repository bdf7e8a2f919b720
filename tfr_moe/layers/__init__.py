"""Keras layers: gates, experts, regularizers, mixtures, tasks, domains, attention, features."""

from tfr_moe.layers.attention import EncoderBlock, SelfAttentionEncoder
from tfr_moe.layers.categories import CategoryHead
from tfr_moe.layers.category_mmoe import CategoryMMoE
from tfr_moe.layers.dlcm import DeepListwiseContext
from tfr_moe.layers.experts import ExpertTowers, ItemTower
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.layers.gating import GateOutput, NoisyTopKGate
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.multi_task import (
    MMoE,
    MultiTaskLayer,
    OMoE,
    SharedBottom,
    SingleTask,
    logits_of,
)
from tfr_moe.layers.outputs import CombinedScore, TaskScores
from tfr_moe.layers.ple import ProgressiveExtraction
from tfr_moe.layers.position_bias import PositionBiasTower
from tfr_moe.layers.regularizers import (
    AdversarialExpertPenalty,
    ConstraintGate,
    HierarchicalSoftConstraint,
)
from tfr_moe.layers.star import PartitionedNormalization, StarTopology
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
    "DeepListwiseContext",
    "EncodedFeatures",
    "EncoderBlock",
    "ExpertTowers",
    "FeatureEncoder",
    "GateOutput",
    "HierarchicalSoftConstraint",
    "ItemTower",
    "L2Constrained",
    "MMoE",
    "MultiTaskLayer",
    "NoisyTopKGate",
    "OMoE",
    "PartitionedNormalization",
    "PositionBiasTower",
    "ProgressiveExtraction",
    "SelfAttentionEncoder",
    "SharedBottom",
    "SingleTask",
    "StarTopology",
    "TaskScores",
    "TensorFactorization",
    "dims_of_budget",
    "logits_of",
]


def __dir__() -> list[str]:
    return __all__
