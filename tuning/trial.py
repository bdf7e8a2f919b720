"""The training of one trial: each seed in turn, resumed where a killed process left it."""

from __future__ import annotations

import dataclasses
import gc
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, read_json, write_json
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.progress import GateWatch, ProgressLines
from tfr_moe.training.run import fit

from .baselines import baseline_result
from .config import SweepConfig
from .hypermodel import RankingHyperModel
from .plan import Plan
from .records import SeedResult, Trial, read_trial, set_aside, summarize, trial_file, write_trial
from .say import Say

_RESULT = "result.json"
_SEED: TypeAdapter[SeedResult] = TypeAdapter(SeedResult)
Check = Callable[[], None]


class TrialLostError(Exception):
    """The trial was given to another worker, so that this one has to leave it."""


@dataclass(frozen=True)
class Job:
    """A trial to be run.

    Attributes:
        trial_id: its id.
        settings: what it sets above the base settings.
        hyperparameters: what its record shows.
        budget: see `Trial.budget`.
    """

    trial_id: str
    settings: dict[str, Any]
    hyperparameters: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=dict)


class _Watch(tf.keras.callbacks.Callback):
    """Calls a function after each batch and before an epoch is recorded; it may raise."""

    def __init__(self, check: Check):
        super().__init__()
        self._check = check

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._check()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._check()


class TrialPipeline(RankingPipeline):
    """Trains for the ledger alone: no exported model, no TensorBoard logs."""

    check: Check = staticmethod(lambda: None)

    def build_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """Those of a run, but for what a person watches."""
        watched = (ProgressLines, GateWatch, tf.keras.callbacks.TensorBoard)
        kept = [each for each in super().build_callbacks() if not isinstance(each, watched)]
        return [_Watch(self.check), *kept]

    def export_saved_model(self, model: Any, export_to: str, checkpoint: Any = None) -> None:
        """Nothing."""


def recorded(sweep: Path, job: Job, say: Say) -> Trial | None:
    """The record of a job that has ended before; None if there is none.

    A record that is corrupt, or of other hyper-parameters, is named and set aside.
    """
    path = trial_file(sweep, job.trial_id)
    if not path.is_file():
        return None
    try:
        trial = read_trial(path)
    except UserError as error:
        say(f"warning: {error}; set aside as {set_aside(path).name}")
        return None
    # JSON has no tuples.
    if trial.hyperparameters != job.hyperparameters or trial.budget != job.budget:
        say(f"warning: trial {path}: is of other settings; set aside as {set_aside(path).name}")
        return None
    return trial


def run_job(plan: Plan, job: Job, say: Say, check: Check = lambda: None) -> Trial:
    """Trains all seeds of a trial and records it; what has been done before is not done again.

    Args:
        plan: the sweep.
        job: the trial.
        say: takes a line for stderr.
        check: called after each batch; raises `TrialLostError` where the trial is no longer ours.

    Returns:
        The record; a trial that fails says why in `error`.
    """
    done = recorded(plan.path, job, say)
    if done is not None:
        return done
    plan.load_data()
    try:
        seeds = [_seed_result(plan, job, seed, check) for seed in plan.config.seeds]
        trial = _trial(plan.config, job, seeds)
    except (TrialLostError, KeyboardInterrupt):
        raise
    except Exception as error:
        trial = failed(plan.config, job, _one_line(error))
    finally:
        tf.keras.backend.clear_session()
        gc.collect()
    write_trial(plan.path, trial)
    if plan.config.algorithm != "hyperband":
        shutil.rmtree(plan.work(job.trial_id), ignore_errors=True)
    return trial


def failed(config: SweepConfig, job: Job, reason: str) -> Trial:
    """The record of a trial that came to nothing."""
    return _trial(config, job, [], reason)


def _trial(
    config: SweepConfig, job: Job, seeds: list[SeedResult], error: str | None = None
) -> Trial:
    direction = config.objective.direction
    assert direction is not None, "the sweep's configuration is resolved"
    return Trial(
        job.trial_id,
        job.hyperparameters,
        "failed" if error else "completed",
        seeds,
        summarize(config.objective.name, direction, seeds),
        error,
        job.settings,
        job.budget,
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"[:2000]


def _seed_result(plan: Plan, job: Job, seed: int, check: Check) -> SeedResult:
    run = plan.work(job.trial_id) / f"seed-{seed}"
    known = read_json(run / _RESULT)
    if known is not None:
        return _SEED.validate_python(known)
    epochs = job.budget.get("epochs", plan.config.base.num_epochs)
    config = plan.hypermodel.make_config(job.settings, seed=seed, num_epochs=epochs)
    _begin(plan, run, job, seed)
    if config.model in BASELINE_NAMES:
        result = baseline_result(plan.hypermodel.folder, config, run)
    else:
        started = time.monotonic()
        pipeline = _train(plan.hypermodel, config, run, check)
        result = _result(pipeline, config, seed, time.monotonic() - started)
    write_json(run / _RESULT, dataclasses.asdict(result))
    return result


def _begin(plan: Plan, run: Path, job: Job, seed: int) -> None:
    """Makes the folder; where the trial goes on with another one, from a copy of its state."""
    if run.is_dir():
        return
    before = job.budget.get("continues")
    source = None if before is None else plan.work(before) / f"seed-{seed}"
    with complete_folder(run) as partial:
        # Where the earlier trial's state is gone, all epochs are trained from the first one.
        if source is not None and source.is_dir():
            skip = shutil.ignore_patterns(_RESULT)
            shutil.copytree(source, partial, dirs_exist_ok=True, ignore=skip)


def _train(
    hypermodel: RankingHyperModel, config: RunConfig, run: Path, check: Check
) -> RankingPipeline:
    def make_pipeline(*args: Any) -> TrialPipeline:
        pipeline = TrialPipeline(*args)
        pipeline.check = check
        return pipeline

    builder = hypermodel.builder(config)
    quiet = Console(quiet=True)
    return fit(hypermodel.folder, builder, config, run, quiet, make_pipeline)


def _result(pipeline: RankingPipeline, config: RunConfig, seed: int, seconds: float) -> SeedResult:
    best = pipeline.ledger.best
    if best is None:
        raise UserError(
            f"{config.monitor} was never a number: the validation split has no list that it can "
            "judge, or training diverged"
        )
    history = [
        {name: value for name, value in entry.items() if math.isfinite(value)}
        for entry in pipeline.ledger.epochs
    ]
    metrics = {
        name.removeprefix("val_"): value
        for name, value in best.items()
        if name.startswith("val_") and math.isfinite(value)
    }
    return SeedResult(seed, metrics, best["epoch"], len(history), round(seconds, 2), history)
