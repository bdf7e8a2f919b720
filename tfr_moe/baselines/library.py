"""What all baselines share: the optional libraries, their parameters, and what a fitted ranker is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

Report = Callable[[str], None]
"""Told a line of progress."""


class Ranker(Protocol):
    """A fitted ranker."""

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""

    def save(self, path: Path) -> None:
        """Writes a file that the module's `load` reads."""


class Fitted(NamedTuple):
    """What a training ends in.

    Attributes:
        ranker: with the best number of rounds.
        rounds: how many there were.
        best_round: the one with the best validation value, from 1 up.
        best: validation values by name at that round.
        parameters: the size of the model: leaves of trees, or weights.
    """

    ranker: Ranker
    rounds: int
    best_round: int
    best: dict[str, float]
    parameters: int


def library(name: str, package: str) -> Any:
    """An optional library.

    Raises:
        UserError: where it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"{package} is needed for this model ({error}): pip install 'tfr_moe[baselines]'"
        ) from error


def merged(defaults: Mapping[str, Any], given: Mapping[str, Any], fixed: tuple[str, ...]) -> dict:
    """Parameters of a library with those of the user above the defaults.

    YAML reads 1e-3, without a point, as text: here it is a number.

    Raises:
        UserError: for one that is not the user's to set.
    """
    for name in fixed:
        if name in given:
            raise UserError(f"library_parameters: {name} is set by the model's name and the seed")
    return {**defaults, **{name: _number(value) for name, value in given.items()}}


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def whole_grades(labels: NDArray[np.float32], most: int, model: str) -> NDArray[np.int32]:
    """Labels as whole numbers.

    Raises:
        UserError: for a fraction or a grade above `most`, which the library does not take.
    """
    grades = labels.astype(np.int32)
    bad = np.flatnonzero((grades != labels) | (grades < 0) | (grades > most))
    if len(bad):
        raise UserError(
            f"model {model!r} takes whole grades from 0 to {most}, there is a label {labels[bad[0]]}"
        )
    return grades
