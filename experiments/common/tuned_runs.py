"""Compares models fairly: each with a tuned learning rate, several seeds, and per-list metrics.

Every cell of a table is a config, trained on one data set and evaluated on one or more. First each
learning rate is tried under the first seed, and the one with the best validation metric is
selected; then all seeds are trained with it. The metrics of each list are stored, so that tests and
figures need no model. A study may reuse the runs of another one (`runs_of`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from experiments.common.runs import Job, Result, read_entries
from experiments.common.settings import StudySettings
from experiments.common.stored_results import load_result, save_result
from experiments.common.study import StudyContext
from experiments.common.training import train_once
from tfr_moe.config import BASELINE_NAMES, RunConfig, applicable, load_config
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult, evaluate_run

SMALL = {"expert_hidden_dims": [32, 16], "embedding_dim": 8, "batch_size": 64}


class TunedRunSettings(StudySettings):
    """How a comparison is run.

    Attributes:
        configs: folder of the tables and their configs.
        runs: seeds of each cell.
        learning_rates: each cell selects one of them by validation.
        rows: words; only rows that match one of them are run (`tables.select_rows`). None for all.
        with_settings: settings that override those of every config, such as smaller towers; of
            these, baselines take `ignored_features` and `library_parameters`.
        split: the split to evaluate on.
        test_data: a data set of the same schema to evaluate on instead of `--data`, such as later
            logs.
        runs_of: folder of another study of the same rows on the same data, whose runs are reused.
    """

    configs: str
    runs: int = Field(5, ge=1)
    learning_rates: tuple[float, ...] = Field((1e-4, 3e-4, 1e-3, 3e-3), min_length=1)
    rows: tuple[str, ...] | None = None
    with_settings: dict[str, Any] = Field(default_factory=dict)
    split: str = "test"
    test_data: str | None = None
    runs_of: str | None = None

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {
            "runs": 2,
            "learning_rates": (1e-3, 3e-3),
            "with_settings": {**SMALL, "num_epochs": 3},
        },
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs", "rows"})


class Cell(NamedTuple):
    """A config trained on one data set.

    Attributes:
        name: its name in the table.
        config: file of the config, relative to the folder of configs.
        data: the data set to train on.
        tests: per column of the table the data set to evaluate on.
    """

    name: str
    config: str
    data: str
    tests: Mapping[str, str]


class TunedRun(NamedTuple):
    """One trained run of a cell.

    Attributes:
        cell: name of its cell.
        seed: its seed.
        learning_rate: that of its cell; None for a baseline.
        path: folder of the run.
        parameters: number of parameters of its model.
        tests: per column the file with its per-list metrics.
    """

    cell: str
    seed: int
    learning_rate: float | None
    path: Path
    parameters: int
    tests: dict[str, Path]


def evaluation_data(settings: TunedRunSettings, data: Path) -> Path:
    """Returns the data set to evaluate on: `test_data`, or the one that models are trained on.

    Raises:
        UserError: if `test_data` is not a data set or has another schema.
    """
    if settings.test_data is None:
        return data
    if DataFolder(settings.test_data).schema != DataFolder(data).schema:
        raise UserError(f"test_data {settings.test_data}: has another schema than {data}")
    return Path(settings.test_data)


def cell_config(
    settings: TunedRunSettings, config: str, rate: float | None, seed: int
) -> RunConfig:
    """Returns the settings of a cell's run; a rate of None keeps the config's learning rate."""
    path = Path(settings.configs) / config
    overrides = applicable(load_config(path).model, {**settings.with_settings, "seed": seed})
    if rate is not None:
        overrides["learning_rate"] = rate
    return load_config(path, **overrides)


def _rates(settings: TunedRunSettings, config: str) -> tuple[float | None, ...]:
    """The learning rates that a cell selects from: none for a baseline."""
    model = cell_config(settings, config, None, 1).model
    return (None,) if model in BASELINE_NAMES else settings.learning_rates


def _run_name(job: Job) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in job["cell"].lower())
    rate = "" if job["rate"] is None else f"lr-{job['rate']:g}-"
    return f"runs/{slug}/{rate}seed-{job['seed']}"


def _train(settings: TunedRunSettings, out: str, job: Job) -> Result:
    config = cell_config(settings, job["config"], job["rate"], job["seed"])
    return train_once(job["data"], Path(out) / _run_name(job), config)


def _try_rate(settings: TunedRunSettings, out: str, job: Job) -> Result:
    trained = _train(settings, out, job)
    monitor = trained["monitor"]
    sign = -1 if monitor == "val_loss" else 1
    return {"value": sign * trained["best"][monitor], "monitor": monitor}


def _run_cell(
    settings: TunedRunSettings, metric_names: tuple[str, ...], out: str, job: Job
) -> Result:
    """Trains a run and stores the metrics of each list."""
    trained = _train(settings, out, job)
    run = _run_name(job)
    path = Path(out) / run
    tests = _evaluate(path, job["tests"], settings.split, metric_names, path)
    return {
        "run": run,
        "parameters": trained["parameters"],
        "tests": {column: f"{run}/{name}" for column, name in tests.items()},
    }


def _evaluate(
    run: Path, tests: Mapping[str, str], split: str, metric_names: Sequence[str], target: Path
) -> dict[str, str]:
    """Writes the metrics of each list; returns per column the file's name in `target`."""
    names = {}
    for index, (column, data) in enumerate(tests.items()):
        names[column] = f"lists-{split}-{index}.npz"
        result = evaluate_run(DataFolder(data), run, split, metric_names)
        target.mkdir(parents=True, exist_ok=True)
        save_result(result, target / names[column])
    return names


def _evaluate_again(
    split: str, metric_names: tuple[str, ...], source: str, out: str, job: Job
) -> Result:
    """Evaluates a run of another study on data that it was not evaluated on there."""
    run, target = Path(source) / job["run"], Path(out) / job["run"]
    tests = _evaluate(run, job["tests"], split, metric_names, target)
    return {"tests": {column: f"{job['run']}/{name}" for column, name in tests.items()}}


def best_rates(tried: Iterable[tuple[Job, Result]]) -> dict[str, float | None]:
    """Returns per cell the learning rate with the best validation metric; NaN ranks last.

    Example:
        >>> tried = [({"cell": "DNN", "rate": r}, {"value": v}) for r, v in [(0.1, 0.7), (1, 0.6)]]
        >>> best_rates(tried)
        {'DNN': 0.1}
    """
    best: dict[str, tuple[float, float | None]] = {}
    for job, result in tried:
        value = -math.inf if math.isnan(result["value"]) else result["value"]
        known = best.get(job["cell"])
        if known is None or value > known[0]:
            best[job["cell"]] = (value, job["rate"])
    return {cell: rate for cell, (_, rate) in best.items()}


def tuned_runs(
    settings: TunedRunSettings,
    cells: Sequence[Cell],
    metric_names: Sequence[str],
    context: StudyContext,
) -> dict[str, list[TunedRun]]:
    """Trains and evaluates what is missing of all cells.

    Args:
        settings: how to train.
        cells: what to train.
        metric_names: metrics of each list.
        context: folder and processes.

    Returns:
        Per cell its runs.

    Raises:
        UserError: for invalid configs or data, a data set to evaluate on without the split, or a
            `runs_of` without these cells.
    """
    for path in {path for cell in cells for path in cell.tests.values()}:
        DataFolder(path).files(settings.split)
    if settings.runs_of is not None:
        return _reused(settings, Path(settings.runs_of), cells, metric_names, context)
    out = str(context.out.resolve())
    described = {
        cell.name: {"cell": cell.name, "config": cell.config, "data": cell.data} for cell in cells
    }
    tries = [
        {**job, "rate": rate, "seed": 1}
        for job in described.values()
        for rate in _rates(settings, job["config"])
    ]
    tried = context.run_all(tries, functools.partial(_try_rate, settings, out), "learning rates")
    rates = best_rates(zip(tries, tried, strict=True))
    jobs: list[Job] = [
        {
            **described[cell.name],
            "tests": dict(cell.tests),
            "rate": rates[cell.name],
            "seed": seed,
        }
        for seed in range(1, settings.runs + 1)
        for cell in cells
    ]
    work = functools.partial(_run_cell, settings, tuple(metric_names), out)
    results = context.run_all(jobs, work, "runs")
    return _by_cell(zip(jobs, results, strict=True), context.out, context.out)


def _by_cell(
    entries: Iterable[tuple[Job, Result]], out: Path, evaluated_in: Path
) -> dict[str, list[TunedRun]]:
    """Runs below `out` whose per-list metrics are below `evaluated_in`, per cell."""
    runs: dict[str, list[TunedRun]] = {}
    for job, result in entries:
        run = TunedRun(
            job["cell"],
            job["seed"],
            job["rate"],
            out / result["run"],
            result["parameters"],
            {column: evaluated_in / path for column, path in result["tests"].items()},
        )
        runs.setdefault(run.cell, []).append(run)
    return runs


def _reused(
    settings: TunedRunSettings,
    source: Path,
    cells: Sequence[Cell],
    metric_names: Sequence[str],
    context: StudyContext,
) -> dict[str, list[TunedRun]]:
    """The runs of another study, which must have all cells on the same data.

    Runs that were evaluated on another split or other lists are evaluated again.
    """
    wanted = {(cell.name, cell.data) for cell in cells}
    entries = [
        (job, result)
        for job, result in read_entries(source / "runs.jsonl")
        if (job.get("cell"), job.get("data")) in wanted and job.get("seed", 0) <= settings.runs
    ]
    names = {job["cell"] for job, _ in entries}
    for cell in cells:
        if cell.name not in names:
            raise UserError(f"runs_of {source}: has no run of {cell.name} on {cell.data}")
    entries.sort(key=lambda entry: entry[0]["seed"])
    evaluated_in = source
    tests = {cell.name: dict(cell.tests) for cell in cells}
    prefix = f"lists-{settings.split}-"
    if not all(
        job["tests"] == tests[job["cell"]]
        and all(Path(path).name.startswith(prefix) for path in result["tests"].values())
        for job, result in entries
    ):
        evaluated_in = context.out
        jobs = [{"run": result["run"], "tests": tests[job["cell"]]} for job, result in entries]
        folders = str(source.resolve()), str(context.out.resolve())
        work = functools.partial(_evaluate_again, settings.split, tuple(metric_names), *folders)
        results = context.run_all(jobs, work, "evaluations")
        entries = [(job, {**old, **new}) for (job, old), new in zip(entries, results, strict=True)]
    runs = _by_cell(entries, source, evaluated_in)
    return {cell.name: runs[cell.name] for cell in cells}


def results_of(
    runs: Mapping[str, Sequence[TunedRun]], column: str
) -> dict[str, list[PerListResult]]:
    """Returns per cell the per-list metrics of its runs in a column; omits cells without them."""
    return {
        cell: [load_result(run.tests[column]) for run in cell_runs]
        for cell, cell_runs in runs.items()
        if all(column in run.tests for run in cell_runs)
    }
