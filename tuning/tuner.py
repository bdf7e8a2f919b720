"""The KerasTuner tuner that works through a sweep: asks its oracle for trials and runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfr_moe._compat import import_keras_tuner

from .hypermodel import RankingHyperModel
from .records import Trial
from .say import Say
from .trial import Job, TrialLostError

kt: Any = import_keras_tuner()
_STATUS = kt.engine.trial.TrialStatus

_PAUSE = 0.5
_BUDGET = {
    "tuner/epochs": "epochs",
    "tuner/initial_epoch": "initial_epoch",
    "tuner/bracket": "bracket",
    "tuner/round": "round",
    "tuner/trial_id": "continues",
}
RunJob = Callable[[Job], Trial]


class _Declaration(kt.HyperModel):
    """What KerasTuner builds to find out the hyper-parameters: their names, without a model."""

    def __init__(self, hypermodel: RankingHyperModel):
        super().__init__(name=hypermodel.name)
        self._hypermodel = hypermodel

    def build(self, hp: Any) -> None:
        self._hypermodel.declare(hp)


def job_of(trial: Any, hypermodel: RankingHyperModel) -> Job:
    """What a trial of KerasTuner asks for."""
    hp = trial.hyperparameters
    settings, shown = hypermodel.space.suggest(hp)
    budget = {name: hp.values[key] for key, name in _BUDGET.items() if key in hp.values}
    return Job(trial.trial_id, settings, shown, budget)


class SweepTuner(kt.engine.base_tuner.BaseTuner):
    """Runs trials until the oracle has no more.

    Args:
        oracle: the search algorithm.
        hypermodel: the space and what it means.
        sweep: the sweep's folder.
        run_job: trains a trial and records it.
        say: takes a line for stderr.
        tuner_id: of this worker.
    """

    def __init__(
        self,
        oracle: Any,
        hypermodel: RankingHyperModel,
        sweep: Path,
        run_job: RunJob,
        say: Say,
        tuner_id: str = "tuner0",
    ):
        super().__init__(oracle, _Declaration(hypermodel), str(sweep), ".")
        self.tuner_id = tuner_id
        self._ranking = hypermodel
        self._run_job = run_job
        self._say = say

    def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The mean of the objective over seeds.

        Raises:
            FailedTrialError: where the trial failed, with the reason.
        """
        job = job_of(trial, self._ranking)
        shown = "  ".join(f"{name} {value}" for name, value in job.hyperparameters.items())
        rounds = f", up to epoch {job.budget['epochs']}" if job.budget else ""
        self._say(f"trial {job.trial_id}: {shown}{rounds}")
        found = self._run_job(job)
        mean = found.objective.mean
        if mean is None:
            self._say(f"trial {job.trial_id} failed: {found.error}")
            raise kt.errors.FailedTrialError(found.error)
        spread = "" if found.objective.std is None else f" ± {found.objective.std:.4f}"
        seconds = sum(seed.seconds for seed in found.seeds)
        self._say(
            f"trial {job.trial_id}: {found.objective.name} {mean:.4f}{spread} in {seconds:.0f} s"
        )
        return {found.objective.name: mean}

    def search(self, *args: Any, **kwargs: Any) -> None:
        """Runs trials; one that was taken away from this worker is left."""
        while True:
            trial = self.oracle.create_trial(self.tuner_id)
            if trial.status == _STATUS.STOPPED:
                return
            if trial.status == _STATUS.IDLE:
                time.sleep(_PAUSE)
                continue
            try:
                self._run_and_end(trial)
            except TrialLostError:
                self._say(f"trial {trial.trial_id}: left, another worker has it")

    def _run_and_end(self, trial: Any) -> None:
        try:
            self.oracle.update_trial(trial.trial_id, self.run_trial(trial))
            trial.status = _STATUS.COMPLETED
        except kt.errors.FailedTrialError:
            trial.status = _STATUS.FAILED
        self.oracle.end_trial(trial)

    def save(self) -> None:
        """The oracle saves itself."""

    def reload(self) -> None:
        """The oracle is taken up before the tuner is made."""
