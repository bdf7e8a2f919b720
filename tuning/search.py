"""The search of a sweep, shared by its processes and machines through one file.

The algorithms are KerasTuner's, with what they lack for small spaces and many workers. KerasTuner
1.4 writes each trial and the oracle's state to separate files, in place, and GridSearch does not
write its frontier: a kill in between loses a trial, runs one twice, or ends in a KeyError. Here the
whole state is one file that is replaced after each step, under a lock.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

from sklearn.exceptions import ConvergenceWarning

from tfr_moe._compat import import_keras_tuner
from tfr_moe.errors import UserError
from tfr_moe.utils.io import write_json

from .config import SweepConfig
from .sweep_folder import WORK_FOLDER, TrialJob, locked, trial_file, try_lock
from .trial import SweepContext

kt: Any = import_keras_tuner()
TrialStatus = kt.engine.trial.TrialStatus

_STATE_FILE = "oracle.json"
# KerasTuner stops after 20 random points in a row that it has tried. Small spaces need more draws.
_RANDOM_ATTEMPTS = 50
_BUDGET = {
    "tuner/epochs": "epochs",
    "tuner/initial_epoch": "initial_epoch",
    "tuner/bracket": "bracket",
    "tuner/round": "round",
    "tuner/trial_id": "continues",
}


def _draw(populate_space: Callable[[str], dict[str, Any]], trial_id: str) -> dict[str, Any]:
    """The next point, with more attempts before the space counts as exhausted."""
    for _ in range(_RANDOM_ATTEMPTS):
        point = populate_space(trial_id)
        if point["status"] == TrialStatus.RUNNING:
            break
    return point


class RandomOracle(kt.oracles.RandomSearchOracle):
    """Random search without repeated points."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The next point."""
        return _draw(super().populate_space, trial_id)


class HyperbandOracle(kt.oracles.HyperbandOracle):
    """Hyperband (https://arxiv.org/abs/1603.06560): many short trials, the best ones continued."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The next point."""
        return _draw(super().populate_space, trial_id)


class BayesianOracle(kt.oracles.BayesianOptimizationOracle):
    """A Gaussian process with upper confidence bound; a random point instead of a repeated one."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The next point."""
        with warnings.catch_warnings():
            # A kernel rarely fits a handful of points well.
            warnings.simplefilter("ignore", ConvergenceWarning)
            point = _draw(super().populate_space, trial_id)
        if point["values"] in [trial.hyperparameters.values for trial in self.trials.values()]:
            return _draw(partial(kt.oracles.RandomSearchOracle.populate_space, self), trial_id)
        return point


class GridOracle(kt.Oracle):
    """All points of the grid in order, the last hyper-parameter varying fastest.

    KerasTuner's GridSearch waits for a trial to end before it continues from it, in case that adds
    hyper-parameters; most of many workers wait. Here the space is known from the start.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The point after those that were started; defaults come first."""
        space = self.get_space().space
        options = [[hp.default, *(v for v in hp.values if v != hp.default)] for hp in space]
        points = itertools.islice(itertools.product(*options), len(self.start_order), None)
        for point in points:
            values = {hp.name: value for hp, value in zip(space, point, strict=True)}
            return {"status": TrialStatus.RUNNING, "values": values}
        return {"status": TrialStatus.STOPPED, "values": None}


def make_oracle(config: SweepConfig, step: int) -> Any:
    """Makes KerasTuner's oracle of a sweep, `step` of whose trials were started.

    The number is part of the seed, because the state that KerasTuner saves does not contain the
    random numbers of its Bayesian search.
    """
    common: dict[str, Any] = {
        "objective": kt.Objective(config.objective, config.direction),
        "seed": config.search_seed + step,
        # KerasTuner's own limit raises in the middle of `end_trial`; see `Search.failures`.
        "max_consecutive_failed_trials": 2**31,
    }
    if config.algorithm == "hyperband":
        return HyperbandOracle(
            max_epochs=config.base.training.num_epochs,
            factor=config.hyperband_factor,
            hyperband_iterations=config.hyperband_iterations,
            **common,
        )
    common["max_trials"] = config.max_trials
    if config.algorithm == "grid":
        return GridOracle(**common)
    if config.algorithm == "random":
        return RandomOracle(**common)
    return BayesianOracle(num_initial_points=config.initial_points, **common)


class Search:
    """The search of a sweep, shared by all its processes and machines through the sweep's folder.

    Each step locks the state file, loads it, takes KerasTuner's step, and replaces the file. A
    worker holds a lock on its trial; the kernel releases it when the process dies, and the next
    worker that asks takes the trial over. Raises a UserError if the state file is not valid.
    `ended_before` is the number of trials that had ended when this object was made.
    """

    def __init__(self, context: SweepContext):
        self._sweep = context.path
        self._config = context.config
        self._space = context.hypermodel.space
        with self._locked() as oracle:
            self.ended_before = len(oracle.end_order)

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """The oracle in its present state, which no other process changes meanwhile."""
        with locked(self._sweep), tempfile.TemporaryDirectory() as scratch:
            yield self._load(scratch)

    def _load(self, scratch: str) -> Any:
        path = self._sweep / _STATE_FILE
        if not path.is_file():
            # The numbers of trials start again, perhaps with other settings.
            shutil.rmtree(self._sweep / WORK_FOLDER, ignore_errors=True)
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
        # A tuner's constructor registers all hyper-parameters, and gives KerasTuner a folder for
        # the files that it insists on writing.
        kt.engine.base_tuner.BaseTuner(oracle, self._space.suggest, scratch, "search")
        return oracle

    def _save(self, oracle: Any) -> None:
        trials = {key: trial.get_state() for key, trial in oracle.trials.items()}
        write_json(self._sweep / _STATE_FILE, {"state": oracle.get_state(), "trials": trials})

    def reopen_unrecorded(self) -> list[str]:
        """Returns ended trials whose record is gone to the search; their IDs are the result."""
        with self._locked() as oracle:
            lost = [i for i in oracle.end_order if not trial_file(self._sweep, i).is_file()]
            for trial_id in lost:
                trial = oracle.trials[trial_id]
                trial.status, trial.score = TrialStatus.RUNNING, None
                trial.metrics = type(trial.metrics)()
                oracle.end_order.remove(trial_id)
                oracle.ongoing_trials[f"trial-{trial_id}"] = trial
            if lost:
                self._save(oracle)
            self.ended_before = len(oracle.end_order)
        return lost

    @contextmanager
    def next_job(self, worker: str) -> Iterator[TrialJob | Literal["wait", "stop"]]:
        """The next trial, locked for this worker, `NAME@COMMAND`, until the block is left.

        Yields the job, or whether to wait for trials of other workers or to stop.
        """
        with ExitStack() as held:
            with self._locked() as oracle:
                gave_up = bool(self._failures(oracle))
                # A worker that died has unlocked its trial.
                ongoing = list(oracle.ongoing_trials.values())
                job = next(filter(None, (self._job(t, worker, held) for t in ongoing)), None)
                if job is None and not gave_up:
                    # KerasTuner gives a name that has a trial the same trial again.
                    trial = oracle.create_trial(f"trial-{len(oracle.trials)}")
                    if trial.status == TrialStatus.RUNNING:
                        job = self._job(trial, worker, held)
                        self._save(oracle)
                waiting = oracle.ongoing_trials and not gave_up
            yield job or ("wait" if waiting else "stop")

    def _job(self, trial: Any, worker: str, held: ExitStack) -> TrialJob | None:
        """Locks a trial for a worker until `held` is left; None if another one holds it."""
        attempts = try_lock(self._sweep / WORK_FOLDER / f"{trial.trial_id}.lock", held, worker)
        if not attempts:
            return None
        hp = trial.hyperparameters
        budget = {name: hp.values[key] for key, name in _BUDGET.items() if key in hp.values}
        return TrialJob(trial.trial_id, self._space.suggest(hp), budget, attempts)

    def end_job(self, trial_id: str, score: float | None) -> str:
        """Ends a trial with the mean of its objective, None if it failed; describes the progress.

        Ending it again changes nothing.
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
        size = None if self._config.algorithm == "hyperband" else self._space.size
        total = min((n for n in (self._config.max_trials, size) if n is not None), default=None)
        text = f"{len(oracle.end_order)}" + (f" of at most {total}" if total else "") + " trials"
        best = oracle.get_best_trials(1)
        if best and best[0].score is not None:
            text += f"; best {oracle.objective.name} {best[0].score:.4f} (trial {best[0].trial_id})"
        return text

    def failures(self) -> list[str]:
        """The IDs of the latest trials if these failed and stopped a search that has others."""
        with self._locked() as oracle:
            failed = self._failures(oracle)
            if failed and not oracle.ongoing_trials:
                # The trial is not saved: whether there is one is all that counts.
                over = oracle.create_trial("next").status == TrialStatus.STOPPED
                return [] if over else failed
            return failed

    def _failures(self, oracle: Any) -> list[str]:
        ended = oracle.end_order[self.ended_before :]
        status = (oracle.trials[trial_id].status for trial_id in reversed(ended))
        count = sum(1 for _ in itertools.takewhile(TrialStatus.FAILED.__eq__, status))
        return ended[-count:] if count >= self._config.max_failures else []
