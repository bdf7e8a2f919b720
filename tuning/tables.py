"""The trials of a sweep as a table: for the terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import words
from .records import Trial
from .summary import CONFIDENCE, Entry, Summary

TERMINAL_ROWS = 30


def count_line(summary: Summary) -> str:
    """How far the sweep is.

    It says how many trials have a result, failed, and are running or were interrupted.
    """
    number = len(summary.entries)
    parts = [f"{number} trial{'' if number == 1 else 's'} with a result"]
    if summary.failed:
        parts.append(f"{len(summary.failed)} failed")
    if summary.open:
        parts.append(f"{len(summary.open)} running or interrupted")
    return ", ".join(parts)


def noise_line(summary: Summary) -> str:
    """What the seeds say about differences between trials, in a sentence or two."""
    if summary.best is None:
        return "No trial has a result yet."
    if summary.noise is None:
        return (
            "One seed a trial: nothing here tells a difference between trials from the chance of the "
            "seed. Ask for several seeds before choosing by small differences."
        )
    tied = sum(bool(entry.tied) for entry in summary.entries) - 1
    seeds = len(summary.best.trial.seeds)
    least = summary.noise.least_difference(seeds, seeds)
    return (
        f"Between seeds of the same settings the result scatters by {summary.noise.std:.4f} (pooled "
        f"standard deviation, {summary.noise.degrees} degrees of freedom). Two trials of {seeds} seeds "
        f"differ beyond that, at {CONFIDENCE:.0%}, when they are {least:.4f} apart. Closer to the best "
        f"than that: {tied} of the other {len(summary.entries) - 1}."
    )


def trial_table(summary: Summary, most: int = TERMINAL_ROWS, width: int = 80) -> Table:
    """Trials by rank: what varied, the result with its deviation, and the gap to the best.

    What varied gets a column each, or one for all where `width` characters are too few for that.
    """
    names = summary.varying
    apart = sum(max(8, len(words.symbol(name)) + 1) for name in names) <= max(width - 50, 24)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("trial", no_wrap=True)
    for name in names if apart else ():
        table.add_column(escape(words.symbol(name)), justify="right", overflow="fold")
    if not apart:
        table.add_column("settings")
    for name in (summary.objective, "gap", "seeds", "epochs", "s"):
        table.add_column(escape(name), justify="right", no_wrap=True)
    for entry in summary.entries[:most]:
        given = entry.trial.hyperparameters
        settings = [words.shown(given.get(name)) for name in names]
        cells = _cells(entry, settings if apart else [words.settings(given, names)])
        table.add_row(*map(escape, cells), style="bold" if entry.rank == 1 else "")
    return table


def _cells(entry: Entry, settings: list[str]) -> list[str]:
    trial = entry.trial
    near = " ~" if entry.tied and entry.rank > 1 else ""
    return [
        str(entry.rank),
        trial.trial_id,
        *settings,
        words.measured(entry.value, entry.std),
        "" if entry.rank == 1 else f"{entry.gap:.4f}{near}",
        str(len(trial.seeds)),
        words.span([seed.epochs for seed in trial.seeds]),
        f"{sum(seed.seconds for seed in trial.seeds):.0f}",
    ]


def print_summary(summary: Summary, console: Console, most: int = TERMINAL_ROWS) -> None:
    """Prints the table, the failures with their errors and what the seeds say."""
    better = "higher" if summary.higher else "lower"
    _line(console, f"{summary.path.resolve().name}: {summary.objective}, {better} is better")
    if summary.entries:
        console.print(trial_table(summary, most, console.width))
        _line(console, "gap: behind the best; ~ within the seeds' noise")
    hidden = len(summary.entries) - most
    if hidden > 0:
        _line(console, f"and {hidden} more; all are in results.csv")
    for trial in summary.failed:
        what = words.settings(trial.hyperparameters, summary.varying)
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


def marginals(summary: Summary) -> dict[str, list[tuple[Any, float, int]]]:
    """Per hyper-parameter: value, mean result over the trials with it, number of those trials.

    Only hyper-parameters of few values with two trials or more for each. In a full grid these are main
    effects; after a random or guided search other hyper-parameters differ between the groups too.
    """
    found = {}
    for name in summary.varying:
        groups: dict[str, list[Entry]] = {}
        for entry in summary.entries:
            groups.setdefault(repr(entry.trial.hyperparameters.get(name)), []).append(entry)
        if not 2 <= len(groups) <= 12 or any(len(group) < 2 for group in groups.values()):
            continue
        rows = [
            (group[0].trial.hyperparameters.get(name), _mean([e.value for e in group]), len(group))
            for group in groups.values()
        ]
        found[name] = sorted(rows, key=lambda row: words.order(row[0]))
    return found


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def records(summary: Summary) -> list[dict[str, Any]]:
    """A flat record for each trial, those with a result first and in order."""
    ranked = [_record(summary, entry.trial, entry) for entry in summary.entries]
    return ranked + [_record(summary, trial, None) for trial in summary.failed]


def _record(summary: Summary, trial: Trial, entry: Entry | None) -> dict[str, Any]:
    return {
        "rank": entry.rank if entry else None,
        "trial_id": trial.trial_id,
        "status": trial.status,
        "hyperparameters": trial.hyperparameters,
        "objective": summary.objective,
        "mean": entry.value if entry else None,
        "std": None if entry is None or math.isnan(entry.std) else entry.std,
        "gap": entry.gap if entry else None,
        "within_noise": entry.tied if entry else None,
        "seeds": [
            {
                "seed": seed.seed,
                "best_epoch": seed.best_epoch,
                "epochs": seed.epochs,
                "seconds": seed.seconds,
                "metrics": seed.metrics,
            }
            for seed in trial.seeds
        ],
        "error": trial.error,
    }


def to_json(summary: Summary) -> str:
    """Everything the table says, for programs."""
    noise = summary.noise
    content = {
        "objective": {"name": summary.objective, "direction": "max" if summary.higher else "min"},
        "completed": len(summary.entries),
        "failed": len(summary.failed),
        "open": list(summary.open),
        "varying": list(summary.varying),
        "noise": None if noise is None else {"std": noise.std, "degrees_of_freedom": noise.degrees},
        "trials": records(summary),
    }
    return json.dumps(content, indent=1) + "\n"


def to_csv(summary: Summary) -> str:
    """A row for each trial: rank, what varied, the result, each metric's mean over seeds, the error."""
    rows = records(summary)
    names = list(dict.fromkeys(name for row in rows for name in row["hyperparameters"]))
    metrics = list(dict.fromkeys(n for row in rows for s in row["seeds"] for n in s["metrics"]))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    fixed = ["mean", "std", "gap", "within_noise"]
    writer.writerow(
        ["rank", "trial_id", "status", *names, "objective", *fixed, "num_seeds", "seconds"]
        + [f"mean_{name}" for name in metrics]
        + ["error"]
    )
    for row in rows:
        seeds = row["seeds"]
        writer.writerow(
            [row["rank"], row["trial_id"], row["status"]]
            + [_plain(row["hyperparameters"].get(name)) for name in names]
            + [row["objective"], *(row[name] for name in fixed), len(seeds)]
            + [round(sum(seed["seconds"] for seed in seeds), 1)]
            + [_metric_mean(seeds, name) for name in metrics]
            + [row["error"]]
        )
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def _metric_mean(seeds: list[dict[str, Any]], name: str) -> float | None:
    values = [seed["metrics"][name] for seed in seeds if name in seed["metrics"]]
    return _mean(values) if values else None
