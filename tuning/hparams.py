"""A sweep as TensorBoard's HParams dashboard shows it: `tensorboard --logdir SWEEP/tensorboard`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorboard.plugins.hparams import api

from tfr_moe._compat import tf
from tfr_moe.folders import complete_folder

from . import words
from .records import SeedResult, Trial
from .summary import Summary

FOLDER = "tensorboard"
_MOST_VALUES = 12


def write_hparams(summary: Summary) -> Path:
    """Writes event files below `SWEEP/tensorboard`, in place of those there were.

    Each seed of a trial is a session with its learning curves; the seeds of a trial form a group, whose
    numbers the dashboard averages. Failed trials have no session.

    Returns:
        The folder to give to `tensorboard --logdir`.
    """
    out = summary.path / FOLDER
    values = _values(summary)
    with complete_folder(out, overwrite=True) as folder:
        with _writing(folder):
            api.hparams_config(
                hparams=[
                    api.HParam(name, domain(found), display_name=words.heading(name))
                    for name, found in values.items()
                ],
                metrics=[
                    api.Metric(f"best/{name}", display_name=name) for name in _metric_names(summary)
                ],
            )
        for trial in (entry.trial for entry in summary.entries):
            given = {
                name: converter(found)(trial.hyperparameters[name])
                for name, found in values.items()
                if name in trial.hyperparameters
            }
            for seed in trial.seeds:
                path = folder / trial.trial_id / f"seed-{seed.seed}"
                _write_session(path, trial, seed, given)
    return out


def plain(value: Any) -> bool | int | float | str:
    """A value as HParams takes it.

    Example:
        >>> plain(0.1), plain([64, 32]), plain(None)
        (0.1, '64-32', '–')
    """
    return value if isinstance(value, (bool, int, float, str)) else words.shown(value)


def converter(values: Sequence[Any]) -> Callable[[Any], bool | int | float | str]:
    """What brings all values of a hyper-parameter to one type, which HParams needs.

    Example:
        >>> convert = converter([1, 0.5])
        >>> convert(1), converter([64, [64, 32]])(64)
        (1.0, '64')
    """
    kinds = {type(plain(value)) for value in values}
    if len(kinds) == 1:
        return plain
    return float if kinds == {int, float} else words.shown


def domain(values: Sequence[Any]) -> Any:
    """The domain of a hyper-parameter: the values tried, or for many numbers the interval they span."""
    convert = converter(values)
    distinct = sorted({convert(value) for value in values}, key=words.order)
    if len(distinct) > _MOST_VALUES and isinstance(distinct[0], float):
        return api.RealInterval(distinct[0], distinct[-1])
    if len(distinct) > _MOST_VALUES and type(distinct[0]) is int:
        return api.IntInterval(distinct[0], distinct[-1])
    return api.Discrete(distinct)


def _metric_names(summary: Summary) -> list[str]:
    """The objective first, then whatever else the trials were judged by."""
    others = [n for e in summary.entries for seed in e.trial.seeds for n in seed.metrics]
    return list(dict.fromkeys([summary.objective, *others]))


def _values(summary: Summary) -> dict[str, list[Any]]:
    """Values of what varied over the trials with a result."""
    trials = [entry.trial.hyperparameters for entry in summary.entries]
    values = {name: [t[name] for t in trials if name in t] for name in summary.varying}
    return {name: found for name, found in values.items() if found}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    writer = tf.summary.create_file_writer(str(path))
    try:
        with writer.as_default():
            yield
    finally:
        writer.close()


def _write_session(path: Path, trial: Trial, seed: SeedResult, values: dict[str, Any]) -> None:
    with _writing(path):
        api.hparams(values, trial_id=trial.trial_id)
        for row in seed.history:
            _scalars(row, int(row["epoch"]), "")
        _scalars(seed.metrics, seed.best_epoch, "best/")


def _scalars(values: Mapping[str, float], step: int, prefix: str) -> None:
    for name, value in values.items():
        if name != "epoch" and math.isfinite(value):
            tf.summary.scalar(f"{prefix}{name}", value, step=step)
