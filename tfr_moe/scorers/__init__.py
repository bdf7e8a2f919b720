"""TFR scorers, one per model family, and the registry of model names."""

from tfr_moe.scorers.base import FeatureScorer, Scores, explanation_model, num_experts
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.multi_domain import DomainScorer, PLEScorer, StarScorer
from tfr_moe.scorers.multitask import CategoryMMoEScorer, MultiTaskScorer, combined_model
from tfr_moe.scorers.registry import create
from tfr_moe.scorers.reranking import DLCMScorer, PRMScorer
from tfr_moe.scorers.tower import (
    ClickModelScorer,
    TowerScorer,
    WideDeepScorer,
    WideTowerScorer,
    vector_model,
)

__all__ = [
    "CategoryMMoEScorer",
    "ClickModelScorer",
    "DLCMScorer",
    "DomainScorer",
    "FeatureScorer",
    "MixtureScorer",
    "MultiTaskScorer",
    "PLEScorer",
    "PRMScorer",
    "Scores",
    "StarScorer",
    "TowerScorer",
    "WideDeepScorer",
    "WideTowerScorer",
    "combined_model",
    "create",
    "explanation_model",
    "num_experts",
    "vector_model",
]


def __dir__() -> list[str]:
    return __all__
