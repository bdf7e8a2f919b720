"""Training of all models of a comparison: a learning rate each, then seeds within a budget."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping, Sequence
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
from tfr_moe.training.run_folder import METRICS_FILE
from tfr_moe.utils.io import read_json

LEARNING_RATES = (3e-4, 1e-3, 3e-3)
TREE_RATES = (0.03, 0.1)
"""Learning rates of `lambdamart` and `xgboost`."""
DEFAULT_SEEDS = 3
MAX_SEEDS = 10


@dataclass(frozen=True)
class Plan:
    """What is trained.

    Attributes:
        data: the data set.
        out: folder of the comparison; runs are `runs/<model>/lr-<rate>-seed-<seed>`.
        models: names of models.
        settings: settings of all models, each of which takes those that it uses.
        metric: validation metric of epochs, learning rates and models.
        learning_rates: those that each neural model selects from.
        seed: the first seed.
        min_seeds: number of seeds whatever the budget.
        budget: seconds of training; None for `DEFAULT_SEEDS` seeds.
    """

    data: DataFolder
    out: Path
    models: tuple[str, ...]
    settings: Mapping[str, Any]
    metric: str
    learning_rates: tuple[float, ...] = LEARNING_RATES
    seed: int = 1
    min_seeds: int = 2
    budget: float | None = None

    def rates(self, model: str) -> tuple[float | None, ...]:
        """The learning rates that a model selects from; None for a model without one."""
        if model in BASELINE_NAMES:
            given = "learning_rate" in self.settings.get("library_parameters", {})
            return (None,) if model == "svm_rank" or given else TREE_RATES
        return (None,) if "learning_rate" in self.settings else self.learning_rates

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
        """Checks models and settings before anything is trained.

        Raises:
            UserError: for settings that are unknown, invalid, or that no model uses.
        """
        for name in ("monitor", "seed", "model"):
            if name in self.settings:
                raise UserError(f"{name}: is no setting of a comparison, but an argument of it")
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


def trained(run: Path) -> dict[str, Any]:
    """The content of `metrics.json` of a finished run."""
    return read_json(run / METRICS_FILE) or {}


def _train(plan: Plan, model: str, rate: float | None, seed: int, console: Console) -> Path:
    run = plan.run(model, rate, seed)
    if not (run / METRICS_FILE).is_file():
        with_rate = "" if rate is None else f", learning rate {rate:g}"
        console.print(f"[bold]{model}[/bold], seed {seed}{with_rate}", highlight=False)
        run.parent.mkdir(parents=True, exist_ok=True)
        train_any(plan.data, run, plan.config(model, rate, seed), console)
        tf.keras.backend.clear_session()
        gc.collect()
    return run


def _value(run: Path) -> float:
    """The validation metric by which a finished run chose its best epoch."""
    result = trained(run)
    return float(result["best"][result["monitor"]])


def best_rate(plan: Plan, model: str, console: Console) -> float | None:
    """Trains a model with each learning rate and the first seed, and returns the best rate.

    Raises:
        UserError: if no learning rate gives a model.
    """
    rates = plan.rates(model)
    if len(rates) == 1:
        return rates[0]
    values: dict[float | None, float] = {}
    for rate in rates:
        try:
            values[rate] = _value(_train(plan, model, rate, plan.seed, console))
        except UserError as error:  # a learning rate may be too high
            if rate == rates[-1] and not values:
                raise
            console.print(f"warning: {model}: {error}", highlight=False, soft_wrap=True)
    return max(values, key=lambda rate: values[rate])


def train_models(plan: Plan, console: Console) -> dict[str, list[Path]]:
    """Trains all models and returns the runs of each, under its best learning rate.

    A finished run is not trained again, an interrupted one resumes. Whether there is a further seed
    depends on the recorded times of finished runs only, so that a resumed comparison decides as an
    uninterrupted one.
    """
    rates = {model: best_rate(plan, model, console) for model in plan.models}
    runs: dict[str, list[Path]] = {model: [] for model in plan.models}
    for seed in itertools.count(plan.seed):
        number = seed - plan.seed
        if number >= plan.min_seeds and not _another(plan, runs, number):
            return runs
        for model, rate in rates.items():
            runs[model].append(_train(plan, model, rate, seed, console))
    raise AssertionError


def _another(plan: Plan, runs: Mapping[str, Sequence[Path]], number: int) -> bool:
    """Whether the budget has room for another seed after `number` of them."""
    if plan.budget is None:
        return number < max(plan.min_seeds, DEFAULT_SEEDS)
    searched = (
        plan.run(model, rate, plan.seed) for model in plan.models for rate in plan.rates(model)
    )
    counted = {*searched, *itertools.chain(*runs.values())}
    spent = sum(trained(run).get("seconds", 0.0) for run in counted)
    of_runs = sum(trained(run)["seconds"] for run in itertools.chain(*runs.values()))
    return number < MAX_SEEDS and spent + of_runs / number <= plan.budget
