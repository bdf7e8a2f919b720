"""Trained runs on one split: each list scored once by each model, then compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.per_list import resolve
from tfr_moe.evaluation.report import EvaluationReport, report
from tfr_moe.evaluation.result import PerListResult, Policy, evaluate_lists
from tfr_moe.evaluation.score import score_dataset
from tfr_moe.metric_names import DEFAULT_NAMES
from tfr_moe.training import load_run

POLICIES = get_args(Policy)


def run_names(runs: Sequence[Path]) -> dict[str, Path]:
    """A short name for each run: its folder's, or the whole path where two are called alike."""
    runs = list(dict.fromkeys(runs))
    short = [run.name for run in runs]
    return {run.name if run.name and short.count(run.name) == 1 else str(run): run for run in runs}


def evaluate_run(
    data: DataFolder, run: Path, split: str, metrics: Sequence[str], batch_size: int = 128
) -> PerListResult:
    """Scores every list of a split by a run's model and judges it."""
    loaded = load_run(run)
    if loaded.schema != data.schema:
        raise UserError(f"run {run}: was trained with another schema than {data.path} has")
    dataset = ElwcDatasetBuilder(data, batch_size).build_evaluation_dataset(split)
    return evaluate_lists(score_dataset(loaded.model, dataset, loaded.schema), metrics)


def evaluate_runs(
    data: str | Path,
    runs: Sequence[Path],
    baseline: Path | None = None,
    split: str = "test",
    metrics: Sequence[str] | None = None,
    policy: Any = "skip",
    batch_size: int = 128,
    console: Console | None = None,
) -> EvaluationReport:
    """Evaluates runs and compares them with the baseline.

    Args:
        data: the data-set folder.
        runs: folders of runs.
        baseline: folder of the run that the others are compared with; evaluated too.
        split: train, validation or test.
        metrics: names; None for those of the first paper and the usual ones.
        policy: what lists with nothing relevant count: skip, zero or one.
        batch_size: lists per batch; does not change the numbers.
        console: where progress goes; None for stderr.

    Raises:
        UserError: for runs, names or data that don't fit, before anything is scored.
    """
    console = console or Console(stderr=True)
    if policy not in POLICIES:
        raise UserError(f"policy {policy!r} is unknown; there are: {', '.join(POLICIES)}")
    wanted = tuple(metrics or DEFAULT_NAMES)
    for name in wanted:
        resolve(name)
    folder = DataFolder(data)
    folder.files(split)
    named = run_names([*([baseline] if baseline else []), *runs])
    results = {}
    for name, run in named.items():
        with console.status(f"evaluating {name}"):
            results[name] = evaluate_run(folder, run, split, wanted, batch_size)
    base = next((name for name, run in named.items() if run == baseline), None)
    return report(results, base, policy)
