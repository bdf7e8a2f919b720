"""Runs one trial: each seed in turn, resumed where a killed process stopped."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import train_baseline
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.data.builder import cached
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.training.callbacks import EpochProgress, GateWarnings
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.run import fit, make_builder
from tfr_moe.training.run_folder import METRICS_FILE
from tfr_moe.utils.failures import reason_of
from tfr_moe.utils.io import atomic_directory, read_json, write_json

from .config import SweepConfig, load_sweep_config
from .hypermodel import RankingHyperModel
from .sweep_folder import (
    SWEEP_FILE,
    WORK_FOLDER,
    SeedResult,
    Trial,
    TrialJob,
    check_same_data,
    ended_trial,
    read_trial,
    trial_file,
    write_trial,
)
from .traced_model import TracedModel, draws, restart

MAX_ATTEMPTS = 3
_RESULT = "result.json"
Log = Callable[[str], None]


@dataclass(frozen=True)
class SweepContext:
    """What every process of a sweep knows: its folder, resolved configuration and search space.

    `traced` is the model of the last trial of this process.
    """

    path: Path
    config: SweepConfig
    hypermodel: RankingHyperModel
    traced: TracedModel = field(default_factory=TracedModel)

    @classmethod
    def open(cls, path: Path, data: Path) -> SweepContext:
        """Reads `sweep.yaml`; machines may see the data set under different paths.

        Raises a UserError if it is missing, or its data set is gone or has changed.
        """
        config = load_sweep_config(path / SWEEP_FILE)
        folder = DataFolder(data)
        check_same_data(path, config.data_fingerprint, folder.fingerprint)
        return cls(path, config, RankingHyperModel(folder, config.base, config.space))

    def work_folder(self, trial_id: str) -> Path:
        """Where the unfinished runs of a trial are."""
        return self.path / WORK_FOLDER / trial_id

    def run_folder(self, trial_id: str, seed: int) -> Path:
        """Where the unfinished run of a seed is."""
        return self.work_folder(trial_id) / f"seed-{seed}"

    def load_cache(self) -> None:
        """Parses the data into memory, once for all trials of this process."""
        if self.config.cache:
            self.hypermodel.folder = cached(self.hypermodel.folder, "memory")


class TrialPipeline(RankingPipeline):
    """Trains without TensorBoard logs, progress lines or weights of the best epoch.

    Metrics of scores are those of the validation lists. `traced` has the model of an earlier trial
    of the process, and gets that of this one. Other arguments are those of `RankingPipeline`.
    """

    saves_weights = False

    def __init__(self, *args: Any, traced: TracedModel | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._traced = TracedModel() if traced is None else traced

    def compiled_model(self) -> tf.keras.Model:
        """The model of a run, with training steps that compute no metrics of scores."""
        earlier = self._traced.take(self._config)
        model = super().compiled_model()
        if earlier is not None:
            restart(earlier, model)
            return earlier
        step = functools.partial(_train_step, model)
        model.train_step = tf.autograph.experimental.do_not_convert(step)
        return model

    def build_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """The callbacks of a run without those that only display."""
        display = (EpochProgress, GateWarnings, tf.keras.callbacks.TensorBoard)
        return [each for each in super().build_callbacks() if not isinstance(each, display)]

    def train_and_validate(self, verbose: int = 0) -> None:
        """Trains, on CPUs without TensorFlow's optimizer of graphs.

        It takes a tenth of a short trial, and made the steps of `dnn` and `adv_hsc_moe` no faster.
        """
        option = "disable_meta_optimizer"
        before = tf.config.optimizer.get_experimental_options()[option]
        off = before or not tf.config.list_physical_devices("GPU")
        tf.config.optimizer.set_experimental_options({option: off})
        try:
            super().train_and_validate(verbose)
        finally:
            tf.config.optimizer.set_experimental_options({option: before})
        self._traced.keep(self._config, self.model)


def _train_step(model: tf.keras.Model, data: Any) -> dict[str, tf.Tensor]:
    """A step of Keras that computes losses and what layers record, but no metrics of scores."""
    x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(data)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=True), sample_weight)
    model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
    skipped = {id(metric) for metric in model.compiled_metrics.metrics}
    logs = {}
    for metric in model.metrics:
        if id(metric) not in skipped:
            value = metric.result()
            logs.update(value if isinstance(value, dict) else {metric.name: value})
    model.draws = draws(tf.compat.v1.get_default_graph())
    return logs


def run_job(context: SweepContext, job: TrialJob, log: Log) -> Trial:
    """Trains all seeds of a trial and records the result, or its error.

    Finished work is not repeated.
    """
    path = trial_file(context.path, job.trial_id)
    if path.is_file():
        trial = read_trial(path)
        if trial.hyperparameters == job.hyperparameters and trial.budget == job.budget:
            return trial
        log(f"warning: trial {path}: has other settings and is trained again")
    try:
        if job.attempts > MAX_ATTEMPTS:
            raise UserError(f"crashed {MAX_ATTEMPTS} workers; possibly out of memory")
        context.load_cache()
        seeds = [_run_seed(context, job, seed) for seed in context.config.seeds]
        trial = ended_trial(job, context.config.objective, seeds)
    except UserError as error:
        trial = ended_trial(job, context.config.objective, [], str(error))
    except Exception as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        trial = ended_trial(job, context.config.objective, [], reason)
    finally:
        tf.keras.backend.clear_session()
        gc.collect()
    write_trial(context.path, trial)
    if context.config.algorithm != "hyperband":
        shutil.rmtree(context.work_folder(job.trial_id), ignore_errors=True)
    return trial


def _run_seed(context: SweepContext, job: TrialJob, seed: int) -> SeedResult:
    run = context.run_folder(job.trial_id, seed)
    known = read_json(run / _RESULT)
    if known is not None:
        return SeedResult(**known)
    epochs = job.budget.get("epochs", context.config.base.training.num_epochs)
    objective = context.config.objective
    fixed = {"seed": seed, "num_epochs": epochs, "monitor": objective}
    config = context.hypermodel.make_config(job.hyperparameters, **fixed)
    _make_run_folder(context, run, job, seed)
    started = time.monotonic()
    folder = context.hypermodel.folder
    if config.model in BASELINE_NAMES:
        result = _train_baseline(folder, config, run, objective)
    else:
        result = _train(folder, config, run, context.traced)
    result = dataclasses.replace(result, seconds=round(time.monotonic() - started, 2))
    write_json(run / _RESULT, dataclasses.asdict(result))
    return result


def _make_run_folder(context: SweepContext, run: Path, job: TrialJob, seed: int) -> None:
    """Makes the folder; a trial that continues another one starts from a copy of its state."""
    if run.is_dir():
        return
    before = job.budget.get("continues")
    source = None if before is None else context.run_folder(before, seed)
    with atomic_directory(run) as partial:
        # If the earlier state is gone, all epochs are trained.
        if source is not None and source.is_dir():
            skip = shutil.ignore_patterns(_RESULT)
            shutil.copytree(source, partial, dirs_exist_ok=True, ignore=skip)


def _train(folder: DataFolder, config: RunConfig, run: Path, traced: TracedModel) -> SeedResult:
    builder, quiet = make_builder(folder, config), Console(quiet=True)
    recorded = fit(builder, config, run, quiet, TrialPipeline, traced=traced).history
    best = recorded.best
    assert best is not None  # `RunHistory` raises otherwise
    history = [
        {name: value for name, value in entry.items() if math.isfinite(value)}
        for entry in recorded.epochs
    ]
    metrics = {
        name.removeprefix("val_"): value
        for name, value in best.items()
        if name.startswith("val_") and math.isfinite(value)
    }
    return SeedResult(config.seed, metrics, best["epoch"], len(history), history=history)


def _train_baseline(folder: DataFolder, config: RunConfig, run: Path, objective: str) -> SeedResult:
    """Trains LightGBM, XGBoost or a linear ranker; its rounds count as epochs, without history."""
    # A worker may have been killed between training and evaluation.
    trained = read_json(run / METRICS_FILE)
    outcome = trained or train_baseline(folder, run, config, Console(quiet=True))
    names = dict.fromkeys([objective, *config.training.metrics])
    result = evaluate_run(folder, run, "validation", tuple(names))
    metrics = {name: float(summary.mean) for name, summary in summarize(result).items()}
    return SeedResult(config.seed, metrics, outcome["best_epoch"], outcome["epochs"])
