"""The best configuration of a sweep with new seeds, judged on the test split.

Only here does anything that comes from tuning meet the test split, and only when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tfr_moe.comparison import evaluate_run
from tfr_moe.data import DataFolder
from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.folders import read_json, write_json
from tfr_moe.metric_names import DEFAULT_NAMES
from tfr_moe.tuning.best import RESULTS_FILE, retrain
from tfr_moe.tuning.summary import summarize_sweep


def retrain_and_test(
    sweep: str | Path, seeds: int, console: Console | None = None
) -> dict[str, Any]:
    """Trains the best configuration with `seeds` new seeds and evaluates the runs on the test split.

    Args:
        sweep: the sweep's folder; `retrained/` below it takes the runs and `results.json`.
        seeds: how many, at least 1.
        console: where progress goes; None for stderr.

    Returns:
        What `retrained/results.json` holds: `trial_id`, `runs` (per seed: `seed`, `run`, `validation`
        and `test` metrics) and `summary` (split -> metric -> mean, std, 95 % t interval over seeds).

    Raises:
        UserError: if no trial has a result, or its data or settings no longer fit.
    """
    console = console or Console(stderr=True)
    summary = summarize_sweep(sweep)
    data = DataFolder(summary.settings["data"])
    data.files("test")
    runs = retrain(sweep, seeds, console)
    found: list[dict[str, Any]] = []
    for run in runs:
        with console.status(f"evaluating {run.name} on the test split"):
            result = evaluate_run(data, run, "test", DEFAULT_NAMES)
        best = read_json(run / "metrics.json")["best"]
        found.append(
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
        "runs": found,
        "summary": {
            split: over_seeds([run[split] for run in found]) for split in ("test", "validation")
        },
    }
    write_json(summary.path / RESULTS_FILE, content)
    return content


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Per metric: mean, deviation and 95 % t interval over runs; None where one run tells nothing.

    Example:
        >>> found = over_seeds([{"ndcg": 0.70}, {"ndcg": 0.72}, {"ndcg": 0.74}])["ndcg"]
        >>> {name: round(value, 3) for name, value in found.items()}
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


def print_retrained(content: Mapping[str, Any], console: Console) -> None:
    """Prints the test metrics of the retrained runs."""
    seeds = ", ".join(str(run["seed"]) for run in content["runs"])
    console.print(
        f"trial {content['trial_id']}, retrained with seeds {seeds}, on the test split",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("metric")
    for name in ("mean", "95% interval over seeds"):
        table.add_column(name, justify="right", no_wrap=True)
    for metric, numbers in content["summary"]["test"].items():
        low, high = numbers["low"], numbers["high"]
        interval = "-" if low is None else f"{low:.4f} to {high:.4f}"
        table.add_row(metric, f"{numbers['mean']:.4f}", interval)
    console.print(table)
