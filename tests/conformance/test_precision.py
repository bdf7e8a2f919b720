"""Under mixed precision everything is finite and near what float32 gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import MASK, draw
from tests.conformance.cases import precision
from tests.conformance.steps import run, training_step
from tfr_moe._compat import tf

# Units in the last place of a half type are 2^-11 and 2^-8; values here are of order 1 and pass
# through sums of up to eight terms in three layers.
TOLERANCE = {"mixed_float16": 5e-3, "mixed_bfloat16": 4e-2}

policies = pytest.mark.parametrize("policy", TOLERANCE)


@policies
@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_outputs_are_near_those_of_float32(case, policy):
    half = case.half(policy).model
    got = run(half, draw(case.inputs))
    assert all(weight.dtype == tf.float32 for weight in half.trainable_weights)
    for name, expected in case.scored.items():
        rows = MASK if case.outputs[name] == "BL" else slice(None)
        np.testing.assert_allclose(
            got[name].astype(np.float32)[rows],
            expected.astype(np.float32)[rows],
            atol=TOLERANCE[policy],
            rtol=TOLERANCE[policy],
            err_msg=name,
        )


@policies
@pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
def test_gradients_in_training_are_finite(case, policy):
    with precision(policy):
        step = training_step(case.half(policy).model, draw(case.inputs))
    assert np.isfinite(step.total)
    for gradient in step.gradients:
        assert gradient is None or np.isfinite(gradient).all()


@pytest.mark.parametrize("case", registry.LAYERS, ids=registry.by_name)
def test_a_layers_own_policy_rules_all_its_parts(case):
    layer = case.make()
    with_policy = type(layer).from_config({**layer.get_config(), "dtype": "mixed_bfloat16"})
    alone, everywhere = case.called(with_policy), case.half("mixed_bfloat16").model
    alone.set_weights(everywhere.get_weights())
    expected, got = run(everywhere, draw(case.inputs)), run(alone, draw(case.inputs))
    for name in expected:
        assert got[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


@policies
@pytest.mark.parametrize("case", registry.LOSSES, ids=registry.by_name)
def test_losses_of_half_logits_are_float32_and_near(case, policy):
    values = draw(case.inputs)
    logits = tf.cast(values["y_pred"], policy.removeprefix("mixed_"))
    with precision(policy):
        got = case.value(case.make(), {**values, "y_pred": logits})
    assert got.dtype == tf.float32
    expected = float(case.value(case.make(), values))
    assert float(got) == pytest.approx(expected, rel=TOLERANCE[policy])


@policies
@pytest.mark.parametrize("case", registry.METRICS, ids=registry.by_name)
def test_metrics_keep_their_state_in_float32(case, policy):
    values = draw(case.inputs)
    half = policy.removeprefix("mixed_")
    halved = {
        name: tf.cast(tf.cast(value, half), tf.float32) if name == "y_pred" else value
        for name, value in values.items()
    }
    expected = case.value(case.make(), halved)
    with precision(policy):
        metric = case.make()
        if "y_pred" in halved:
            halved["y_pred"] = tf.cast(halved["y_pred"], half)
        got = case.value(metric, halved)
        assert all(variable.dtype == tf.float32 for variable in metric.variables)
    for name in expected:
        assert float(got[name]) == pytest.approx(float(expected[name]), rel=1e-6)
