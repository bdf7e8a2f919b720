"""Every number of `golden.json` is what the package computes."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.golden import record
from tfr_moe._compat import needs_legacy_keras

pytestmark = pytest.mark.skipif(
    needs_legacy_keras(), reason="the golden numbers are those of TensorFlow < 2.16"
)

EXACT = {"rtol": 2e-5, "atol": 1e-6}
# Rounding that threads or another order of a sum leave in the weights grows from step to step.
TWO_STEPS = {"rtol": 1e-4, "atol": 1e-5}
TRAINED = {"rtol": 1e-3, "atol": 1e-4}
# Metrics of a ranking jump where two items with nearly equal scores change places: by up to 1/60 of
# the mean over 60 lists; in most lists by much less.
RANKED = {"rtol": 0, "atol": 5e-3}


def tolerance(part: str, path: str) -> dict[str, float]:
    """How far the number at a place below an entry may be off."""
    if part == "runs":
        smooth = path.startswith("scores") or path.endswith("loss")
        return TRAINED if smooth else RANKED
    return TWO_STEPS if part == "models" and "train" in path else EXACT


@functools.cache
def golden() -> dict[str, Any]:
    return json.loads(record.FILE.read_text(encoding="utf-8"))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The lists of numbers, numbers and texts of a nested dict, each with where it stands."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        value = {str(index): entry for index, entry in enumerate(value)}
    if not isinstance(value, dict):
        yield path, value
        return
    for key, entry in value.items():
        yield from leaves(entry, f"{path} / {key}" if path else key)


def check(part: str, name: str) -> None:
    """Compares one entry, and names all of its numbers that differ."""
    result = dict(leaves(record.plain(record.PARTS[part][1](name))))
    expected = dict(leaves(golden()[part][name]))
    assert result.keys() == expected.keys()
    differences = []
    for path, wanted in expected.items():
        if isinstance(wanted, str | bool) or (isinstance(wanted, list) and not numeric(wanted)):
            if result[path] != wanted:
                differences.append(f"{path}: {result[path]!r} instead of {wanted!r}")
            continue
        try:
            np.testing.assert_allclose(
                np.array(result[path], float), np.array(wanted, float), **tolerance(part, path)
            )
        except AssertionError as error:
            differences.append(f"{path}: {error}")
    assert not differences, f"{part}: {name}\n" + "\n".join(differences)


def numeric(values: list[Any]) -> bool:
    return not any(isinstance(value, str) for value in values)


def test_the_file_has_an_entry_for_each_name():
    expected = {part: sorted(names) for part, (names, _) in record.PARTS.items()}
    assert {part: sorted(entries) for part, entries in golden().items()} == expected


@pytest.mark.parametrize("name", record.PARTS["models"][0])
def test_scores_losses_and_gradients_of_models(name: str):
    check("models", name)


@pytest.mark.parametrize("name", record.PARTS["losses"][0])
def test_losses(name: str):
    check("losses", name)


@pytest.mark.parametrize("name", record.PARTS["metrics"][0])
def test_metrics_of_single_lists(name: str):
    check("metrics", name)


@pytest.mark.parametrize("name", record.PARTS["keras metrics"][0])
def test_keras_metrics(name: str):
    check("keras metrics", name)


def test_significance_and_reports():
    check("significance", "all")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_graphs")
@pytest.mark.parametrize("name", record.PARTS["runs"][0])
def test_trainings_and_their_evaluation(name: str):
    check("runs", name)
