"""TFR scorers, one per model family, and the registry of model names."""

from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.domains import DomainScorer, PLEScorer, StarScorer
from tfr_moe.scorers.explain import explanation_model
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.multitask import (
    CategoryMMoEScorer,
    MultiTaskScorer,
    combined_model,
    groups_of_categories,
)
from tfr_moe.scorers.pointwise import ClickModelScorer, WideDeepScorer, vector_model
from tfr_moe.scorers.registry import MODELS, create
from tfr_moe.scorers.reranking import DLCMScorer, PRMScorer
from tfr_moe.scorers.tower import TowerScorer, WideTowerScorer, tower_parameters, widened_dims

__all__ = [
    "MODELS",
    "CategoryMMoEScorer",
    "ClickModelScorer",
    "DLCMScorer",
    "DomainScorer",
    "FeatureScorer",
    "MixtureScorer",
    "MultiTaskScorer",
    "PLEScorer",
    "PRMScorer",
    "StarScorer",
    "TowerScorer",
    "WideDeepScorer",
    "WideTowerScorer",
    "combined_model",
    "create",
    "explanation_model",
    "groups_of_categories",
    "tower_parameters",
    "vector_model",
    "widened_dims",
]
