"""Tables of a sweep's trials: for the terminal and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from tfr_moe.utils.console import Column, fitted_table
from tfr_moe.utils.io import write_text

from . import formatting
from .results import CONFIDENCE, RankedTrial, SweepSummary, summarize_sweep, write_best
from .sweep_folder import LOCK_FILE, Trial, locked

TERMINAL_ROWS = 30
TABLE_FILE = "results.csv"


def write_results(sweep: str | Path) -> SweepSummary:
    """Writes `results.csv` and `best.yaml` of a sweep so far.

    `best.yaml` needs a trial with a result. Existing files are replaced in one step each.

    Raises:
        UserError: if there is no such sweep.
    """
    summary = summarize_sweep(sweep)
    with locked(summary.path / LOCK_FILE):
        if summary.best is not None:
            write_best(summary)
        write_text(summary.path / TABLE_FILE, to_csv(summary))
    return summary


def print_table(sweep: str | Path, console: Console | None = None) -> None:
    """Prints the trials of a sweep, best first, with failures and seed noise.

    Raises:
        UserError: if there is no such sweep.
    """
    print_summary(summarize_sweep(sweep), console or Console())


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
            "One seed per trial: differences between trials cannot be told from seed variance. Use "
            "several seeds before choosing by small differences."
        )
    tied = sum(bool(entry.tied) for entry in summary.entries) - 1
    seeds = len(summary.best.trial.seeds)
    least = summary.noise.least_difference(seeds, seeds)
    return (
        f"Standard deviation over seeds of the same settings: {summary.noise.std:.4f} (pooled, "
        f"{summary.noise.degrees} degrees of freedom). Two trials of {seeds} seeds differ "
        f"significantly ({CONFIDENCE:.0%}) from {least:.4f} on. Not significantly worse than the "
        f"best: {tied} of the other {len(summary.entries) - 1}."
    )


def trial_table(
    summary: SweepSummary, most: int = TERMINAL_ROWS, width: int | None = None
) -> Table:
    """Trials by rank: result with standard deviation, gap to the best, hyper-parameters that vary.

    Hyper-parameters that do not fit into `width` are named below the table.
    """
    entries = summary.entries[:most]
    trials = [entry.trial for entry in entries]

    def values(name: str) -> list[str]:
        return [formatting.format_value(trial.hyperparameters.get(name)) for trial in trials]

    epochs = [[seed.epochs for seed in trial.seeds] for trial in trials]
    return fitted_table(
        [
            Column("", [str(entry.rank) for entry in entries]),
            Column("trial", [trial.trial_id for trial in trials], numeric=False),
            Column(
                summary.objective,
                [formatting.format_mean(entry.value, entry.std) for entry in entries],
            ),
            Column("gap", list(map(_gap, entries))),
            *(Column(formatting.symbol(name), values(name)) for name in summary.varying),
            Column("seeds", [str(len(trial.seeds)) for trial in trials]),
            Column("epochs", list(map(formatting.format_range, epochs))),
            Column("s", [f"{sum(seed.seconds for seed in trial.seeds):.0f}" for trial in trials]),
        ],
        always=4,
        width=width,
        caption="gap: difference to the best; ~ within seed noise",
        hint=f"see {TABLE_FILE}",
    )


def _gap(entry: RankedTrial) -> str:
    if entry.rank == 1:
        return ""
    return f"{entry.gap:.4f}{' ~' if entry.tied else ''}"


def print_summary(summary: SweepSummary, console: Console, most: int = TERMINAL_ROWS) -> None:
    """Prints the table, the failed trials with their errors, and seed noise."""
    better = "higher" if summary.higher else "lower"
    _line(console, f"{summary.path.resolve().name}: {summary.objective}, {better} is better")
    if summary.entries:
        console.print(trial_table(summary, most, console.width))
    hidden = len(summary.entries) - most
    if hidden > 0:
        _line(console, f"{hidden} more trials: see {TABLE_FILE}")
    for trial in summary.failed:
        what = formatting.format_settings(trial.hyperparameters, summary.varying)
        error = trial.error or "no number"
        _line(
            console,
            f"failed: trial {trial.trial_id} ({what}): {error}",
            style="red",
            soft_wrap=True,
        )
    for line in (count_line(summary) + ".", noise_line(summary)):
        _line(console, line)


def _line(console: Console, text: str, **how: Any) -> None:
    console.print(text, highlight=False, markup=False, **how)


def marginals(summary: SweepSummary) -> dict[str, list[tuple[Any, float, int]]]:
    """Per hyper-parameter: its values, each with the mean result and the number of its trials.

    Only hyper-parameters with at most 12 values and two trials or more for each. In a full grid
    these are main effects; after a random or guided search other hyper-parameters differ too.
    """
    means = {}
    for name in summary.varying:
        groups: dict[str, list[RankedTrial]] = {}
        for entry in summary.entries:
            groups.setdefault(repr(entry.trial.hyperparameters.get(name)), []).append(entry)
        if not 2 <= len(groups) <= 12 or any(len(group) < 2 for group in groups.values()):
            continue
        rows = [
            (group[0].trial.hyperparameters.get(name), fmean(e.value for e in group), len(group))
            for group in groups.values()
        ]
        means[name] = sorted(rows, key=lambda row: formatting.sort_key(row[0]))
    return means


def to_csv(summary: SweepSummary) -> str:
    """A row per trial: rank, hyper-parameters, result, mean of each metric over seeds, error."""
    ranked = [(entry.trial, entry) for entry in summary.entries]
    rows = [*ranked, *((trial, None) for trial in summary.failed)]
    trials = [trial for trial, _ in rows]
    names = list(dict.fromkeys(name for trial in trials for name in trial.hyperparameters))
    metrics = list(dict.fromkeys(name for t in trials for s in t.seeds for name in s.metrics))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    results = ("objective", "mean", "std", "gap", "within_noise", "num_seeds", "seconds")
    means = [f"mean_{name}" for name in metrics]
    writer.writerow(["rank", "trial_id", "status", *names, *results, *means, "error"])
    for trial, entry in rows:
        result: list[Any] = [None] * 4
        if entry is not None:
            std = None if math.isnan(entry.std) else entry.std
            result = [entry.value, std, entry.gap, entry.tied]
        writer.writerow(
            [entry.rank if entry else None, trial.trial_id, trial.status]
            + [_plain(trial.hyperparameters.get(name)) for name in names]
            + [summary.objective, *result, len(trial.seeds)]
            + [round(sum(seed.seconds for seed in trial.seeds), 1)]
            + [_metric_mean(trial, name) for name in metrics]
            + [trial.error]
        )
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def _metric_mean(trial: Trial, name: str) -> float | None:
    values = [seed.metrics[name] for seed in trial.seeds if name in seed.metrics]
    return fmean(values) if values else None
