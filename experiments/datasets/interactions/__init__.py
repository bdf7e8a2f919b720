"""Source `interactions`: events without impressions, with history features and negatives."""

from experiments.datasets.interactions.events import SamplingOptions
from experiments.datasets.interactions.history_features import (
    HistoryFeature,
    add_history,
    load_features,
)
from experiments.datasets.interactions.names import path_of
from experiments.datasets.interactions.negative_sampling import Interactions
from experiments.datasets.interactions.source import sampling_design

__all__ = [
    "HistoryFeature",
    "Interactions",
    "SamplingOptions",
    "add_history",
    "load_features",
    "path_of",
    "sampling_design",
]
