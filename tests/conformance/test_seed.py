"""Under the same seed everything happens the same way twice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import MASK, draw
from tests.conformance.steps import run, tensors
from tfr_moe._compat import tf


def differ(first, second):
    return any(
        a.shape != b.shape or np.abs(a.astype(np.float64) - b).max() > 1e-4
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_a_copy_starts_and_trains_the_same_under_the_same_seed(case):
    for a, b in zip(case.begun.weights, case.again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(case.begun.step.arrays, case.again.step.arrays, strict=True):
        # Threads may add up a gradient in another order.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_another_seed_makes_other_weights(case):
    other = case.half("mixed_float16").weights
    assert differ(case.begun.weights, other) == bool(case.begun.weights)


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_only_cases_that_draw_differ_from_step_to_step(case):
    tf.keras.utils.set_random_seed(5)
    model, values = case.shared, tensors(draw(case.inputs))

    def step():
        outputs = model(values, training=True)
        arrays = [
            np.ravel(value.numpy()[MASK] if case.outputs[name] == "BL" else value)
            for name, value in sorted(outputs.items())
        ]
        return np.concatenate([*arrays, [float(loss) for loss in model.losses]])

    steps = [step() for _ in range(5)]
    same = all(np.allclose(steps[0], other, rtol=1e-5, atol=1e-6) for other in steps[1:])
    assert same != case.draws


@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_nothing_is_drawn_outside_training(case):
    again = run(case.shared, draw(case.inputs))
    for name, value in case.scored.items():
        np.testing.assert_array_equal(again[name], value)
