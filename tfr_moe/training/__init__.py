"""Training of a run: TFR's ModelFitPipeline, driven by a RunConfig, resumable."""

from tfr_moe.training.adamw import FusedAdamW
from tfr_moe.training.optimizers import make_optimizer
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.run import LoadedRun, load_run, train
from tfr_moe.training.strategy import LostWorkersError, Place, join, serve

__all__ = [
    "FusedAdamW",
    "LoadedRun",
    "LostWorkersError",
    "Place",
    "RankingPipeline",
    "join",
    "load_run",
    "make_optimizer",
    "serve",
    "train",
]
