"""Empty lists, lists of one item and extreme numbers: values and gradients stay finite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import MASK, draw
from tests.conformance.steps import training_step
from tfr_moe._compat import tf

EMPTY = np.zeros([3, 5], bool)
ONE = np.array([[1, 0, 0], [0, 0, 1]], bool)
SHORTEST = np.ones([2, 1], bool)
MASKS = {"all_padding": EMPTY, "one_valid_item": ONE, "lists_of_one_place": SHORTEST}

every_model = pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
every_loss = pytest.mark.parametrize("case", registry.LOSSES, ids=registry.by_name)


def assert_finite_in_training(case, values):
    """Outputs, added losses and their gradients."""
    model = case.shared
    # tanh bounds what is summed up, so that only a broken layer can overflow.
    step = training_step(model, values, lambda _, value: tf.tanh(value))
    for name, value in step.outputs.items():
        assert np.isfinite(value).all(), name
    assert np.isfinite(step.total)
    for variable, gradient in zip(model.trainable_variables, step.gradients, strict=True):
        assert gradient is None or np.isfinite(gradient).all(), variable.name
    return model


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@every_model
def test_empty_and_shortest_lists(case, mask):
    model = assert_finite_in_training(case, draw(case.inputs, mask))
    if not mask.any():
        # Nothing valid, nothing to add; `model.losses` holds those of the last call.
        np.testing.assert_array_equal([float(loss) for loss in model.losses], 0.0)


@pytest.mark.parametrize("factor", [0.0, 1e4])
@every_model
def test_zero_and_large_inputs(case, factor):
    values = draw(case.inputs)
    large = {
        name: value * np.float32(factor)
        if case.inputs[name].draw and value.dtype == np.float32
        else value
        for name, value in values.items()
    }
    assert_finite_in_training(case, large)


RAW_CASES = [case for case in registry.MODELS if "example_numeric" in case.inputs]


@pytest.mark.parametrize("number", [1e30, -3.4e38])
@pytest.mark.parametrize("case", RAW_CASES, ids=registry.by_name)
def test_any_raw_number_passes_the_encoder(case, number):
    values = draw(case.inputs)
    for name in ("context_numeric", "example_numeric"):
        values[name] = np.full_like(values[name], number)
    assert_finite_in_training(case, values)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("factor", [1.0, 1e4, 1e30])
@every_loss
def test_losses(case, mask, factor):
    values = draw(case.inputs, mask)
    logits = tf.constant(values["y_pred"] * np.float32(factor))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = case.value(case.make(), {**values, "y_pred": logits})
    assert np.isfinite(float(loss))
    assert float(loss) >= 0.0
    assert np.isfinite(tape.gradient(loss, logits).numpy()).all()


# A mean scales with its values; the others see order and ratios only.
SCALE_FREE = [case for case in registry.METRICS if case.name != "TrainingMean"]


@pytest.mark.parametrize("factor", [1e4, 1e30])
@pytest.mark.parametrize("case", SCALE_FREE, ids=registry.by_name)
def test_metrics_of_extreme_scores(case, factor):
    """Scaling by a positive factor keeps the order and every ratio, so the result stays."""
    values = draw(case.inputs, MASK)
    large = {
        name: value * np.float32(factor) if case.inputs[name].draw else value
        for name, value in values.items()
    }
    expected, got = case.value(case.make(), values), case.value(case.make(), large)
    for name in expected:
        assert float(got[name]) == pytest.approx(float(expected[name]), rel=1e-6)


@pytest.mark.parametrize("case", registry.METRICS, ids=registry.by_name)
def test_metrics_of_empty_lists_count_nothing(case):
    values, empty = draw(case.inputs), draw(case.inputs, EMPTY)
    if "y_true" not in empty:
        empty = {name: np.zeros_like(value[:0]) for name, value in empty.items()}
    expected = case.value(case.make(), values)
    got = case.value(case.make(), empty, values, empty)
    for name in expected:
        assert float(got[name]) == float(expected[name])
