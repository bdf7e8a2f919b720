"""A sweep as its answers see it: trials in order, what varied, and how far the seeds alone scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from tfr_moe.errors import UserError

from . import words
from .records import SWEEP_FILE, TRIALS_FOLDER, Trial, load_trials

CONFIDENCE = 0.95
_WORK = "work"  # where a sweep keeps the training of trials that have no record yet


@dataclass(frozen=True)
class Noise:
    """How far results scatter between seeds of the same settings, over all trials of a sweep.

    Attributes:
        std: pooled standard deviation: sqrt(sum of squared deviations from the trial's mean / degrees).
        degrees: of freedom: seeds less trials, over trials with two seeds or more.
    """

    std: float
    degrees: int

    def least_difference(self, seeds: int, other_seeds: int) -> float:
        """The smallest difference of two trials' means that seeds alone would rarely make.

        t(0.975, degrees) std sqrt(1/n + 1/m): Fisher's least significant difference at 5 %, for one
        pair that was not picked out. The best of many trials is picked out: it is the best by luck
        more often than one time in twenty.

        Example:
            >>> round(Noise(std=0.001, degrees=16).least_difference(2, 2), 5)
            0.00212
        """
        quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, self.degrees))
        return quantile * self.std * math.sqrt(1 / seeds + 1 / other_seeds)


@dataclass(frozen=True)
class Entry:
    """A trial with a result.

    Attributes:
        trial: its record.
        rank: 1 is the best.
        value: mean of the objective over seeds.
        std: deviation between seeds (n - 1); NaN for one seed.
        gap: by how much it is worse than the best, never negative.
        tied: whether that is within the seeds' noise; None where no trial has two seeds.
    """

    trial: Trial
    rank: int
    value: float
    std: float
    gap: float
    tied: bool | None


@dataclass(frozen=True)
class Summary:
    """All that the table, the figures and the page are made of.

    Attributes:
        path: the sweep's folder.
        settings: the content of `sweep.yaml`.
        objective: its name.
        higher: whether more of it is better.
        entries: trials with a result, best first; of equals the earlier.
        failed: trials that ended with an error or without a number.
        open: ids of trials that are running or were interrupted.
        varying: hyper-parameters with more than one value, in their order.
        noise: scatter between seeds; None where no trial has two.
    """

    path: Path
    settings: dict[str, Any]
    objective: str
    higher: bool
    entries: tuple[Entry, ...]
    failed: tuple[Trial, ...]
    open: tuple[str, ...]
    varying: tuple[str, ...]
    noise: Noise | None

    @property
    def best(self) -> Entry | None:
        """The best trial so far."""
        return self.entries[0] if self.entries else None


def seed_values(trial: Trial, objective: str) -> list[float]:
    """The objective of each seed that has a number for it."""
    values = [seed.metrics.get(objective, math.nan) for seed in trial.seeds]
    return [value for value in values if math.isfinite(value)]


def pooled_noise(trials: Sequence[Trial], objective: str) -> Noise | None:
    """The scatter between seeds within trials; None where no trial has two seeds."""
    groups = [values for t in trials if len(values := seed_values(t, objective)) > 1]
    degrees = sum(len(values) - 1 for values in groups)
    if not degrees:
        return None
    squares = sum(float(np.var(values)) * len(values) for values in groups)
    return Noise(math.sqrt(squares / degrees), degrees)


def varying(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Names of hyper-parameters that differ between trials, also by being there in some only."""
    names = dict.fromkeys(name for trial in trials for name in trial.hyperparameters)
    return tuple(
        name
        for name in names
        if len({repr(trial.hyperparameters.get(name)) for trial in trials}) > 1
    )


def values_of(summary: Summary, name: str) -> list[Any]:
    """The values of a hyper-parameter that have a result: numbers by size, words as they came up."""
    by_id = sorted((entry.trial for entry in summary.entries), key=lambda trial: trial.trial_id)
    found = {repr(v): v for t in by_id for v in [t.hyperparameters.get(name)]}
    return sorted(found.values(), key=words.order)


def summarize_sweep(sweep: str | Path) -> Summary:
    """Reads a sweep, finished or not.

    Raises:
        UserError: if there is no such sweep, or its `sweep.yaml` names no objective.
    """
    sweep = Path(sweep)
    trials = load_trials(sweep)
    settings = _sweep_settings(sweep)
    objective, higher = settings["objective"]["name"], settings["objective"]["direction"] == "max"
    noise = pooled_noise(trials, objective)
    ended = {trial.trial_id for trial in trials}
    judged = [trial for trial in trials if _has_result(trial)]
    return Summary(
        path=sweep,
        settings=settings,
        objective=objective,
        higher=higher,
        entries=_ranked(judged, objective, higher, noise),
        failed=tuple(trial for trial in trials if not _has_result(trial)),
        open=tuple(i for i in _begun(sweep) if i not in ended),
        varying=varying(trials),
        noise=noise,
    )


def _sweep_settings(sweep: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load((sweep / SWEEP_FILE).read_text(encoding="utf-8"))
        objective = settings["objective"]
        if objective["direction"] not in ("max", "min") or not isinstance(objective["name"], str):
            raise ValueError("objective: direction must be max or min")
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise UserError(
            f"sweep {sweep}: {SWEEP_FILE} is not that of a sweep ({' '.join(str(error).split())})"
        ) from error
    return settings


def _begun(sweep: Path) -> list[str]:
    """Ids of all trials that have begun, whether they have a record or not."""
    folders = [path for place in (TRIALS_FOLDER, _WORK) for path in (sweep / place).glob("*")]
    return sorted({path.name for path in folders if path.is_dir() and path.name[0] != "."})


def _has_result(trial: Trial) -> bool:
    mean = trial.objective.mean
    return trial.status == "completed" and mean is not None and math.isfinite(mean)


def _ranked(
    trials: Sequence[Trial], objective: str, higher: bool, noise: Noise | None
) -> tuple[Entry, ...]:
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
        std = trial.objective.std
        entries.append(
            Entry(trial, rank, value(trial), math.nan if std is None else std, gap, tied)
        )
    return tuple(entries)
