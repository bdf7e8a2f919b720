"""Training of all models of a comparison: a learning rate each, then seeds within a budget."""

from __future__ import annotations

import gc
import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import train_any
from tfr_moe.config import BASELINE_NAMES, MODELS, SETTINGS, RunConfig, applicable, make_config
from tfr_moe.config.models import PRESET_MODELS
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.training.run_folder import METRICS_FILE, read_metrics
from tfr_moe.utils.console import warn

LEARNING_RATES = (1e-3, 3e-4, 3e-3)
TREE_RATES = (0.1, 0.03)
"""Learning rates of `lambdamart` and `xgboost`."""
MIN_SEEDS = 2
DEFAULT_SEEDS = 3
MAX_SEEDS = 10


@dataclass(frozen=True)
class Plan:
    """What is trained.

    Attributes:
        out: folder of the comparison; runs are `runs/<model>/lr-<rate>-seed-<seed>`.
        settings: settings of all models, each of which takes those that it uses.
        metric: validation metric of epochs, learning rates and models.
        budget: seconds of training; None for `DEFAULT_SEEDS` seeds.
    """

    data: DataFolder
    out: Path
    models: tuple[str, ...]
    settings: Mapping[str, Any]
    metric: str
    learning_rates: tuple[float, ...] = LEARNING_RATES
    seed: int = 1
    budget: float | None = None

    def rates(self, model: str) -> tuple[float | None, ...]:
        """The learning rates that a model selects from; None for a model without one."""
        if model in BASELINE_NAMES:
            given = "learning_rate" in self.settings.get("library_parameters", {})
            return (None,) if model == "svm_rank" or given else TREE_RATES
        return (None,) if "learning_rate" in self.settings else self.learning_rates

    @property
    def min_runs(self) -> int:
        """Number of runs that are trained in any case."""
        if self.budget is not None:
            return MIN_SEEDS * len(self.models)
        rates = sum(len(self.rates(model)) for model in self.models)
        return rates + (DEFAULT_SEEDS - 1) * len(self.models)

    def config(self, model: str, rate: float | None, seed: int) -> RunConfig:
        """The configuration of a run."""
        metrics = dict.fromkeys([self.metric, *self.settings.get("metrics", ())])
        settings: dict[str, Any] = {
            **self.settings,
            "metrics": tuple(metrics),
            "monitor": self.metric,
        }
        if model not in PRESET_MODELS:
            settings.pop("preset", None)
        if rate is not None and model in BASELINE_NAMES:
            given = self.settings.get("library_parameters", {})
            settings["library_parameters"] = {"learning_rate": rate, **given}
        elif rate is not None:
            settings["learning_rate"] = rate
        return make_config({"model": model, **applicable(model, settings), "seed": seed})

    def check(self) -> None:
        """Raises a `UserError` for settings that are unknown, invalid, or that no model uses."""
        for name in ("monitor", "seed", "model"):
            if name in self.settings:
                raise UserError(
                    f"{name}: cannot be set in a comparison; use models, metric or seed"
                )
        used = {name for model in self.models for name in MODELS[model].settings}
        for name in self.settings:
            if name in SETTINGS and name not in used:
                raise UserError(f"{name}: no model of the comparison uses it")
        for model in self.models:
            self.config(model, self.rates(model)[-1], self.seed)

    def run(self, model: str, rate: float | None, seed: int) -> Path:
        """The folder of a run."""
        prefix = "" if rate is None else f"lr-{rate:g}-"
        return self.out / "runs" / model / f"{prefix}seed-{seed}"


def train_run(plan: Plan, model: str, rate: float | None, seed: int, console: Console) -> Path:
    """Trains a run of a comparison, unless it is finished, and returns its folder.

    An interrupted run starts again: resumed, it would draw other noise and other orders of the
    lists, so that its result and its time were not those of an uninterrupted comparison.
    """
    run = plan.run(model, rate, seed)
    if not (run / METRICS_FILE).is_file():
        shutil.rmtree(run, ignore_errors=True)
        with_rate = "" if rate is None else f", learning rate {rate:g}"
        number = sum(True for _ in plan.out.glob(f"runs/*/*/{METRICS_FILE}")) + 1
        of = "" if number > plan.min_runs else f" of at least {plan.min_runs}"
        console.print(
            f"run {number}{of}: [bold]{model}[/bold], seed {seed}{with_rate}", highlight=False
        )
        run.parent.mkdir(parents=True, exist_ok=True)
        train_any(plan.data, run, plan.config(model, rate, seed), console)
        tf.keras.backend.clear_session()
        gc.collect()
    return run


def _value(run: Path) -> float:
    """The validation metric by which a finished run chose its best epoch."""
    result = read_metrics(run)
    return float(result["best"][result["monitor"]])


def train_models(plan: Plan, console: Console) -> dict[str, list[Path]]:
    """Trains all models and returns the runs of each, under its best learning rate.

    A finished run is not trained again, an interrupted one is. What the budget has room for depends
    on the recorded times of finished runs only, so that a resumed comparison decides as an
    uninterrupted one.
    """
    rates, searched = best_rates(plan, console)
    runs: dict[str, list[Path]] = {model: [] for model in plan.models}
    for number in range(MAX_SEEDS):
        if number >= MIN_SEEDS and not _another_seed(plan, searched, runs, number):
            break
        for model, rate in rates.items():
            runs[model].append(train_run(plan, model, rate, plan.seed + number, console))
    return runs


def best_rates(plan: Plan, console: Console) -> tuple[dict[str, float | None], list[Path]]:
    """Trains models with their learning rates and one seed.

    Every model is trained with the first rate that gives a result, and with the others in turn
    while the budget has room for that and for a second seed of all models. Returns the best rate of
    each model by validation, and the runs of the search.
    """
    trained: dict[str, dict[float | None, Path]] = {model: {} for model in plan.models}
    most = max(len(plan.rates(model)) for model in plan.models)
    for number in range(most):
        for model in plan.models:
            rates = plan.rates(model)[number:]
            if not rates or (trained[model] and not _another_rate(plan, trained, model)):
                continue
            try:
                trained[model][rates[0]] = train_run(plan, model, rates[0], plan.seed, console)
            except UserError as error:  # a learning rate may be too high
                if len(rates) == 1 and not trained[model]:
                    raise
                warn(console, f"{model}: {error}")
    for model, tried in trained.items():
        if untried := len(plan.rates(model)) - len(tried):
            line = f"{model}: {len(tried)} of {len(tried) + untried} learning rates tried"
            console.print(line, highlight=False)
    best = {
        model: max(tried, key=lambda rate: _value(tried[rate])) for model, tried in trained.items()
    }
    return best, [run for tried in trained.values() for run in tried.values()]


def _seconds(runs: Iterable[Path]) -> float:
    return sum(read_metrics(run).get("seconds", 0.0) for run in runs)


def _another_rate(
    plan: Plan, trained: Mapping[str, Mapping[float | None, Path]], model: str
) -> bool:
    """Whether the budget has room for another rate of a model and a second seed of all."""
    if plan.budget is None:
        return True
    spent = _seconds(run for tried in trained.values() for run in tried.values())
    first = {name: _seconds(list(tried.values())[:1]) for name, tried in trained.items()}
    return spent + first[model] + sum(first.values()) <= plan.budget


def _another_seed(
    plan: Plan, searched: Iterable[Path], runs: Mapping[str, Sequence[Path]], number: int
) -> bool:
    """Whether the budget has room for another seed after `number` of them."""
    if plan.budget is None:
        return number < DEFAULT_SEEDS
    of_seeds = list(itertools.chain(*runs.values()))
    spent = _seconds({*searched, *of_seeds})
    return spent + _seconds(of_seeds) / number <= plan.budget
