"""The synthetic study of the MMoE paper (Ma et al. 2018): the effect of task correlation.

Each run draws weight vectors, a stream of training examples (each seen once) and a test set; all
models and correlations share them under one seed. All models have about as many parameters as MMoE.
The learning rate decays to 0 along half a cosine; at a constant rate, the noise of the last steps
exceeds the effect under study. With several learning rates, each model uses the one with the lowest
test loss in pilot runs of other seeds, averaged over the correlations.

From the paper: the generator, noise of variance 0.01, correlations 0.5, 0.9 and 1, 200 runs, loss
over training steps, and for Figure 2 10,000 points and 100 trials. Selected here, where the paper
is silent: 50 inputs, 8 experts of 16 units, towers of 8 units (all ReLU), the width of
Shared-Bottom, the sines, Adam, batch size, number of steps, learning rate and decay.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from rich.console import RenderableType

from experiments.common.runs import Job, Result
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from experiments.mmoe.correlated_tasks import (
    CorrelatedTasks,
    draw_sample,
    draw_weights,
    label_correlation,
)
from experiments.mmoe.models import (
    Model,
    create_training_variables,
    match_budget,
    parameter_count,
)
from experiments.mmoe.synthetic_plots import (
    Curves,
    draw_distribution,
    draw_label_correlation,
    draw_models,
    draw_shared_bottom,
)
from experiments.mmoe.synthetic_summary import Losses, finding, summarize, tables
from tfr_moe.layers import MULTITASK, logits_of
from tfr_moe.utils import write_json

_PILOT_SEEDS = 1_000_000  # apart from those of the runs

Correlation = Annotated[float, Field(ge=-1, le=1)]


class SyntheticSettings(StudySettings):
    """Settings of the synthetic study; the module's docstring lists which are the paper's.

    Attributes:
        models: names of the models.
        correlations: p, the cosines of the weight vectors.
        runs: runs of each model at each correlation, with seeds 0, 1, ...
        num_features: d.
        alphas: frequencies of the sines.
        betas: their phases.
        num_experts: number of experts of the mixtures.
        expert_units: width of an expert.
        tower_units: width of a tower's hidden layer, in all models.
        steps: training steps of a run, a multiple of `window`.
        window: number of steps that a point of a curve averages over.
        batch_size: examples per step.
        test_size: examples in a run's test set.
        learning_rates: initial learning rates of Adam; pilots select one of several for each model.
        decay: learning rate schedule, or `none`.
        pilot_runs: runs of each model, correlation and learning rate.
        label_trials: trials of Figure 2.
        label_points: examples of each of them.
    """

    models: tuple[Model, ...] = ("shared_bottom", "omoe", "mmoe")
    correlations: tuple[Correlation, ...] = (0.5, 0.9, 1.0)
    runs: PositiveInt = 20
    num_features: int = Field(50, ge=2)
    alphas: tuple[float, ...] = CorrelatedTasks.alphas
    betas: tuple[float, ...] = CorrelatedTasks.betas
    num_experts: PositiveInt = 8
    expert_units: PositiveInt = 16
    tower_units: PositiveInt = 8
    steps: PositiveInt = 6000
    window: PositiveInt = 100
    batch_size: PositiveInt = 256
    test_size: PositiveInt = 10_000
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = (1e-2,)
    decay: Literal["cosine", "none"] = "cosine"
    pilot_runs: PositiveInt = 1
    label_trials: int = Field(100, ge=2)
    label_points: int = Field(10_000, ge=2)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {
            "runs": 3,
            "num_features": 10,
            "steps": 400,
            "window": 50,
            "batch_size": 64,
            "test_size": 1000,
            "label_trials": 5,
        },
        "paper": {"runs": 200},
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})

    @model_validator(mode="after")
    def _fits(self) -> SyntheticSettings:
        if self.steps % self.window:
            raise ValueError(f"steps must be a multiple of window={self.window}, got {self.steps}")
        if len(self.alphas) != len(self.betas):
            raise ValueError("alphas and betas must have the same length")
        for name in ("models", "correlations", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different from each other and not empty")
        return self

    def tasks(self, correlation: float) -> CorrelatedTasks:
        """Returns the generator's constants at a correlation."""
        return CorrelatedTasks(correlation, self.num_features, alphas=self.alphas, betas=self.betas)


@functools.cache
def model_settings(settings: SyntheticSettings, model: str) -> dict[str, Any]:
    """Returns the arguments of the model's layer, with about as many parameters as MMoE."""
    sizes: dict[str, Any] = {
        "hidden_dims": (settings.expert_units,),
        "tower_hidden_dims": (settings.tower_units,),
    }
    experts = {"num_experts": settings.num_experts}
    if model == "mmoe":
        return {**sizes, **experts}
    budget = parameter_count("mmoe", settings.num_features, 2, **sizes, **experts)
    of_experts = experts if model == "omoe" else {}
    return match_budget(model, budget, settings.num_features, 2, **sizes, **of_experts)


def train_one(settings: SyntheticSettings, job: Job) -> Result:
    """Trains and tests one model.

    Args:
        settings: of the study.
        job: `model`, `correlation`, `learning_rate` and `seed`.

    Returns:
        `curve`: mean training loss of each window, before the update on its examples and including
        penalties; `loss`: mean squared error on the test set, mean over both tasks; `task_losses`:
        of each task; `parameters`: number of parameters.
    """
    tasks, seed = settings.tasks(job["correlation"]), job["seed"]
    weights = draw_weights(tasks, seed)
    test = draw_sample(tasks, weights, settings.test_size, 2 * seed + 1)
    tf.keras.backend.clear_session()
    inputs = tf.keras.Input([settings.num_features])
    layer = MULTITASK[job["model"]](2, seed=seed, **model_settings(settings, job["model"]))
    model = tf.keras.Model(inputs, logits_of(layer(inputs)))
    optimizer = tf.keras.optimizers.Adam(learning_rate(settings, job["learning_rate"]))
    model.compile(optimizer, "mse", steps_per_execution=settings.window)
    create_training_variables(model)
    # Each example is seen once, and an "epoch" is a window of the curve.
    history = model.fit(
        _stream(settings, tasks, weights, 2 * seed),
        epochs=settings.steps // settings.window,
        steps_per_epoch=settings.window,
        verbose=0,
    )
    errors = np.square(model(test.x).numpy().astype(np.float64) - test.y).mean(axis=0)
    return {
        "curve": [round(float(loss), 6) for loss in history.history["loss"]],
        "loss": float(errors.mean()),
        "task_losses": [float(error) for error in errors],
        "parameters": int(sum(np.prod(w.shape) for w in layer.trainable_weights)),
    }


def learning_rate(settings: SyntheticSettings, start: float) -> Any:
    """Returns Adam's learning rate: a number, or a schedule over the steps of a run."""
    if settings.decay == "none":
        return start
    return tf.keras.optimizers.schedules.CosineDecay(start, settings.steps)


def _stream(settings: SyntheticSettings, tasks: CorrelatedTasks, weights: Any, seed: int) -> Any:
    """Dataset of a run's batches; one window of them is in memory at a time."""
    shape = (settings.window, settings.batch_size)

    def windows() -> Iterator[tuple[Any, Any]]:
        for part in range(settings.steps // settings.window):
            x, y = draw_sample(tasks, weights, shape[0] * shape[1], seed, part)
            yield x.reshape(*shape, -1), y.reshape(*shape, 2)

    specs = tuple(tf.TensorSpec((*shape, width)) for width in (settings.num_features, 2))
    return tf.data.Dataset.from_generator(windows, output_signature=specs).unbatch()


def label_correlations(settings: SyntheticSettings) -> dict[str, Any]:
    """Returns the points of Figure 2: measured correlations of the labels, and the exact curve."""
    cosines = np.linspace(-1, 1, 11).round(6)
    fine = np.linspace(-1, 1, 101)
    measured = np.empty([len(cosines), settings.label_trials])
    for trial in range(settings.label_trials):
        for index, p in enumerate(cosines):
            # Labels depend on x through w.x only: two features give the same distribution as many.
            plane = replace(settings.tasks(float(p)), num_features=2)
            weights = draw_weights(plane, trial)
            y = draw_sample(plane, weights, settings.label_points, trial).y
            measured[index, trial] = np.corrcoef(y.T)[0, 1]
    return {
        "cosine": cosines.tolist(),
        "mean": measured.mean(axis=1).tolist(),
        "standard_deviation": measured.std(axis=1, ddof=1).tolist(),
        "trials": settings.label_trials,
        "points": settings.label_points,
        "fine_cosine": fine.tolist(),
        "exact": [label_correlation(settings.tasks(float(p))) for p in fine],
    }


def pilot_jobs(settings: SyntheticSettings) -> list[Job]:
    """Returns the runs that select learning rates; none if there is only one rate."""
    if len(settings.learning_rates) == 1:
        return []
    return [
        {"model": model, "correlation": p, "learning_rate": rate, "seed": _PILOT_SEEDS + run}
        for model in settings.models
        for p in settings.correlations
        for rate in settings.learning_rates
        for run in range(settings.pilot_runs)
    ]


def best_rates(settings: SyntheticSettings, jobs: list[Job], results: list[Result]) -> dict:
    """Returns model -> learning rate with the lowest mean loss of its pilots."""
    if not jobs:
        return dict.fromkeys(settings.models, settings.learning_rates[0])
    losses: dict[str, dict[float, list[float]]] = {}
    for job, result in zip(jobs, results, strict=True):
        of_model = losses.setdefault(job["model"], {})
        of_model.setdefault(job["learning_rate"], []).append(result["loss"])
    return {
        model: min(of_model, key=lambda rate: np.mean(of_model[rate]))
        for model, of_model in losses.items()
    }


def main_jobs(settings: SyntheticSettings, rates: dict[str, float]) -> list[Job]:
    """Returns all runs, seed by seed, so that an unfinished study has runs of every cell."""
    return [
        {"model": model, "correlation": p, "learning_rate": rates[model], "seed": seed}
        for seed in range(settings.runs)
        for p in settings.correlations
        for model in settings.models
    ]


def run(settings: SyntheticSettings, context: StudyContext) -> list[RenderableType]:
    """Runs what is missing of the study: pilots, runs, `results.json` and the plots."""
    work = functools.partial(train_one, settings)
    pilots = pilot_jobs(settings)
    rates = best_rates(settings, pilots, context.run_all(pilots, work, "pilots"))
    jobs = main_jobs(settings, rates)
    results = context.run_all(jobs, work, "runs")
    rows = [{**job, **result} for job, result in zip(jobs, results, strict=True)]
    losses = Losses(rows)
    summary = summarize(losses)
    labels = label_correlations(settings)
    content = {
        "learning_rates": rates,
        "parameters": {row["model"]: row["parameters"] for row in rows},
        "label_correlation": labels,
        **summary,
        "finding": finding(summary),
    }
    write_json(context.out / "results.json", content)
    draw_label_correlation(context.out, labels)
    steps: NDArray[np.int64] = settings.window * np.arange(1, settings.steps // settings.window + 1)
    curves = _curves(rows)
    if "shared_bottom" in settings.models:
        draw_shared_bottom(context.out, steps, curves)
    draw_models(context.out, steps, curves)
    draw_distribution(context.out, losses)
    return [*tables(summary), *content["finding"]]


def _curves(rows: list[dict[str, Any]]) -> Curves:
    cells: dict[tuple[str, float], list[list[float]]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["correlation"]), []).append(row["curve"])
    return {cell: np.array(curves) for cell, curves in cells.items()}


STUDIES = {"mmoe-synthetic": Study(SyntheticSettings, run)}
