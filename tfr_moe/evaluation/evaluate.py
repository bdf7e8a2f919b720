"""Evaluation of trained runs on one split, and their comparison with a baseline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines.run import BaselineRun, load_model, open_run
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.elwc.log_checks import OrderSums
from tfr_moe.errors import UserError
from tfr_moe.evaluation.breakdown import CategoryRow, per_category
from tfr_moe.evaluation.results import (
    CONFIDENCE,
    PerListResult,
    Policy,
    Summary,
    evaluate_tasks,
    summarize,
)
from tfr_moe.evaluation.scoring import score_tasks
from tfr_moe.evaluation.significance import Comparison, compare
from tfr_moe.metrics.naming import DEFAULT_NAMES, check_columns
from tfr_moe.metrics.per_list import ListBatch
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun
from tfr_moe.training.run_folder import FinishedRun, finished_run
from tfr_moe.utils.console import ProgressCallback, progress_bar, warn
from tfr_moe.utils.failures import file_errors
from tfr_moe.utils.io import plain

POLICIES = get_args(Policy)
BatchCallback = Callable[[Mapping[str, ListBatch]], None]
"""Receives a scored batch of lists by task."""


def run_names(runs: Sequence[Path], baseline: Path | None = None) -> dict[str, Path]:
    """Names of runs, a baseline first: their paths from what all have in common.

    The folder alone instead of a path of three parts or more, if no two folders are called alike.
    """
    runs = list(dict.fromkeys(filter(None, [baseline, *runs])))
    if not runs:
        return {}
    common = os.path.commonpath([run.absolute().parent for run in runs])
    paths = {os.path.relpath(run, common): run for run in runs}
    folders = {run.absolute().name: run for run in runs}
    far = any(len(Path(path).parts) > 2 for path in paths)
    return folders if far and len(folders) == len(runs) else paths


def split_metric(metric: str, tasks: Sequence[str]) -> tuple[str, str]:
    """The task of a metric, by default the first, and its name without it; "" without tasks."""
    named = [task for task in tasks if metric.startswith(f"{task}_")]
    task = max(named, key=len, default=next(iter(tasks), ""))
    return task, metric.removeprefix(f"{task}_")


def check_schema(loaded: FinishedRun, data: DataFolder) -> None:
    """Raises a UserError for a run that was trained with another schema than that of the data.

    The column of weights may differ: no model reads it.
    """
    of_run, of_data = (s.model_dump(exclude={"weight"}) for s in (loaded.schema, data.schema))
    if of_run != of_data:
        other = ", ".join(key for key in of_run if of_run[key] != of_data[key])
        raise UserError(
            f"run {loaded.path}: was trained with another schema than that of {data.path}: {other}"
        )


def evaluate_run(
    data: DataFolder,
    run: str | Path | LoadedRun | BaselineRun,
    split: str,
    metrics: Sequence[str],
    batch_size: int = 128,
    tasks: Sequence[str] = (),
    combined: bool = False,
    callbacks: Sequence[BatchCallback] = (),
    dataset: tf.data.Dataset | None = None,
) -> PerListResult:
    """Scores every list of a split with the model of a run and computes its metrics.

    Args:
        batch_size: lists per batch; does not change the numbers.
        tasks: labels to evaluate, each with metrics `<task>_<metric>`: a multi-task run by its
            score of that task, any other by its single score. Default: the tasks of the run.
        combined: whether a multi-task run is evaluated by its combined score only.
        callbacks: called with each scored batch by task, "" without tasks.
        dataset: the split of `build_evaluation_dataset`; saves making it for every run.

    Raises:
        UserError: for a run of another schema, without one of the tasks, or a metric that is
            undefined on the data.
    """
    loaded = open_run(run) if isinstance(run, (str, Path)) else run
    check_schema(loaded, data)
    check_columns(metrics, data.schema.position, data.schema.weight)
    of_run = loaded.task_names
    tasks = tuple(tasks) or of_run
    missing = [task for task in tasks if of_run and task not in of_run and not combined]
    if missing:
        raise UserError(
            f"run {loaded.path}: has no task {missing[0]!r}; tasks: {', '.join(of_run)}"
        )
    if dataset is None:
        builder = ElwcDatasetBuilder(data, batch_size, tasks=tasks)
        dataset = builder.build_evaluation_dataset(split)
    outputs: dict[str, str | None] = dict.fromkeys(tasks or ("",))
    if of_run and tasks:
        outputs = {task: SCORES if combined else f"{SCORES}_{task}" for task in tasks}

    def watched() -> Iterator[dict[str, ListBatch]]:
        for by_task in score_tasks(loaded.score, dataset, data.schema, outputs):
            for callback in callbacks:
                callback(by_task)
            yield by_task

    with file_errors(f"data {data.path}"):
        return evaluate_tasks(watched(), list(outputs), metrics)


def _count_order(order: OrderSums, by_task: Mapping[str, ListBatch]) -> None:
    """Counts where the relevant items of the first task are in their records."""
    batch = next(iter(by_task.values()))
    row_splits = np.concatenate([[0], np.cumsum(batch.mask.sum(axis=1))])
    order.add(batch.labels[batch.mask] > 0, row_splits)


def counted(move: ProgressCallback, total: int) -> Callable[[str], BatchCallback]:
    """From the text of an evaluation to a callback that moves a progress bar by its lists."""
    done = 0

    def count(stage: str, by_task: Mapping[str, ListBatch]) -> None:
        nonlocal done
        done += len(next(iter(by_task.values())).list_ids)
        move(done, total or None, stage)

    return lambda stage: partial(count, stage)


def evaluate_runs(
    data: str | Path | DataFolder,
    runs: Sequence[Path],
    baseline: Path | None = None,
    split: str = "test",
    metrics: Sequence[str] | None = None,
    policy: Any = "skip",
    batch_size: int = 128,
    console: Console | None = None,
) -> EvaluationReport:
    """Evaluates runs and compares them with a baseline.

    If one of them has tasks, all are evaluated by the labels of those tasks, and multi-task runs
    also by their combined score.

    Args:
        baseline: folder of the run that the others are compared with; also evaluated.
        policy: lists without a relevant item: skip, zero or one.

    Raises:
        UserError: for runs, names or data that do not fit, before any list is scored.
    """
    console = console or Console(stderr=True)
    if policy not in POLICIES:
        raise UserError(f"policy {policy!r} is unknown; allowed: {', '.join(POLICIES)}")
    folder, metrics = open_data(data), metrics or DEFAULT_NAMES
    order = OrderSums() if folder.schema.position is None else None
    named = run_names(runs, baseline)
    finished = {name: finished_run(run) for name, run in named.items()}
    for loaded in finished.values():
        check_schema(loaded, folder)
    tasks = {name: loaded.task_names for name, loaded in finished.items()}
    labels = next(filter(None, tasks.values()), ())
    builder = ElwcDatasetBuilder(folder, batch_size, tasks=labels)
    dataset = builder.build_evaluation_dataset(split)
    results: dict[str, PerListResult] = {}
    passes = len(named) + sum(map(bool, tasks.values()))
    with progress_bar(console, "evaluating") as move:
        count = counted(move, (folder.num_lists(split) or 0) * passes)
        for name, of_run in finished.items():
            run = load_model(of_run)
            for combined in (False, True)[: 1 + bool(tasks[name])]:
                callbacks = [count(f"evaluating {name}")]
                if order is not None and not results:
                    callbacks.append(partial(_count_order, order))
                title = f"{name} (combined)" if combined else name
                results[title] = evaluate_run(
                    folder,
                    run,
                    split,
                    metrics,
                    tasks=labels,
                    combined=combined,
                    callbacks=callbacks,
                    dataset=dataset,
                )
    if order is not None and (leak := order.warning()):
        warn(console, f"split {split}: {leak}")
    base = next((name for name, run in named.items() if run == baseline), None)
    return compare_results(results, base, policy)


@dataclass(frozen=True)
class EvaluationReport:
    """Summaries of several models and their differences from a baseline.

    Attributes:
        models: model -> metric -> mean over lists.
        comparisons: model other than the baseline -> metric -> difference from it.
        categories: a row for each top category; empty without a hierarchy.
    """

    lists: int
    policy: Policy
    metrics: tuple[str, ...]
    models: dict[str, dict[str, Summary]]
    baseline: str | None
    comparisons: dict[str, dict[str, Comparison]]
    category_metric: str
    categories: list[CategoryRow]


def compare_results(
    results: Mapping[str, PerListResult],
    baseline: str | None = None,
    policy: Policy = "skip",
    category_metric: str | None = None,
) -> EvaluationReport:
    """Summarises the results of several models and compares them with a baseline.

    Args:
        results: model -> its result, all of the same lists and metrics.
        category_metric: metric of the per-category table, by default the first.

    Raises:
        UserError: for an unknown baseline, or results of different lists or metrics.
    """
    if baseline is not None and baseline not in results:
        raise UserError(f"baseline {baseline!r} is unknown; evaluated: {', '.join(results)}")
    first = next(iter(results.values()))
    metrics = tuple(first.values)
    for model, result in results.items():
        if set(result.values) != set(metrics):
            raise UserError(
                f"model {model!r} was evaluated by {', '.join(result.values)}, others by "
                f"{', '.join(metrics)}: must be the same"
            )
    category_metric = category_metric or metrics[0]
    comparisons = {
        model: {metric: compare(result, results[baseline], metric, policy) for metric in metrics}
        for model, result in results.items()
        if baseline is not None and model != baseline
    }
    return EvaluationReport(
        lists=len(first),
        policy=policy,
        metrics=metrics,
        models={model: summarize(result, policy) for model, result in results.items()},
        baseline=baseline,
        comparisons=comparisons,
        category_metric=category_metric,
        categories=per_category(results, category_metric, baseline, policy),
    )


def to_json(report: EvaluationReport) -> dict[str, Any]:
    """The report as a dict for `json.dump`, in full precision; undefined values are None."""
    return {"confidence": CONFIDENCE, **plain(report)}
