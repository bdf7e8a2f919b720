"""The synthetic study of the MMoE paper (Ma et al. 2018): what task correlation does to models.

Data are those of `tfr_moe.synthetic.correlated_tasks`. Each run has weight vectors, a stream of
training examples of which each is seen once, and a test set of its own, and all models and
correlations share them under one seed. All models have the number of parameters that MMoE has. The learning
rate falls to 0 along half a cosine, without which the noise of the last steps is larger than what the study
is after. Where there are several, a model's is the one with the lowest test loss in pilot runs of other
seeds, mean over the correlations.

From the paper's text: the generator, noise of variance 0.01, correlations 0.5, 0.9 and 1, 200 runs, the
loss over training steps, and for Figure 2 10,000 points and 100 trials. Chosen here, since the text at hand
does not say: 50 inputs, 8 experts of 16 units, towers of 8 units (all ReLU), Shared-Bottom as wide as the
same number of parameters allows, the sines, Adam, the batch size, the steps, the learning rate and its fall.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator
from rich.console import RenderableType

from tfr_moe.folders import write_json
from tfr_moe.reproduce.mmoe_synthetic_plots import (
    Curves,
    draw_distribution,
    draw_label_correlation,
    draw_models,
    draw_shared_bottom,
)
from tfr_moe.reproduce.mmoe_synthetic_summary import Losses, finding, summarize, tables
from tfr_moe.reproduce.runs import Job, Result
from tfr_moe.reproduce.settings import StudySettings
from tfr_moe.reproduce.study import Place, Study
from tfr_moe.synthetic.correlated_tasks import (
    CorrelatedTasks,
    draw_sample,
    draw_weights,
    label_correlation,
)

_PILOT_SEEDS = 1_000_000  # apart from those of the runs

Correlation = Annotated[float, Field(ge=-1, le=1)]
Model = Literal[
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
]


class SyntheticSettings(StudySettings):
    """Settings of the synthetic study; see the module for which are the paper's.

    Attributes:
        models: which models.
        correlations: p, the cosines of the weight vectors.
        runs: runs of each model at each correlation, with seeds 0, 1, ...
        num_features: d.
        alphas: frequencies of the sines.
        betas: their phases.
        num_experts: of the mixtures.
        expert_units: width of an expert.
        tower_units: width of a tower's hidden layer, in all models.
        steps: training steps of a run, a multiple of `window`.
        window: steps whose mean loss makes a point of a curve.
        batch_size: examples per step.
        test_size: examples of a run's test set.
        learning_rates: of Adam at the start; each model's is chosen by pilots if there are several.
        decay: how the rate falls over the steps, or `none`.
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
            raise ValueError("alphas and betas must be as many")
        for name in ("models", "correlations", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be different from each other, and some")
        return self

    def tasks(self, correlation: float) -> CorrelatedTasks:
        """The generator's constants at a correlation."""
        return CorrelatedTasks(correlation, self.num_features, alphas=self.alphas, betas=self.betas)


@functools.cache
def model_settings(settings: SyntheticSettings, model: str) -> dict[str, Any]:
    """Arguments of the model's layer, of about as many parameters as MMoE has."""
    from tfr_moe.layers.multitask_registry import match_budget, parameter_count

    sizes: dict[str, Any] = {
        "hidden_dims": (settings.expert_units,),
        "tower_hidden_dims": (settings.tower_units,),
    }
    experts = {"num_experts": settings.num_experts}
    if model == "mmoe":
        return {**sizes, **experts}
    budget = parameter_count("mmoe", settings.num_features, 2, **sizes, **experts)
    own = experts if model == "omoe" else {}
    return match_budget(model, budget, settings.num_features, 2, **sizes, **own)


def train_one(settings: SyntheticSettings, job: Job) -> Result:
    """One run.

    Args:
        settings: of the study.
        job: `model`, `correlation`, `learning_rate` and `seed`.

    Returns:
        `curve`: mean training loss of each window, taken before the examples were learnt from, with the
        penalty of a model that has one; `loss`: mean squared error on the test set, mean over both
        tasks; `task_losses`: of each; `parameters`: their number.
    """
    from tfr_moe._compat import tf
    from tfr_moe.layers.multitask_registry import make_multitask

    tasks, seed = settings.tasks(job["correlation"]), job["seed"]
    weights = draw_weights(tasks, seed)
    test = draw_sample(tasks, weights, settings.test_size, 2 * seed + 1)
    tf.keras.backend.clear_session()
    inputs = tf.keras.Input([settings.num_features])
    layer = make_multitask(job["model"], 2, seed=seed, **model_settings(settings, job["model"]))
    model = tf.keras.Model(inputs, layer(inputs))
    optimizer = tf.keras.optimizers.Adam(learning_rate(settings, job["learning_rate"]))
    model.compile(optimizer, "mse", steps_per_execution=settings.window)
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
    """What Adam takes: a number, or a schedule over the steps of a run."""
    from tfr_moe._compat import tf

    if settings.decay == "none":
        return start
    return tf.keras.optimizers.schedules.CosineDecay(start, settings.steps)


def _stream(settings: SyntheticSettings, tasks: CorrelatedTasks, weights: Any, seed: int) -> Any:
    """Dataset of a run's batches; one window of them is in memory at a time."""
    from tfr_moe._compat import tf

    shape = (settings.window, settings.batch_size)

    def windows() -> Iterator[tuple[Any, Any]]:
        for part in range(settings.steps // settings.window):
            x, y = draw_sample(tasks, weights, shape[0] * shape[1], seed, part)
            yield x.reshape(*shape, -1), y.reshape(*shape, 2)

    specs = tuple(tf.TensorSpec((*shape, width)) for width in (settings.num_features, 2))
    return tf.data.Dataset.from_generator(windows, output_signature=specs).unbatch()


def label_correlations(settings: SyntheticSettings) -> dict[str, Any]:
    """The points of Figure 2: measured correlations of the labels, and the exact curve."""
    cosines = np.linspace(-1, 1, 11).round(6)
    fine = np.linspace(-1, 1, 101)
    measured = np.empty([len(cosines), settings.label_trials])
    for trial in range(settings.label_trials):
        for index, p in enumerate(cosines):
            # Labels see x only through w.x, so that two features give the same law as many.
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
    """The runs that choose learning rates; none where there is one rate only."""
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
    """Model -> the learning rate with the lowest mean loss of its pilots."""
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
    """All runs, seed by seed, so that an unfinished study has some of every cell."""
    return [
        {"model": model, "correlation": p, "learning_rate": rates[model], "seed": seed}
        for seed in range(settings.runs)
        for p in settings.correlations
        for model in settings.models
    ]


def run(settings: SyntheticSettings, place: Place) -> list[RenderableType]:
    """The whole study: pilots, runs, `results.json` and the plots."""
    work = functools.partial(train_one, settings)
    pilots = pilot_jobs(settings)
    rates = best_rates(settings, pilots, place.run_all(pilots, work, "pilots"))
    jobs = main_jobs(settings, rates)
    results = place.run_all(jobs, work, "runs")
    rows = [{**job, **result} for job, result in zip(jobs, results, strict=True)]
    losses = Losses(rows)
    summary = summarize(losses)
    labels = label_correlations(settings)
    found = {
        "learning_rates": rates,
        "parameters": {row["model"]: row["parameters"] for row in rows},
        "label_correlation": labels,
        **summary,
        "finding": finding(summary),
    }
    write_json(place.out / "results.json", found)
    draw_label_correlation(place.out, labels)
    steps: NDArray[np.int64] = settings.window * np.arange(1, settings.steps // settings.window + 1)
    curves = _curves(rows)
    if "shared_bottom" in settings.models:
        draw_shared_bottom(place.out, steps, curves)
    draw_models(place.out, steps, curves)
    draw_distribution(place.out, losses)
    return [*tables(summary), *found["finding"]]


def _curves(rows: list[dict[str, Any]]) -> Curves:
    cells: dict[tuple[str, float], list[list[float]]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["correlation"]), []).append(row["curve"])
    return {cell: np.array(curves) for cell, curves in cells.items()}


STUDY = Study(SyntheticSettings, run)
