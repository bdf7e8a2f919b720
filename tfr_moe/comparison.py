"""Trained runs on one split: each list scored once by each model, then compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun, load_baseline, train_any
from tfr_moe.config import BASELINE_NAMES, RunConfig, load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import ListBatch
from tfr_moe.evaluation.per_list import resolve
from tfr_moe.evaluation.report import EvaluationReport, report
from tfr_moe.evaluation.result import (
    PerListResult,
    Policy,
    evaluate_lists,
    evaluate_tasks,
    summarize,
)
from tfr_moe.evaluation.score import score_dataset, score_tasks
from tfr_moe.metric_names import DEFAULT_NAMES
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.training import LoadedRun, load_run
from tfr_moe.training.run import CONFIG_FILE, METRICS_FILE

POLICIES = get_args(Policy)


def _shared(paths: Sequence[Sequence[str]]) -> int:
    """How many first parts all paths have in common."""
    same = (len(set(parts)) == 1 for parts in zip(*paths, strict=False))
    return sum(1 for _ in itertools.takewhile(bool, same))


def run_names(runs: Sequence[Path]) -> dict[str, Path]:
    """A short name for each run: its folder's, or what its path has that not all of them have.

    Example:
        >>> list(run_names([Path("runs/dnn/seed-1"), Path("runs/moe/seed-1")]))
        ['dnn', 'moe']
    """
    runs = list(dict.fromkeys(runs))
    if len({run.name for run in runs}) == len(runs):
        return {run.name or str(run): run for run in runs}
    paths = [run.parts for run in runs]
    shortest = min(map(len, paths))
    before = _shared(paths)
    after = _shared([path[::-1] for path in paths])
    if before + after >= shortest:  # one path is the whole end of another
        return {str(run): run for run in runs}
    return {
        str(Path(*path[before : len(path) - after])): run
        for path, run in zip(paths, runs, strict=True)
    }


def open_run(run: str | Path) -> LoadedRun | BaselineRun:
    """A finished run of any model.

    Raises:
        UserError: if there is none.
    """
    path = Path(run)
    if (path / CONFIG_FILE).is_file() and load_config(path / CONFIG_FILE).model in BASELINE_NAMES:
        return load_baseline(path)
    return load_run(path)


def scorer_of(loaded: LoadedRun | BaselineRun) -> Callable[..., Any]:
    """What takes a run's features and gives scores [B, L], or with several tasks a dict of them."""
    return loaded.score if isinstance(loaded, BaselineRun) else loaded.ranker()


def evaluate_run(
    data: DataFolder,
    run: Path,
    split: str,
    metrics: Sequence[str],
    batch_size: int = 128,
    tasks: Sequence[str] = (),
    combined: bool = False,
) -> PerListResult:
    """Scores every list of a split by a run's model and judges it; see `judge`."""
    return judge(data, open_run(run), split, metrics, batch_size, tasks, combined)


def tasks_of(loaded: LoadedRun | BaselineRun) -> tuple[str, ...]:
    """The names of an opened run's tasks; none where its model has a single score."""
    return () if isinstance(loaded, BaselineRun) else tuple(task.name for task in loaded.tasks)


def judge(
    data: DataFolder,
    loaded: LoadedRun | BaselineRun,
    split: str,
    metrics: Sequence[str],
    batch_size: int = 128,
    tasks: Sequence[str] = (),
    combined: bool = False,
    watch: Callable[[str, ListBatch], None] | None = None,
) -> PerListResult:
    """Scores every list of a split by a run's model and judges it.

    Args:
        data: the data set.
        loaded: the run.
        split: of the data set.
        metrics: names.
        batch_size: lists per batch; does not change the numbers.
        tasks: labels to judge by, each with metrics `<task>_<metric>`: a run of several tasks by its
            score of that task, any other by its one score. By default the run's own tasks.
        combined: whether a run of several tasks is judged by its combined score alone.
        watch: is shown each scored batch, with its task or the empty string where there are none.

    Raises:
        UserError: for a run of another schema or without one of the tasks.
    """
    if loaded.schema != data.schema:
        raise UserError(f"run {loaded.path}: was trained with another schema than {data.path} has")
    own = tasks_of(loaded)
    tasks = tuple(tasks) or own
    missing = [task for task in tasks if own and task not in own and not combined]
    if missing:
        raise UserError(
            f"run {loaded.path}: has no task {missing[0]!r}, its tasks are {', '.join(own)}"
        )
    dataset = ElwcDatasetBuilder(data, batch_size, tasks=tasks).build_evaluation_dataset(split)
    scorer = scorer_of(loaded)
    if not tasks:
        return evaluate_lists(_shown(score_dataset(scorer, dataset, loaded.schema), watch), metrics)
    outputs: dict[str, str | None] = dict.fromkeys(tasks)
    if own:
        outputs = {task: SCORES if combined else f"{SCORES}_{task}" for task in tasks}
    batches = score_tasks(scorer, dataset, loaded.schema, outputs)
    return evaluate_tasks(_shown_tasks(batches, watch), tasks, metrics)


def _shown(
    batches: Iterable[ListBatch], watch: Callable[[str, ListBatch], None] | None
) -> Iterator[ListBatch]:
    for found in _shown_tasks(({"": batch} for batch in batches), watch):
        yield found[""]


def _shown_tasks(
    batches: Iterable[dict[str, ListBatch]], watch: Callable[[str, ListBatch], None] | None
) -> Iterator[dict[str, ListBatch]]:
    for found in batches:
        if watch is not None:
            for task, batch in found.items():
                watch(task, batch)
        yield found


def train_model(
    data: str | Path, run: Path, config: RunConfig, console: Console | None = None
) -> dict[str, Any]:
    """Trains a model of any kind, or gives the metrics of a run that is finished; see `train`."""
    if (run / METRICS_FILE).is_file():
        return open_run(run).metrics
    return train_any(data, run, config, console)


def mean_metrics(
    data: str | Path, run: Path, split: str, metrics: Sequence[str], policy: Policy
) -> dict[str, float]:
    """The means over lists of a run's metrics."""
    result = evaluate_run(DataFolder(data), run, split, metrics)
    return {name: found.mean for name, found in summarize(result, policy).items()}


def shown_order(
    data: str | Path, split: str, metrics: Sequence[str], policy: Policy
) -> dict[str, float]:
    """The same of the order in which the items stand in their records, with no model."""
    folder = DataFolder(data)
    dataset = ElwcDatasetBuilder(folder).build_evaluation_dataset(split)

    def score(features: Mapping[str, Any]) -> Any:
        return -tf.cumsum(tf.ones_like(features[MASK], tf.float32), axis=1)

    result = evaluate_lists(score_dataset(score, dataset, folder.schema), metrics)
    return {name: found.mean for name, found in summarize(result, policy).items()}


def tasks_of_run(run: Path, schema: FeatureSchema) -> tuple[str, ...]:
    """The names of a run's tasks; none where its model has a single score, or it is no run."""
    if not (run / CONFIG_FILE).is_file():
        return ()
    return tuple(task.name for task in load_config(run / CONFIG_FILE).tasks_over(schema))


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

    Where one of them has several tasks, all are judged by the labels of those, and each run of
    several tasks stands there once more by its combined score.

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
    tasks = {name: tasks_of_run(run, folder.schema) for name, run in named.items()}
    judged = next((own for own in tasks.values() if own), ())
    results = {}
    for name, run in named.items():
        with console.status(f"evaluating {name}"):
            results[name] = evaluate_run(folder, run, split, wanted, batch_size, judged)
            if tasks[name]:
                results[f"{name} (combined)"] = evaluate_run(
                    folder, run, split, wanted, batch_size, judged, combined=True
                )
    base = next((name for name, run in named.items() if run == baseline), None)
    return report(results, base, policy)
