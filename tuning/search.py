"""The search of a sweep, shared by its processes and machines through one file.

KerasTuner 1.4 writes each trial and the oracle's state to separate files, in place, and GridSearch
does not write its frontier: a kill in between loses a trial, runs one twice, or ends in a KeyError.
Here the whole state is one file that is replaced after each step, under a lock.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from tfr_moe.errors import UserError
from tfr_moe.utils.io import write_json

from .hypermodel import RankingHyperModel
from .oracles import TrialStatus, kt, make_oracle
from .sweep_folder import (
    LOCK_FILE,
    STATE_FILE,
    TrialJob,
    locked,
    trial_file,
    trial_lock,
    try_lock,
)
from .trial import Log, SweepContext

_BUDGET = {
    "tuner/epochs": "epochs",
    "tuner/initial_epoch": "initial_epoch",
    "tuner/bracket": "bracket",
    "tuner/round": "round",
    "tuner/trial_id": "continues",
}


class _SpaceModel(kt.HyperModel):
    """What KerasTuner builds to find all hyper-parameters: their names, without a model."""

    def __init__(self, hypermodel: RankingHyperModel):
        super().__init__(name=hypermodel.name)
        self._hypermodel = hypermodel

    def build(self, hp: Any) -> None:
        self._hypermodel.declare(hp)


class Search:
    """The search of a sweep, shared by all its processes and machines through the sweep's folder.

    Each step locks the state file, loads it, takes KerasTuner's step, and replaces the file. A
    worker holds a lock on its trial; the kernel releases it when the process dies, and the next
    worker that asks takes the trial over.

    Args:
        context: the sweep.
        log: receives lines for the user.

    Raises:
        UserError: if the state file is not valid.

    Attributes:
        ended_before: number of trials that had ended when this object was made.
    """

    def __init__(self, context: SweepContext, log: Log):
        self._sweep = context.path
        self._config = context.config
        self._hypermodel = context.hypermodel
        self._log = log
        with self._locked() as oracle:
            self.ended_before = len(oracle.end_order)

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """The oracle in its present state, which no other process changes meanwhile."""
        with locked(self._sweep / LOCK_FILE), tempfile.TemporaryDirectory() as scratch:
            yield self._load(scratch)

    def _load(self, scratch: str) -> Any:
        path = self._sweep / STATE_FILE
        if not path.is_file():
            return self._make(0, scratch)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            oracle = self._make(len(content["state"]["start_order"]), scratch)
            oracle.trials = {
                trial_id: kt.engine.trial.Trial.from_state(state)
                for trial_id, state in content["trials"].items()
            }
            oracle.set_state(content["state"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: cannot be read ({type(error).__name__}: {error}); delete it to search "
                "again without training recorded trials again"
            ) from error
        return oracle

    def _make(self, step: int, scratch: str) -> Any:
        oracle = make_oracle(self._config, step)
        oracle.verbose = 0
        # A tuner's constructor registers all hyper-parameters, also conditional ones, and gives
        # KerasTuner a folder for the files that it insists on writing.
        kt.engine.base_tuner.BaseTuner(oracle, _SpaceModel(self._hypermodel), scratch, "search")
        return oracle

    def _save(self, oracle: Any) -> None:
        trials = {key: trial.get_state() for key, trial in oracle.trials.items()}
        write_json(self._sweep / STATE_FILE, {"state": oracle.get_state(), "trials": trials})

    def reopen_unrecorded(self) -> None:
        """Returns ended trials whose record is gone to the search."""
        with self._locked() as oracle:
            for trial_id in list(oracle.end_order):
                if trial_file(self._sweep, trial_id).is_file():
                    continue
                self._log(f"trial {trial_id}: has no record and is run again")
                trial = oracle.trials[trial_id]
                trial.status, trial.score = TrialStatus.RUNNING, None
                trial.metrics = type(trial.metrics)()
                oracle.end_order.remove(trial_id)
                oracle.ongoing_trials[f"trial-{trial_id}"] = trial
                self._save(oracle)
            self.ended_before = len(oracle.end_order)

    @contextmanager
    def next_job(self, worker: str) -> Iterator[TrialJob | Literal["wait", "stop"]]:
        """The next trial, locked for this worker until the block is left.

        Args:
            worker: name in the lock file, `NAME@COMMAND`.

        Yields:
            The job, or whether to wait for trials of other workers or to stop.
        """
        with ExitStack() as held:
            with self._locked() as oracle:
                job = self._abandoned(oracle, worker, held)
                if job is None and not self._gave_up(oracle):
                    job = self._new(oracle, worker, held)
                waiting = oracle.ongoing_trials and not self._gave_up(oracle)
            yield job or ("wait" if waiting else "stop")

    def _abandoned(self, oracle: Any, worker: str, held: ExitStack) -> TrialJob | None:
        """A trial whose worker died, or whose record is gone."""
        for trial in oracle.ongoing_trials.values():
            attempts = try_lock(trial_lock(self._sweep, trial.trial_id), held, worker)
            if attempts:
                return self._job(trial, attempts)
        return None

    def _new(self, oracle: Any, worker: str, held: ExitStack) -> TrialJob | None:
        # KerasTuner gives a name that has a trial the same trial again.
        trial = oracle.create_trial(f"trial-{len(oracle.trials)}")
        if trial.status != TrialStatus.RUNNING:
            return None
        attempts = try_lock(trial_lock(self._sweep, trial.trial_id), held, worker)
        job = self._job(trial, attempts)
        # A function may declare hyper-parameters only for certain values of others.
        oracle.update_space(trial.hyperparameters)
        self._save(oracle)
        return job

    def _job(self, trial: Any, attempts: int) -> TrialJob:
        hp = trial.hyperparameters
        settings, values = self._hypermodel.space.suggest(hp)
        budget = {name: hp.values[key] for key, name in _BUDGET.items() if key in hp.values}
        return TrialJob(trial.trial_id, settings, values, budget, attempts)

    def end_job(self, trial_id: str, score: float | None) -> str:
        """Ends a trial, and describes the progress.

        Args:
            trial_id: of the trial; ending it again changes nothing.
            score: mean of its objective; None if it failed.
        """
        with self._locked() as oracle:
            if trial_id not in oracle.end_order:
                trial = oracle.trials[trial_id]
                if score is None or not math.isfinite(score):
                    trial.status = TrialStatus.FAILED
                else:
                    trial.status = TrialStatus.COMPLETED
                    oracle.update_trial(trial_id, {oracle.objective.name: score})
                oracle.end_trial(trial)
                self._save(oracle)
            return self._progress(oracle)

    def _progress(self, oracle: Any) -> str:
        size = None if self._config.algorithm == "hyperband" else self._hypermodel.space.size
        total = min((n for n in (self._config.max_trials, size) if n is not None), default=None)
        text = f"{len(oracle.end_order)}" + (f" of at most {total}" if total else "") + " trials"
        best = oracle.get_best_trials(1)
        if best and best[0].score is not None:
            text += f"; best {oracle.objective.name} {best[0].score:.4f} (trial {best[0].trial_id})"
        return text

    def failures(self) -> list[str]:
        """The IDs of the latest trials if these failed and there are too many to go on."""
        with self._locked() as oracle:
            return self._latest_failures(oracle) if self._gave_up(oracle) else []

    def _latest_failures(self, oracle: Any) -> list[str]:
        failures: list[str] = []
        for trial_id in oracle.end_order[self.ended_before :]:
            failed = oracle.trials[trial_id].status == TrialStatus.FAILED
            failures = [*failures, trial_id] if failed else []
        return failures

    def _gave_up(self, oracle: Any) -> bool:
        return len(self._latest_failures(oracle)) >= self._config.max_failures
