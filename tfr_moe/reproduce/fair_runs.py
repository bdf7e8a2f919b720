"""Models compared fairly: each with its own learning rate, several seeds, and its lists kept.

Every cell of a table is a config trained on one data set and judged on one or several. First each
learning rate is tried under the first seed, and the one with the best validation metric is taken; then
all seeds are trained with it. Test lists are judged one by one and kept, so that tests and figures need no
model. A study may take the runs of another (`runs_of`) in place of training its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field
from rich.console import Console

from tfr_moe.config import BASELINE_NAMES, RunConfig, load_config
from tfr_moe.errors import UserError
from tfr_moe.reproduce.runs import Job, Result
from tfr_moe.reproduce.settings import CONFIGS, StudySettings
from tfr_moe.reproduce.study import Place

if TYPE_CHECKING:
    from tfr_moe.evaluation.result import PerListResult

MIXTURE_CONFIGS = CONFIGS / "adv_hsc_moe"
_OF_BASELINES = ("seed", "ignored_features", "library_parameters")
SMALL = {"expert_hidden_dims": [32, 16], "embedding_dim": 8, "batch_size": 64}


class FairSettings(StudySettings):
    """How a comparison is run.

    Attributes:
        runs: seeds of each cell.
        learning_rates: those that each cell chooses from by validation.
        rows: words; only rows that one of them names are run (`settings.wanted_rows`). None for all.
        with_settings: settings above those of every config, such as smaller towers; baselines take
            `ignored_features` and `library_parameters` of them.
        split: of the data that is judged.
        test_data: a data set of the same schema whose lists are judged in place of those of `--data`,
            such as later ones.
        configs: the folder of the configs.
        runs_of: folder of another study of the same rows on the same data, whose runs are taken.
    """

    runs: int = Field(5, ge=1)
    learning_rates: tuple[float, ...] = Field((1e-4, 3e-4, 1e-3, 3e-3), min_length=1)
    rows: tuple[str, ...] | None = None
    with_settings: dict[str, Any] = Field(default_factory=dict)
    split: str = "test"
    test_data: str | None = None
    configs: str = str(MIXTURE_CONFIGS)
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
        name: what the table calls it.
        config: the config's file, below the folder of configs.
        data: the data set that it learns from.
        tests: per column the data set that it is judged on.
    """

    name: str
    config: str
    data: str
    tests: Mapping[str, str]


class FairRun(NamedTuple):
    """One trained run of a cell.

    Attributes:
        cell: its cell's name.
        seed: its seed.
        learning_rate: that of its cell; None for a baseline, which is trained by its library's own.
        path: the run's folder.
        parameters: of its model.
        tests: per column the file with its lists.
    """

    cell: str
    seed: int
    learning_rate: float | None
    path: Path
    parameters: int
    tests: dict[str, Path]


def judged_data(settings: FairSettings, data: Path) -> Path:
    """The data set whose lists are judged: `test_data`, or the one that is learnt from.

    Raises:
        UserError: for a `test_data` that is no data set, has another schema, or no such split.
    """
    from tfr_moe.data import DataFolder

    if settings.test_data is None:
        return data
    folder = DataFolder(settings.test_data)
    if folder.schema != DataFolder(data).schema:
        raise UserError(f"test_data {settings.test_data}: has another schema than {data}")
    folder.files(settings.split)
    return Path(settings.test_data)


def cell_config(settings: FairSettings, config: str, rate: float | None, seed: int) -> RunConfig:
    """The settings of a cell's run; a rate of None leaves the config's own.

    Of `with_settings` a baseline takes what it knows of.
    """
    path = Path(settings.configs) / config
    above = {**settings.with_settings, "seed": seed}
    if load_config(path).model in BASELINE_NAMES:
        above = {key: value for key, value in above.items() if key in _OF_BASELINES}
    if rate is not None:
        above["learning_rate"] = rate
    return load_config(path, **above)


def _rates(settings: FairSettings, config: str) -> tuple[float | None, ...]:
    """The learning rates that a cell chooses from: none for a baseline."""
    model = cell_config(settings, config, None, 1).model
    return (None,) if model in BASELINE_NAMES else settings.learning_rates


def _run_name(job: Job) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in job["cell"].lower())
    rate = "" if job["rate"] is None else f"lr-{job['rate']:g}-"
    return f"runs/{slug}/{rate}seed-{job['seed']}"


def _train(settings: FairSettings, out: str, job: Job) -> Result:
    """Trains a cell's run, or finds that it is there."""
    from tfr_moe._compat import tf
    from tfr_moe.comparison import train_model

    tf.keras.backend.clear_session()
    config = cell_config(settings, job["config"], job["rate"], job["seed"])
    return train_model(job["data"], Path(out) / _run_name(job), config, Console(quiet=True))


def _try_rate(settings: FairSettings, out: str, job: Job) -> Result:
    from tfr_moe import metrics

    found = _train(settings, out, job)
    name = found["monitor"]
    metric = name.removeprefix("val_")
    higher = metric != "loss" and metrics.higher_is_better(metric)
    return {"value": found["best"][name] * (1 if higher else -1), "monitor": name}


def _run_cell(settings: FairSettings, metric_names: tuple[str, ...], out: str, job: Job) -> Result:
    """Trains a run and keeps what each metric says of each test list."""
    found = _train(settings, out, job)
    run = _run_name(job)
    tests = _judge(Path(out) / run, job["tests"], settings.split, metric_names, Path(out) / run)
    return {
        "run": run,
        "parameters": found["parameters"],
        "tests": {column: f"{run}/{path}" for column, path in tests.items()},
    }


def _judge(
    run: Path, tests: Mapping[str, str], split: str, metric_names: Sequence[str], target: Path
) -> dict[str, str]:
    """Writes what each metric says of each list of a split; per column the file's name in `target`."""
    from tfr_moe.comparison import evaluate_run
    from tfr_moe.data import DataFolder
    from tfr_moe.evaluation.storage import save_result

    names = {}
    for place, (column, data) in enumerate(tests.items()):
        names[column] = f"lists-{split}-{place}.npz"
        result = evaluate_run(DataFolder(data), run, split, metric_names)
        target.mkdir(parents=True, exist_ok=True)
        save_result(result, target / names[column])
    return names


def _judge_again(
    split: str, metric_names: tuple[str, ...], taken_from: str, out: str, job: Job
) -> Result:
    """Judges a run of another study on a split that it was not judged on there."""
    run, target = Path(taken_from) / job["run"], Path(out) / job["run"]
    tests = _judge(run, job["tests"], split, metric_names, target)
    return {"tests": {column: f"{job['run']}/{path}" for column, path in tests.items()}}


def best_rates(found: Iterable[tuple[Job, Result]]) -> dict[str, float | None]:
    """Per cell the learning rate with the best validation metric; one that diverged never wins.

    Example:
        >>> tried = [({"cell": "DNN", "rate": r}, {"value": v}) for r, v in [(0.1, 0.7), (1, 0.6)]]
        >>> best_rates(tried)
        {'DNN': 0.1}
    """
    best: dict[str, tuple[float, float | None]] = {}
    for job, result in found:
        value = -math.inf if math.isnan(result["value"]) else result["value"]
        known = best.get(job["cell"])
        if known is None or value > known[0]:
            best[job["cell"]] = (value, job["rate"])
    return {cell: rate for cell, (_, rate) in best.items()}


def fair_runs(
    settings: FairSettings, cells: Sequence[Cell], metric_names: Sequence[str], place: Place
) -> dict[str, list[FairRun]]:
    """Trains what is missing of all cells, and judges it.

    Args:
        settings: how.
        cells: what.
        metric_names: that lists are judged by.
        place: where.

    Returns:
        Per cell its runs.

    Raises:
        UserError: for configs, data or a `runs_of` that don't fit.
    """
    if settings.runs_of is not None:
        return _taken(settings, cells, metric_names, place)
    out = str(place.out.resolve())
    described = {cell.name: {"cell": cell.name, "config": cell.config, "data": cell.data}
                 for cell in cells}  # fmt: skip
    tries = [
        {**job, "rate": rate, "seed": 1}
        for job in described.values()
        for rate in _rates(settings, job["config"])
    ]
    tried = place.run_all(tries, functools.partial(_try_rate, settings, out), "learning rates")
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
    results = place.run_all(jobs, work, "runs")
    return _by_cell(zip(jobs, results, strict=True), place.out, place.out)


def _by_cell(
    found: Iterable[tuple[Job, Result]], out: Path, judged_in: Path
) -> dict[str, list[FairRun]]:
    """Runs below `out` whose lists are below `judged_in`, per cell."""
    runs: dict[str, list[FairRun]] = {}
    for job, result in found:
        run = FairRun(
            job["cell"],
            job["seed"],
            job["rate"],
            out / result["run"],
            result["parameters"],
            {column: judged_in / path for column, path in result["tests"].items()},
        )
        runs.setdefault(run.cell, []).append(run)
    return runs


def _taken(
    settings: FairSettings, cells: Sequence[Cell], metric_names: Sequence[str], place: Place
) -> dict[str, list[FairRun]]:
    """The runs of another study, which must have all cells on the same data.

    Those that were judged on another split, or on other lists, are judged on these now.
    """
    from tfr_moe.reproduce.runs import read_entries

    assert settings.runs_of is not None
    taken_from = Path(settings.runs_of)
    wanted = {(cell.name, cell.data) for cell in cells}
    entries = [
        (job, result)
        for job, result in read_entries(taken_from / "runs.jsonl")
        if (job.get("cell"), job.get("data")) in wanted and job.get("seed", 0) <= settings.runs
    ]
    names = {job["cell"] for job, _ in entries}
    for cell in cells:
        if cell.name not in names:
            raise UserError(f"runs_of {taken_from}: has no run of {cell.name} on {cell.data}")
    entries.sort(key=lambda entry: entry[0]["seed"])
    judged_in = taken_from
    tests = {cell.name: dict(cell.tests) for cell in cells}
    file = f"lists-{settings.split}-"
    if not all(
        job["tests"] == tests[job["cell"]]
        and all(Path(path).name.startswith(file) for path in result["tests"].values())
        for job, result in entries
    ):
        judged_in = place.out
        again = [{"run": result["run"], "tests": tests[job["cell"]]} for job, result in entries]
        where = str(taken_from.resolve()), str(place.out.resolve())
        work = functools.partial(_judge_again, settings.split, tuple(metric_names), *where)
        judged = place.run_all(again, work, "judged")
        entries = [
            (job, {**result, **found}) for (job, result), found in zip(entries, judged, strict=True)
        ]
    runs = _by_cell(entries, taken_from, judged_in)
    return {cell.name: runs[cell.name] for cell in cells}


def results_of(
    runs: Mapping[str, Sequence[FairRun]], column: str
) -> dict[str, list[PerListResult]]:
    """Per cell the lists of each of its runs, on one column's data; without cells not judged on it."""
    from tfr_moe.evaluation.storage import load_result

    return {
        cell: [load_result(run.tests[column]) for run in of_cell]
        for cell, of_cell in runs.items()
        if all(column in run.tests for run in of_cell)
    }
