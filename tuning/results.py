"""Results of a sweep: ranked trials, the variance between seeds, tables, the best configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.utils import formats
from tfr_moe.utils.console import TableColumn, fitted_table
from tfr_moe.utils.io import write_text

from .config import SweepConfig, load_sweep_config
from .space import settings_above
from .sweep_folder import SWEEP_FILE, TRIALS_FOLDER, WORK_FOLDER, Trial, load_trials, locked

CONFIDENCE = 0.95
BEST_FILE = "best.yaml"
TABLE_FILE = "results.csv"
TERMINAL_ROWS = 30
_SYMBOLS = {
    "hsc_weight": "λ₁",
    "adversarial_weight": "λ₂",
    "num_experts": "N",
    "top_k": "K",
    "num_adversarial": "D",
}


@dataclass(frozen=True)
class SeedNoise:
    """Standard deviation between seeds of the same settings, over all trials of a sweep.

    It is pooled: the root of the sum of squared deviations from the trial means over `degrees`,
    which are seeds minus trials, over trials with two seeds or more.
    """

    std: float
    degrees: int

    def least_difference(self, seeds: int) -> float:
        """Fisher's least significant difference of the means of two trials of n seeds, at 5 %.

        t(0.975, degrees) std sqrt(2/n). It holds for one pair that was not selected; the best of
        many trials is selected, and exceeds it by chance more often than one time in twenty.
        """
        quantile = float(stdtrit(self.degrees, 0.5 + CONFIDENCE / 2))
        return quantile * self.std * math.sqrt(2 / seeds)


@dataclass(frozen=True)
class RankedTrial:
    """A trial with a result, `rank` 1 being the best.

    `gap` is the difference to the best trial, never negative; `tied` says whether it is within seed
    noise, None if no trial has two seeds.
    """

    trial: Trial
    rank: int
    value: float
    gap: float
    tied: bool | None

    @property
    def text(self) -> str:
        """The mean with the standard deviation over seeds."""
        return formats.mean(self.value, self.trial.std)


@dataclass(frozen=True)
class SweepSummary:
    """What tables, figures and reports of a sweep show.

    Attributes:
        entries: trials with a result, best first; ties in order of their IDs.
        failed: trials that ended with an error or without a finite objective.
        open: IDs of trials that are running or were interrupted.
        varying: hyper-parameters with more than one value, in order.
        noise: deviation between seeds; None if no trial has two.
    """

    path: Path
    config: SweepConfig
    entries: tuple[RankedTrial, ...]
    failed: tuple[Trial, ...]
    open: tuple[str, ...]
    varying: tuple[str, ...]
    noise: SeedNoise | None

    @property
    def best(self) -> RankedTrial | None:
        """The best trial so far."""
        return self.entries[0] if self.entries else None

    @property
    def higher(self) -> bool:
        """Whether higher is better."""
        return self.config.direction == "max"


def pooled_noise(trials: Sequence[Trial]) -> SeedNoise | None:
    """The deviation between seeds within trials; None if no trial has two seeds."""
    parts = [(t.std**2, len(t.seeds) - 1) for t in trials if t.std is not None]
    degrees = sum(freedom for _, freedom in parts)
    if not degrees:
        return None
    return SeedNoise(math.sqrt(sum(part * freedom for part, freedom in parts) / degrees), degrees)


def varying(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Names of hyper-parameters that differ between trials or are missing in some."""
    names = dict.fromkeys(name for trial in trials for name in trial.hyperparameters)
    return tuple(
        name
        for name in names
        if len({repr(trial.hyperparameters.get(name)) for trial in trials}) > 1
    )


def summarize_sweep(sweep: str | Path) -> SweepSummary:
    """Reads a sweep, finished or not.

    Raises:
        UserError: if there is no such sweep, or its `sweep.yaml` is not valid.
    """
    sweep = Path(sweep)
    trials, config = load_trials(sweep), load_sweep_config(sweep / SWEEP_FILE)
    started = {
        p.stem for part in (TRIALS_FOLDER, WORK_FOLDER) for p in (sweep / part).glob("[!.]*")
    }
    finished = [trial for trial in trials if not trial.failed]
    noise = pooled_noise(finished)
    return SweepSummary(
        path=sweep,
        config=config,
        entries=_ranked(finished, config.direction == "max", noise),
        failed=tuple(trial for trial in trials if trial.failed),
        open=tuple(sorted(started - {trial.trial_id for trial in trials})),
        varying=varying(trials),
        noise=noise,
    )


def _ranked(
    trials: Sequence[Trial], higher: bool, noise: SeedNoise | None
) -> tuple[RankedTrial, ...]:
    values = {trial.trial_id: trial.mean for trial in trials if trial.mean is not None}
    ordered = sorted(trials, key=lambda t: values[t.trial_id] * (-1 if higher else 1))
    entries = []
    for rank, trial in enumerate(ordered, start=1):
        gap = abs(values[ordered[0].trial_id] - values[trial.trial_id])
        tied = None if noise is None else gap <= noise.least_difference(len(trial.seeds))
        entries.append(RankedTrial(trial, rank, values[trial.trial_id], gap, tied))
    return tuple(entries)


def best_config(summary: SweepSummary) -> RunConfig:
    """The run settings of the best trial, with its first seed."""
    if summary.best is None:
        raise UserError(f"sweep {summary.path}: no trial has a result yet")
    trial = summary.best.trial
    seed = {"seed": trial.seeds[0].seed} if trial.seeds else {}
    settings = settings_above(summary.config.base, trial.hyperparameters, seed)
    return make_config(settings, f"trial {trial.trial_id} of {summary.path / SWEEP_FILE}")


def write_results(sweep: str | Path) -> SweepSummary:
    """Writes `results.csv` and, once a trial has a result, `best.yaml` of a sweep so far.

    Existing files are replaced in one step each.
    """
    summary = summarize_sweep(sweep)
    with locked(summary.path):
        if summary.best is not None:
            best_config(summary).save(summary.path / BEST_FILE)
        write_text(summary.path / TABLE_FILE, to_csv(summary))
    return summary


def to_csv(summary: SweepSummary) -> str:
    """A row per trial: result, hyper-parameters, and the mean of each metric over seeds."""
    import pandas as pd  # takes long to load

    rows = [_csv_row(summary, entry.trial, entry) for entry in summary.entries]
    rows += [_csv_row(summary, trial) for trial in summary.failed]
    return pd.DataFrame(rows, dtype=object).to_csv(index=False)


def _csv_row(
    summary: SweepSummary, trial: Trial, entry: RankedTrial | None = None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rank": entry and entry.rank,
        "trial_id": trial.trial_id,
        "status": "failed" if trial.failed else "completed",
        "objective": summary.config.objective,
        "mean": entry and entry.value,
        "std": entry and trial.std,
        "gap": entry and entry.gap,
        "within_noise": entry and entry.tied,
        "num_seeds": len(trial.seeds),
        "seconds": round(sum(seed.seconds for seed in trial.seeds), 1),
        "error": trial.error,
    }
    for name, value in trial.hyperparameters.items():
        row[name] = json.dumps(value) if isinstance(value, list | dict) else value
    for name in dict.fromkeys(name for seed in trial.seeds for name in seed.metrics):
        row[f"mean_{name}"] = fmean(s.metrics[name] for s in trial.seeds if name in s.metrics)
    return row


def symbol(name: str) -> str:
    """The symbol of a hyper-parameter in the first paper, else its name."""
    return _SYMBOLS.get(name, name)


def settings_text(hyperparameters: Mapping[str, Any], names: Iterable[str]) -> str:
    """The values of the named hyper-parameters in one line: `N = 16, K = 2`."""
    parts = (f"{symbol(name)} = {formats.setting(hyperparameters.get(name))}" for name in names)
    return ", ".join(parts)


def range_text(numbers: Sequence[int]) -> str:
    """The smallest and the largest number, or the only one: `3–5`."""
    return "–".join(map(str, sorted({min(numbers), max(numbers)}))) if numbers else ""


def count_line(summary: SweepSummary) -> str:
    """How many trials have a result, failed, and are running or were interrupted."""
    number = len(summary.entries)
    parts = [f"{number} trial{'' if number == 1 else 's'} with a result"]
    if summary.failed:
        parts.append(f"{len(summary.failed)} failed")
    if summary.open:
        parts.append(f"{len(summary.open)} running or interrupted")
    return ", ".join(parts)


def noise_line(summary: SweepSummary) -> str:
    """What the seeds say about differences between trials."""
    if summary.best is None:
        return "No trial has a result yet."
    if summary.noise is None:
        return (
            "One seed per trial: differences between trials cannot be separated from seed "
            "variance. Use several seeds before choosing by small differences."
        )
    tied = sum(bool(entry.tied) for entry in summary.entries) - 1
    seeds = len(summary.best.trial.seeds)
    least = summary.noise.least_difference(seeds)
    return (
        f"Standard deviation over seeds of the same settings: {summary.noise.std:.4f} (pooled, "
        f"{summary.noise.degrees} degrees of freedom). Two trials of {seeds} seeds differ "
        f"significantly ({CONFIDENCE:.0%}) from {least:.4f} on. Not significantly worse than the "
        f"best: {tied} of the other {len(summary.entries) - 1}."
    )


def _table(summary: SweepSummary, width: int) -> Table:
    """Trials by rank: result with standard deviation, gap to the best, settings that vary."""
    entries = summary.entries[:TERMINAL_ROWS]
    trials = [entry.trial for entry in entries]

    def values(name: str) -> list[str]:
        return [formats.setting(trial.hyperparameters.get(name)) for trial in trials]

    gaps = [f"{e.gap:.4f}{' ~' if e.tied else ''}" if e.rank > 1 else "" for e in entries]
    epochs = [range_text([seed.epochs for seed in trial.seeds]) for trial in trials]
    return fitted_table(
        [
            TableColumn("", [str(entry.rank) for entry in entries]),
            TableColumn("trial", [trial.trial_id for trial in trials], numeric=False),
            TableColumn(summary.config.objective, [entry.text for entry in entries]),
            TableColumn("gap", gaps),
            *(TableColumn(symbol(name), values(name)) for name in summary.varying),
            TableColumn("seeds", [str(len(trial.seeds)) for trial in trials]),
            TableColumn("epochs", epochs),
            TableColumn(
                "s", [f"{sum(seed.seconds for seed in trial.seeds):.0f}" for trial in trials]
            ),
        ],
        always=4,
        width=width,
        caption="gap: difference to the best; ~ within seed noise",
        hint=f"see {TABLE_FILE}",
    )


def print_table(sweep: str | Path, console: Console | None = None) -> None:
    """Prints the trials of a sweep, best first, failed trials with their errors, and seed noise."""
    summary, console = summarize_sweep(sweep), console or Console()

    def line(text: str, **how: Any) -> None:
        console.print(text, highlight=False, markup=False, **how)

    better = "higher" if summary.higher else "lower"
    line(f"{summary.path.resolve().name}: {summary.config.objective}, {better} is better")
    if summary.entries:
        console.print(_table(summary, console.width))
    if (hidden := len(summary.entries) - TERMINAL_ROWS) > 0:
        line(f"{hidden} more trials: see {TABLE_FILE}")
    for trial in summary.failed:
        settings = settings_text(trial.hyperparameters, summary.varying)
        error = trial.error or "no number"
        line(f"failed: trial {trial.trial_id} ({settings}): {error}", style="red", soft_wrap=True)
    line(f"{count_line(summary)}.")
    line(noise_line(summary))
