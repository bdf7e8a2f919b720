"""A seed of a trial whose model is not Keras': LightGBM, XGBoost, a linear ranker."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from tfr_moe.baselines import load_baseline, train_baseline
from tfr_moe.config import RunConfig
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.result import evaluate_lists, summarize
from tfr_moe.evaluation.score import score_dataset

from .records import SeedResult


def baseline_result(folder: DataFolder, config: RunConfig, run: Path) -> SeedResult:
    """Trains on the training split and judges all of `config.metrics` on the validation split.

    The library's rounds stand for epochs; there are no curves.

    Raises:
        UserError: for parameters or data that the library does not take.
    """
    started = time.monotonic()
    found = train_baseline(folder.path, run, config, Console(quiet=True))
    dataset = ElwcDatasetBuilder(folder, config.batch_size).build_evaluation_dataset("validation")
    loaded = load_baseline(run)
    judged = evaluate_lists(score_dataset(loaded.score, dataset, loaded.schema), config.metrics)
    metrics = {name: float(summary.mean) for name, summary in summarize(judged, "skip").items()}
    seconds = round(time.monotonic() - started, 2)
    return SeedResult(config.seed, metrics, found["best_epoch"], found["epochs"], seconds, [])
