"""Values of padded items, amount of padding, order and other lists of a batch don't matter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import registry
from tests.conformance.arrays import (
    MASK,
    draw,
    groups,
    orders,
    reorder,
    reordered,
    with_junk,
    with_more_padding,
)
from tests.conformance.steps import added, run, training_step
from tfr_moe._compat import tf

# float32 sums in another order
CLOSE = {"rtol": 1e-5, "atol": 1e-6}

every_model = pytest.mark.parametrize("case", registry.MODELS, ids=registry.by_name)
# What a layer adds to the loss can be compared only where nothing is drawn.
still_models = pytest.mark.parametrize(
    "case", [case for case in registry.MODELS if not case.draws], ids=registry.by_name
)
# A gate alone is told of no padding; a mixture that uses it is.
masked_models = pytest.mark.parametrize(
    "case",
    [case for case in registry.MODELS if not case.draws and "bool" in case.dtypes],
    ids=registry.by_name,
)
# A re-ranker reads the order of the initial list.
unordered = pytest.mark.parametrize(
    "case", [case for case in registry.MODELS if not case.ordered], ids=registry.by_name
)
still_unordered = pytest.mark.parametrize(
    "case",
    [case for case in registry.MODELS if not case.ordered and not case.draws],
    ids=registry.by_name,
)
every_loss = pytest.mark.parametrize("case", registry.LOSSES, ids=registry.by_name)
every_metric = pytest.mark.parametrize("case", registry.METRICS, ids=registry.by_name)


def assert_valid_positions_equal(case, got, expected, mask=MASK):
    for name, axes in case.outputs.items():
        if axes == "BL":
            wide, narrow = got[name][:, : mask.shape[1]][mask], expected[name][mask]
            np.testing.assert_allclose(wide, narrow, err_msg=name, **CLOSE)
        else:
            np.testing.assert_allclose(got[name], expected[name], err_msg=name, **CLOSE)


def assert_same_results(got, expected):
    assert got.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(float(got[name]), float(expected[name]), err_msg=name, **CLOSE)


@every_model
def test_padded_positions_may_hold_anything(case):
    junk = with_junk(case.inputs, draw(case.inputs), MASK)
    assert_valid_positions_equal(case, run(case.shared, junk), case.scored)


@every_model
def test_more_padding_changes_nothing(case):
    wider = with_more_padding(case.inputs, draw(case.inputs), MASK)
    assert_valid_positions_equal(case, run(case.shared, wider), case.scored)


@still_models
def test_padding_does_not_change_what_training_adds_and_shows(case):
    for other in (with_junk, with_more_padding):
        got = added(case.shared, other(case.inputs, draw(case.inputs), MASK))
        message = other.__name__
        np.testing.assert_allclose(got.losses, case.added.losses, err_msg=message, **CLOSE)
        np.testing.assert_allclose(got.metrics, case.added.metrics, err_msg=message, **CLOSE)


@masked_models
def test_what_stands_at_padded_positions_reaches_no_gradient(case):
    def at_valid_positions(name, value):
        return tf.sin(tf.boolean_mask(value, MASK) if case.outputs[name] == "BL" else value)

    values = draw(case.inputs)
    junk = with_junk(case.inputs, values, MASK)
    steps = (training_step(case.shared, x, at_valid_positions) for x in (values, junk))
    for a, b in zip(*(step.gradients for step in steps), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b, a, **CLOSE)


@unordered
def test_permuted_items_permute_the_outputs(case):
    order = orders(MASK)
    got = run(case.shared, reordered(case.inputs, draw(case.inputs), order))
    expected = {
        name: reorder(case.scored[name], order) if axes == "BL" else case.scored[name]
        for name, axes in case.outputs.items()
    }
    assert_valid_positions_equal(case, got, expected, reorder(MASK, order))


@still_unordered
def test_permuted_items_do_not_change_the_added_losses(case):
    permuted = reordered(case.inputs, draw(case.inputs), orders(MASK))
    got = added(case.shared, permuted)
    np.testing.assert_allclose(got.losses, case.added.losses, **CLOSE)


@every_model
def test_lists_score_the_same_in_other_batches(case):
    parts = [run(case.shared, part) for part in groups(draw(case.inputs), 1, 4, 6)]
    together = {name: np.concatenate([part[name] for part in parts]) for name in case.outputs}
    assert_valid_positions_equal(case, together, case.scored)


@still_models
def test_added_losses_of_batches_combine_to_that_of_all_by_items(case):
    parts = groups({**draw(case.inputs), "_mask": MASK}, 2, 5, 6)
    items = np.array([part.pop("_mask").sum() for part in parts])
    losses = np.array([added(case.shared, part).losses for part in parts])
    np.testing.assert_allclose(items @ losses / items.sum(), case.added.losses, **CLOSE)


@every_loss
def test_losses_do_not_see_padding_and_order(case):
    values = draw(case.inputs)
    expected = float(case.value(case.make(), values))
    for other in (
        with_junk(case.inputs, values, MASK),
        with_more_padding(case.inputs, values, MASK),
        reordered(case.inputs, values, orders(MASK)),
    ):
        np.testing.assert_allclose(float(case.value(case.make(), other)), expected, **CLOSE)


@every_loss
def test_losses_of_batches_combine_to_that_of_all(case):
    values = draw(case.inputs)
    parts = groups(values, 2, 5, 6)
    counts = np.array([case.count(part["y_true"]) for part in parts])
    losses = np.array([float(case.value(case.make(), part)) for part in parts])
    expected = float(case.value(case.make(), values))
    np.testing.assert_allclose(counts @ losses / counts.sum(), expected, **CLOSE)


@every_metric
def test_metrics_do_not_see_padding_and_order(case):
    values = draw(case.inputs)
    expected = case.value(case.make(), values)
    for other in (
        with_junk(case.inputs, values, MASK),
        with_more_padding(case.inputs, values, MASK),
        reordered(case.inputs, values, orders(MASK)),
    ):
        assert_same_results(case.value(case.make(), other), expected)


@every_metric
def test_metrics_of_the_same_lists_in_other_batches_are_the_same(case):
    values = draw(case.inputs)
    expected = case.value(case.make(), values)
    assert_same_results(case.value(case.make(), *groups(values, 1, 2, 5, 6)), expected)


@every_metric
def test_metrics_forget_what_they_saw(case):
    metric, values = case.make(), draw(case.inputs)
    case.value(metric, draw(case.inputs, seed=5))
    metric.reset_state()
    assert_same_results(case.value(metric, values), case.value(case.make(), values))
