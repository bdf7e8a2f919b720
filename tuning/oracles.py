"""KerasTuner's search algorithms, each with what it lacks for small spaces and many workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from tfr_moe._compat import import_keras_tuner

from .config import SweepConfig

kt: Any = import_keras_tuner()
TrialStatus = kt.engine.trial.TrialStatus

# KerasTuner stops after 20 random points in a row that it has tried. Small spaces need more draws.
_RANDOM_ATTEMPTS = 50


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
        """The point after the last one that was started."""
        space = self.get_space()
        if self.start_order:
            values = next_point(space, self.trials[self.start_order[-1]].hyperparameters.values)
        else:
            values = {hp.name: hp.default for hp in space.space if space.is_active(hp)}
        status = TrialStatus.STOPPED if values is None else TrialStatus.RUNNING
        return {"status": status, "values": values}


def next_point(space: Any, values: dict[str, Any]) -> dict[str, Any] | None:
    """The grid point after `values`; None after the last one. Defaults come first.

    Args:
        space: KerasTuner's `HyperParameters`; changed.
        values: of the active hyper-parameters.

    Example:
        >>> space = kt.HyperParameters()
        >>> _ = space.Choice("rate", [0.1, 0.01]), space.Boolean("bias")
        >>> next_point(space, {"rate": 0.1, "bias": True})
        {'rate': 0.01, 'bias': False}
    """
    space.values = dict(values)
    for hp in reversed(space.space):
        if space.is_active(hp):
            options = [hp.default, *(value for value in hp.values if value != hp.default)]
            position = options.index(space.values.get(hp.name, hp.default)) + 1
            if position < len(options):
                space.values[hp.name] = options[position]
                space.ensure_active_values()
                return space.values
        space.values[hp.name] = hp.default
    return None


def make_oracle(config: SweepConfig, step: int) -> Any:
    """Makes KerasTuner's oracle of a sweep.

    Args:
        config: the sweep's configuration.
        step: number of trials started so far. It is part of the seed, because the state that
            KerasTuner saves does not contain the random numbers of its Bayesian search.
    """
    common: dict[str, Any] = {
        "objective": kt.Objective(config.objective.name, config.objective.direction),
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
