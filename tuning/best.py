"""The best configuration of a sweep: written for `tfr-moe train`, and trained anew on request.

The test split is not read here. `tfr_moe.retraining` does that, for runs that `retrain` has made.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from rich.console import Console

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.folders import read_json

from .dimensions import settings_above
from .records import SWEEP_FILE
from .summary import Summary, summarize_sweep

BEST_FILE = "best.yaml"
RETRAINED_FOLDER = "retrained"
RESULTS_FILE = f"{RETRAINED_FOLDER}/results.json"


def best_config(summary: Summary) -> RunConfig:
    """The settings of the best trial's run, under its first seed.

    Raises:
        UserError: if no trial has a result, or the settings no longer fit `RunConfig`.
    """
    if summary.best is None:
        raise UserError(f"sweep {summary.path}: no trial has a result yet")
    trial = summary.best.trial
    where = f"trial {trial.trial_id} of {summary.path / SWEEP_FILE}"
    base = make_config(summary.settings.get("base") or {}, where)
    seed = {"seed": trial.seeds[0].seed} if trial.seeds else {}
    return make_config(settings_above(base, trial.settings, seed), where)


def write_best(summary: Summary) -> Path:
    """Writes `SWEEP/best.yaml`, which `tfr-moe train --config` takes as it is.

    Raises:
        UserError: see `best_config`.
    """
    path = summary.path / BEST_FILE
    temporary = path.with_name(f".{path.name}.tmp")
    best_config(summary).save(temporary)
    os.replace(temporary, path)
    return path


def new_seeds(summary: Summary, count: int) -> list[int]:
    """So many seeds from the first one on that no trial has used: the choice was made by the others.

    Example:
        >>> from types import SimpleNamespace as Some
        >>> trial = Some(seeds=[Some(seed=1), Some(seed=2)])
        >>> new_seeds(Some(entries=[Some(trial=trial)]), 3)
        [3, 4, 5]
    """
    used = [seed.seed for entry in summary.entries for seed in entry.trial.seeds]
    first = max(used, default=0) + 1
    return list(range(first, first + count))


def retrain(sweep: str | Path, seeds: int, console: Console | None = None) -> list[Path]:
    """Trains the best configuration with `seeds` seeds that no trial had.

    The runs are `SWEEP/retrained/<trial_id>/seed-<seed>`, ordinary runs of `tfr-moe train`. Asked again
    it goes on where it was, and keeps what is finished.

    Args:
        sweep: the sweep's folder.
        seeds: how many, at least 1.
        console: where progress goes; None for stderr.

    Returns:
        The runs' folders, in the order of the seeds.

    Raises:
        UserError: if no trial has a result, or its data or settings no longer fit.
    """
    from tfr_moe._compat import tf
    from tfr_moe.baselines import train_any

    if seeds < 1:
        raise UserError(f"--retrain {seeds}: must be at least 1 seed")
    console = console or Console(stderr=True)
    summary = summarize_sweep(sweep)
    config = best_config(summary)
    assert summary.best is not None
    folder = summary.path / RETRAINED_FOLDER / summary.best.trial.trial_id
    runs = []
    for number, seed in enumerate(new_seeds(summary, seeds), start=1):
        run = folder / f"seed-{seed}"
        runs.append(run)
        if read_json(run / "metrics.json") is not None:
            continue
        console.print(f"retraining {number} of {seeds}, seed {seed}", highlight=False)
        run.parent.mkdir(parents=True, exist_ok=True)
        again = config.model_copy(update={"seed": seed})
        train_any(summary.settings["data"], run, again, console)
        tf.keras.backend.clear_session()
        gc.collect()
    return runs
