"""Results of a sweep: its ranked trials, the variance between seeds, and the best configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.utils.settings import read_yaml

from .formatting import sort_key
from .search_space import settings_above
from .sweep_folder import (
    SWEEP_FILE,
    TRIALS_FOLDER,
    WORK_FOLDER,
    Trial,
    load_trials,
)

CONFIDENCE = 0.95
BEST_FILE = "best.yaml"


@dataclass(frozen=True)
class SeedNoise:
    """Standard deviation between seeds of the same settings, over all trials of a sweep.

    Attributes:
        std: pooled: sqrt(sum of squared deviations from the trial means / degrees).
        degrees: degrees of freedom: seeds minus trials, over trials with two seeds or more.
    """

    std: float
    degrees: int

    def least_difference(self, seeds: int, other_seeds: int) -> float:
        """Fisher's least significant difference of two trial means at 5 %.

        t(0.975, degrees) std sqrt(1/n + 1/m). It holds for one pair that was not selected; the best
        of many trials is selected, and exceeds it by chance more often than one time in twenty.

        Example:
            >>> round(SeedNoise(std=0.001, degrees=16).least_difference(2, 2), 5)
            0.00212
        """
        quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, self.degrees))
        return quantile * self.std * math.sqrt(1 / seeds + 1 / other_seeds)


@dataclass(frozen=True)
class RankedTrial:
    """A trial with a result.

    Attributes:
        trial: its record.
        rank: 1 is the best.
        value: mean of the objective over seeds.
        std: sample standard deviation over seeds; NaN for one seed.
        gap: difference to the best trial, never negative.
        tied: whether the gap is within seed noise; None if no trial has two seeds.
    """

    trial: Trial
    rank: int
    value: float
    std: float
    gap: float
    tied: bool | None


@dataclass(frozen=True)
class SweepSummary:
    """What tables, figures and reports of a sweep show.

    Attributes:
        path: the sweep's folder.
        settings: content of `sweep.yaml`.
        objective: name of the metric.
        higher: whether higher is better.
        entries: trials with a result, best first; ties in order of their IDs.
        failed: trials that ended with an error or without a finite objective.
        open: IDs of trials that are running or were interrupted.
        varying: hyper-parameters with more than one value, in order.
        noise: deviation between seeds; None if no trial has two.
    """

    path: Path
    settings: dict[str, Any]
    objective: str
    higher: bool
    entries: tuple[RankedTrial, ...]
    failed: tuple[Trial, ...]
    open: tuple[str, ...]
    varying: tuple[str, ...]
    noise: SeedNoise | None

    @property
    def best(self) -> RankedTrial | None:
        """The best trial so far."""
        return self.entries[0] if self.entries else None


def seed_values(trial: Trial, objective: str) -> list[float]:
    """The finite values of the objective over a trial's seeds."""
    values = [seed.metrics.get(objective, math.nan) for seed in trial.seeds]
    return [value for value in values if math.isfinite(value)]


def pooled_noise(trials: Sequence[Trial], objective: str) -> SeedNoise | None:
    """The deviation between seeds within trials; None if no trial has two seeds."""
    groups = [values for t in trials if len(values := seed_values(t, objective)) > 1]
    degrees = sum(len(values) - 1 for values in groups)
    if not degrees:
        return None
    squares = sum(float(np.var(values)) * len(values) for values in groups)
    return SeedNoise(math.sqrt(squares / degrees), degrees)


def varying(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Names of hyper-parameters that differ between trials or are missing in some."""
    names = dict.fromkeys(name for trial in trials for name in trial.hyperparameters)
    return tuple(
        name
        for name in names
        if len({repr(trial.hyperparameters.get(name)) for trial in trials}) > 1
    )


def values_of(summary: SweepSummary, name: str) -> list[Any]:
    """The values of a hyper-parameter in trials with a result: numbers sorted, then others."""
    by_id = sorted((entry.trial for entry in summary.entries), key=lambda trial: trial.trial_id)
    values = (trial.hyperparameters.get(name) for trial in by_id)
    return sorted({repr(value): value for value in values}.values(), key=sort_key)


def summarize_sweep(sweep: str | Path) -> SweepSummary:
    """Reads a sweep, finished or not.

    Raises:
        UserError: if there is no such sweep, or its `sweep.yaml` has no objective.
    """
    sweep = Path(sweep)
    trials = load_trials(sweep)
    settings = _sweep_settings(sweep)
    objective, higher = settings["objective"]["name"], settings["objective"]["direction"] == "max"
    noise = pooled_noise(trials, objective)
    ended = {trial.trial_id for trial in trials}
    evaluated = [trial for trial in trials if _has_result(trial)]
    return SweepSummary(
        path=sweep,
        settings=settings,
        objective=objective,
        higher=higher,
        entries=_ranked(evaluated, objective, higher, noise),
        failed=tuple(trial for trial in trials if not _has_result(trial)),
        open=tuple(trial_id for trial_id in _started(sweep) if trial_id not in ended),
        varying=varying(trials),
        noise=noise,
    )


def _sweep_settings(sweep: Path) -> dict[str, Any]:
    settings = read_yaml(sweep / SWEEP_FILE, "sweep")
    try:
        objective = settings["objective"]
        if objective["direction"] not in ("max", "min") or not isinstance(objective["name"], str):
            raise ValueError("objective: direction must be max or min")
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(
            f"sweep {sweep}: {SWEEP_FILE} is not valid ({' '.join(str(error).split())})"
        ) from error
    return settings


def _started(sweep: Path) -> list[str]:
    """IDs of all trials that have started, with or without a record."""
    folders = [path for name in (TRIALS_FOLDER, WORK_FOLDER) for path in (sweep / name).glob("*")]
    return sorted({path.name for path in folders if path.is_dir() and path.name[0] != "."})


def _has_result(trial: Trial) -> bool:
    mean = trial.objective.mean
    return trial.status == "completed" and mean is not None and math.isfinite(mean)


def _ranked(
    trials: Sequence[Trial], objective: str, higher: bool, noise: SeedNoise | None
) -> tuple[RankedTrial, ...]:
    def value(trial: Trial) -> float:
        assert trial.objective.mean is not None
        return trial.objective.mean

    ordered = sorted(trials, key=lambda t: -value(t) if higher else value(t))
    entries = []
    for rank, trial in enumerate(ordered, start=1):
        gap = abs(value(ordered[0]) - value(trial))
        tied = None
        if noise is not None:
            counts = (len(seed_values(t, objective)) or 1 for t in (ordered[0], trial))
            tied = gap <= noise.least_difference(*counts)
        std = math.nan if trial.objective.std is None else trial.objective.std
        entries.append(RankedTrial(trial, rank, value(trial), std, gap, tied))
    return tuple(entries)


# ------------------------------------------------------------------------------- best configuration


def best_config(summary: SweepSummary) -> RunConfig:
    """The run settings of the best trial, with its first seed.

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


def write_best(summary: SweepSummary) -> Path:
    """Writes `SWEEP/best.yaml`, a configuration for training.

    Raises:
        UserError: see `best_config`.
    """
    path = summary.path / BEST_FILE
    best_config(summary).save(path)
    return path
