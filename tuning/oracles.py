"""KerasTuner's search algorithms, with a state that survives a kill at any moment.

KerasTuner 1.4 writes each trial and the oracle's state to files of their own, in place and one after
the other, and GridSearch does not write its frontier at all. A kill in between loses a trial, runs one
twice, or ends in a KeyError. Here the whole state is one file, replaced at once, after each step: a
trial is created and written down or was never created; it has ended in every respect or not at all.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tfr_moe._compat import import_keras_tuner
from tfr_moe.folders import write_json

from .config import SweepConfig

kt: Any = import_keras_tuner()

STATE_FILE = "oracle.json"
_TRIES = 1000


class DurableOracle(kt.Oracle):
    """An oracle whose every step is all or nothing on disk; mixed into KerasTuner's own ones."""

    trials: dict[str, Any]
    ongoing_trials: dict[str, Any]

    def __init__(self, sweep: Path, max_failures: int, **kwargs: Any):
        self._file = sweep / STATE_FILE
        self._lock = threading.RLock()
        self._held = 0
        self.failures = 0
        self.on_end: Callable[[Any], None] = lambda trial: None
        self.max_failures = max_failures
        super().__init__(max_consecutive_failed_trials=max_failures, **kwargs)
        self.verbose = 0
        # Small grids are searched at random to their end.
        self._max_collisions = _TRIES

    @contextmanager
    def _one_step(self) -> Iterator[None]:
        """Holds back KerasTuner's own saves, then saves once."""
        with self._lock:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
            self.save()

    @property
    def gave_up(self) -> bool:
        """Whether `max_failures` trials in a row have failed since the process began."""
        return self.failures >= self.max_failures

    def create_trial(self, tuner_id: str) -> Any:
        """The next trial for a worker: one to take up again, else a new one."""
        with self._one_step():
            if self.gave_up and tuner_id not in self.ongoing_trials:
                return kt.engine.trial.Trial(
                    hyperparameters=self.get_space(),
                    trial_id="none",
                    status=kt.engine.trial.TrialStatus.STOPPED,
                )
            return super().create_trial(tuner_id)

    def update_trial(self, trial_id: str, metrics: Any, step: int = 0) -> Any:
        """Takes the metrics of a trial; they are written down when it ends."""
        with self._lock:
            return super().update_trial(trial_id, dict(metrics), step)

    def end_trial(self, trial: Any) -> None:
        """Ends a trial; a second end of the same trial changes nothing."""
        with self._one_step():
            if trial.trial_id in self.end_order:
                return
            # What comes back from a worker has lost the order of its hyper-parameters.
            trial.hyperparameters = self.trials[trial.trial_id].hyperparameters
            super().end_trial(trial)
            failed = self.trials[trial.trial_id].status == kt.engine.trial.TrialStatus.FAILED
            self.failures = self.failures + 1 if failed else 0
        self.on_end(self.trials[trial.trial_id])

    def _check_consecutive_failures(self) -> None:
        """KerasTuner's own check raises in the midst of `end_trial`; see `gave_up`."""

    def release(self, tuner_id: str) -> str | None:
        """Puts back the trial of a worker that is gone; returns its id."""
        with self._one_step():
            self.tuner_ids.discard(tuner_id)
            trial = self.ongoing_trials.pop(tuner_id, None)
            if trial is None:
                return None
            self._retry_queue.append(trial.trial_id)
            return trial.trial_id

    def abandon(self, trial_id: str) -> None:
        """Ends a trial that was put back as failed."""
        with self._one_step():
            self._retry_queue.remove(trial_id)
            trial = self.trials[trial_id]
            trial.status = kt.engine.trial.TrialStatus.FAILED
            self.end_trial(trial)

    def reclaim(self, tuner_id: str, trial_id: str) -> bool:
        """Whether a trial is a worker's: it was, or it was put back and nobody has taken it yet."""
        with self._one_step():
            held = self.ongoing_trials.get(tuner_id)
            if held is not None:
                return held.trial_id == trial_id
            if trial_id not in self._retry_queue:
                return False
            self._retry_queue.remove(trial_id)
            self.ongoing_trials[tuner_id] = self.trials[trial_id]
            self.tuner_ids.add(tuner_id)
            return True

    def reopen(self, trial_id: str) -> None:
        """Has an ended trial run again, because its record is gone."""
        with self._one_step():
            self.end_order.remove(trial_id)
            trial = self.trials[trial_id]
            trial.status = kt.engine.trial.TrialStatus.RUNNING
            trial.metrics = type(trial.metrics)()
            trial.score = None
            self._retry_queue.append(trial_id)

    def save(self) -> None:
        """Replaces the state file."""
        if not self._held:
            trials = {key: trial.get_state() for key, trial in self.trials.items()}
            write_json(self._file, {"state": self.get_state(), "trials": trials})

    def _save_trial(self, trial: Any) -> None:
        """Trials are saved with the state."""

    def reload(self, keep_ongoing: bool = False) -> None:
        """Takes up the state file.

        Args:
            keep_ongoing: leave unfinished trials with their workers, which may still be at work,
                instead of putting them back.

        Raises:
            ValueError, KeyError, TypeError: if the file is not what `save` wrote.
        """
        data = json.loads(self._file.read_text(encoding="utf-8"))
        self.trials = {
            key: kt.engine.trial.Trial.from_state(state) for key, state in data["trials"].items()
        }
        self.set_state(data["state"])
        if not keep_ongoing:
            self._retry_queue += [trial.trial_id for trial in self.ongoing_trials.values()]
            self.ongoing_trials = {}
        self.tuner_ids = set(self.ongoing_trials)


class RandomOracle(DurableOracle, kt.oracles.RandomSearchOracle):
    """Random search; never the same point twice."""


class HyperbandOracle(DurableOracle, kt.oracles.HyperbandOracle):
    """Hyperband (Li et al. 2018): many trials for few epochs, the best of them for more."""


class GridOracle(DurableOracle, kt.oracles.GridSearchOracle):
    """Grid search that knows after a restart which points it has visited, and keeps all workers busy.

    KerasTuner goes on from a point only when its trial has ended, because that might have brought up
    new hyper-parameters: most of many workers wait. Here the space is known from the start.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The point after the last one."""
        order = self._ordered_ids
        if order._memory:
            self._populate_next.append(order._memory[order._last_index])
        return super().populate_space(trial_id)

    def get_state(self) -> dict[str, Any]:
        """KerasTuner's state, with the linked list of points and the queue of those to go on from."""
        order = self._ordered_ids
        links = [[index, after] for index, after in order._next_index.items() if after is not None]
        grid = {"ids": order._memory, "links": links, "last": order._last_index}
        return {**super().get_state(), "grid": {**grid, "queue": self._populate_next}}

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        super().set_state(state)
        grid, order = state["grid"], self._ordered_ids
        order._memory = list(grid["ids"])
        order._data_to_index = {trial_id: index for index, trial_id in enumerate(grid["ids"])}
        order._next_index.update(dict(grid["links"]))
        order._last_index = grid["last"]
        self._populate_next = list(grid["queue"])


class BayesianOracle(DurableOracle, kt.oracles.BayesianOptimizationOracle):
    """A Gaussian process with upper confidence bound; where it would repeat a point, a random one."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The next point."""
        with warnings.catch_warnings():
            # How well a kernel fits a handful of points is no news.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = super().populate_space(trial_id)
        if found["values"] is not None and self._duplicate(found["values"]):
            return self._random_populate_space()
        return found

    def get_state(self) -> dict[str, Any]:
        """KerasTuner's state, with that of the random numbers."""
        name, keys, *rest = self._random_state.get_state()
        return {**super().get_state(), "random": [name, keys.tolist(), *rest]}

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        super().set_state(state)
        name, keys, *rest = state["random"]
        self._random_state.set_state((name, np.array(keys, np.uint32), *rest))


def make_oracle(config: SweepConfig, sweep: Path) -> DurableOracle:
    """The search algorithm that a configuration names, with its state below the sweep."""
    common: dict[str, Any] = {
        "sweep": sweep,
        "max_failures": config.max_failures,
        "objective": kt.Objective(config.objective.name, config.objective.direction),
        "seed": config.search_seed,
    }
    if config.algorithm == "hyperband":
        return HyperbandOracle(
            max_epochs=config.base.num_epochs,
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
