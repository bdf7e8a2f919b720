"""Trains the best configuration of a sweep with new seeds, and evaluates it on the test split."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import train_any
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import evaluate_run
from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.utils.io import read_json, write_json

from .results import RETRAINED_FILE, RETRAINED_FOLDER, SweepSummary, best_config, summarize_sweep
from .sweep_folder import check_same_data


def unused_seeds(summary: SweepSummary, count: int) -> list[int]:
    """The first `count` seeds above those of the trials, by which the best was selected.

    Example:
        >>> from types import SimpleNamespace as Some
        >>> trial = Some(seeds=[Some(seed=1), Some(seed=2)])
        >>> unused_seeds(Some(entries=[Some(trial=trial)]), 3)
        [3, 4, 5]
    """
    used = [seed.seed for entry in summary.entries for seed in entry.trial.seeds]
    first = max(used, default=0) + 1
    return list(range(first, first + count))


def retrain(sweep: str | Path, seeds: int, console: Console | None = None) -> list[Path]:
    """Trains the best configuration with seeds that no trial had; resumable.

    Args:
        sweep: the sweep's folder; the runs are `retrained/<trial_id>/seed-<seed>`.
        seeds: how many, at least 1.
        console: receives progress; None for stderr.

    Returns:
        The runs' folders, in order of the seeds.

    Raises:
        UserError: if no trial has a result, or its data or settings no longer fit.
    """
    if seeds < 1:
        raise UserError(f"number of seeds must be at least 1. Received: seeds={seeds}")
    console = console or Console(stderr=True)
    summary = summarize_sweep(sweep)
    config = best_config(summary)
    assert summary.best is not None
    data = DataFolder(summary.settings["data"])
    check_same_data(summary.path, summary.settings.get("data_fingerprint"), data.fingerprint)
    folder = summary.path / RETRAINED_FOLDER / summary.best.trial.trial_id
    runs = []
    for number, seed in enumerate(unused_seeds(summary, seeds), start=1):
        run = folder / f"seed-{seed}"
        runs.append(run)
        if read_json(run / "metrics.json") is not None:
            continue
        console.print(f"retraining {number} of {seeds}, seed {seed}", highlight=False)
        run.parent.mkdir(parents=True, exist_ok=True)
        seeded = config.replace(seed=seed)
        train_any(data.path, run, seeded, console)
        tf.keras.backend.clear_session()
        gc.collect()
    return runs


def retrain_and_test(
    sweep: str | Path, seeds: int, console: Console | None = None
) -> dict[str, Any]:
    """Retrains the best configuration with new seeds and evaluates it on the test split.

    Nothing else in tuning reads the test split.

    Args:
        sweep: the sweep's folder; the result is also written to `retrained/results.json`.
        seeds: how many, at least 1.
        console: receives progress; None for stderr.

    Returns:
        `trial_id`, `runs` (per seed: `seed`, `run`, `validation` and `test` metrics) and `summary`
        (split -> metric -> mean, std, 95 % t interval over seeds).

    Raises:
        UserError: if no trial has a result, or its data or settings no longer fit.
    """
    console = console or Console(stderr=True)
    summary = summarize_sweep(sweep)
    data = DataFolder(summary.settings["data"])
    data.files("test")
    runs = retrain(sweep, seeds, console)
    results: list[dict[str, Any]] = []
    for run in runs:
        with console.status(f"evaluating {run.name} on the test split"):
            result = evaluate_run(data, run, "test", DEFAULT_NAMES)
        best = read_json(run / "metrics.json")["best"]
        results.append(
            {
                "seed": int(run.name.removeprefix("seed-")),
                "run": str(run),
                "validation": {
                    k.removeprefix("val_"): v for k, v in best.items() if k.startswith("val_")
                },
                "test": {name: float(np.nanmean(result.values[name])) for name in DEFAULT_NAMES},
            }
        )
    content = {
        "trial_id": runs[0].parent.name,
        "runs": results,
        "summary": {
            split: over_seeds([each[split] for each in results]) for split in ("test", "validation")
        },
    }
    write_json(summary.path / RETRAINED_FILE, content)
    return content


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Mean, standard deviation and 95 % t interval of each metric; None where undefined.

    Example:
        >>> ndcg = over_seeds([{"ndcg": 0.70}, {"ndcg": 0.72}, {"ndcg": 0.74}])["ndcg"]
        >>> {name: round(value, 3) for name, value in ndcg.items()}
        {'mean': 0.72, 'std': 0.02, 'low': 0.67, 'high': 0.77}
    """
    table = {}
    for name in runs[0]:
        interval = seed_interval([run[name] for run in runs])
        numbers = {
            "mean": interval.mean,
            "std": interval.standard_deviation,
            "low": interval.low,
            "high": interval.high,
        }
        table[name] = {k: v if math.isfinite(v) else None for k, v in numbers.items()}
    return table
