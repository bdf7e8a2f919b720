"""Rows, groups, and ExpertTowers in groups: the same results as sorted by expert."""

import numpy as np
import pytest

from tests.graphs import outlives_its_function
from tests.layers.test_experts import random_case, slow_towers
from tfr_moe._compat import tf
from tfr_moe.layers.dispatch import (
    gather_rows,
    group_rows,
    put_rows,
    take_rows,
    where_valid,
)
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.shapes import sizes


def towers(**settings):
    layer = ExpertTowers(6, settings.pop("hidden", (8, 5)), seed=1, **settings)
    layer.build([None, None, 4])
    rng = np.random.default_rng(9)
    for bias in layer.biases:
        bias.assign(rng.normal(size=bias.shape))
    return layer


def alike(other, **settings):
    layer = towers(**settings)
    layer.set_weights(other.get_weights())
    return layer


def skewed(case):
    """The random case with one expert in nine choices of ten, and expert 5 in none."""
    inputs, indices, mask = case
    rng = np.random.default_rng(3)
    one = np.where(rng.random(indices.shape[:-1]) < 0.9, 2, rng.integers(0, 5, indices.shape[:-1]))
    return inputs, one[..., np.newaxis].astype(np.int32), mask


def result(layer, case, compiled=False, training=True):
    """Outputs, and gradients of the weights and of the valid inputs."""
    inputs, indices, mask = (tf.constant(x) for x in case)

    def step():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            out = layer(inputs, indices, mask=mask, training=training)
            loss = tf.reduce_sum(tf.sin(out))
        return out, tape.gradient(loss, [*layer.trainable_variables, inputs])

    out, gradients = tf.function(step, jit_compile=True)() if compiled else step()
    return [tf.convert_to_tensor(x).numpy() for x in (out, *gradients)]


CASES = {
    "even": random_case(False),
    "by item": random_case(True),
    "skewed": skewed(random_case(False, batch=12)),
    "skewed by item": skewed(random_case(True)),
    "items alone": random_case(False, size=1),
    "one list": random_case(False, batch=2),
    "choices left out": (lambda x, i, m: (x, np.where(i == 3, -1, i), m))(*random_case(False)),
    "all padding": (lambda x, i, m: (x, i, np.zeros_like(m)))(*random_case(False)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("capacity", [3, 256])
def test_results_and_gradients_are_those_of_segments(name, capacity):
    segments = towers()
    groups = alike(segments, dispatch="grouped", capacity=capacity)
    expected = result(segments, CASES[name])
    # float32 sums in another order
    for got, wanted in zip(result(groups, CASES[name]), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    inputs, indices, mask = CASES[name]
    if (indices >= 0).all():
        quiet = groups(inputs, indices, mask=tf.constant(mask))
        np.testing.assert_allclose(quiet, slow_towers(segments, *CASES[name]), 1e-4, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_valid_items_are_grouped_with_the_same_results(name, monkeypatch):
    expected = result(towers(dispatch="sorted"), CASES[name])
    layer = towers(dispatch="auto", capacity=3)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    monkeypatch.setattr(layer, "_sorted", None)
    for got, wanted in zip(result(layer, CASES[name]), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["skewed", "by item"])
def test_xla_compiles_the_whole_step_to_the_same_results(name):
    segments = towers()
    groups = alike(segments, dispatch="grouped", capacity=4)
    expected = result(segments, CASES[name])
    for got, wanted in zip(result(groups, CASES[name], compiled=True), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_hidden_outputs_pass_through_groups():
    segments = towers(hidden_output=True)
    groups = alike(segments, hidden_output=True, dispatch="grouped", capacity=4)
    for got, wanted in zip(
        result(groups, CASES["even"]), result(segments, CASES["even"]), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_vectors_without_an_axis_for_the_list_pass_through_groups(size, training):
    segments = towers()
    groups = alike(segments, dispatch="grouped", capacity=4)
    inputs = tf.random.stateless_normal([size, 4], [1, 2])
    indices, mask = tf.constant([[2, 0], [1, 1], [5, 3]])[:size], tf.constant([True, False, True])
    got = groups(inputs, indices, mask=mask[:size], training=training)
    expected = segments(inputs, indices, mask=mask[:size], training=training)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_padded_inputs_of_groups_may_hold_anything():
    inputs, indices, mask = random_case(False)
    layer = towers(dispatch="grouped", capacity=4)
    clean = result(layer, (inputs, indices, mask), training=False)
    soiled = np.where(mask[..., None], inputs, np.nan).astype(np.float32)
    for got, wanted in zip(
        result(layer, (soiled, indices, mask), training=False), clean, strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_keras_fits_a_mixture_that_xla_compiles_whole_like_one_by_segments():
    rng = np.random.default_rng(0)
    x = rng.normal(size=[32, 5, 4]).astype(np.float32)
    gate = rng.normal(size=[32, 3]).astype(np.float32)
    mask = np.arange(5) < rng.integers(1, 6, [32, 1])
    y = rng.random([32, 5]).astype(np.float32)

    def losses(compiled, **settings):
        items = tf.keras.Input([5, 4])
        by, above = tf.keras.Input([3]), tf.keras.Input([3])
        valid = tf.keras.Input([5], dtype="bool")
        moe = CategoryMixtureOfExperts(
            6, 2, 4, [8], noisy_gate=False, seed=1, adversarial_weight=0.1, **settings
        )
        logits = moe(items, by, above, mask=valid)["logits"]
        model = tf.keras.Model([items, by, above, valid], logits)
        start = np.random.default_rng(5)
        for weight in model.trainable_weights:
            weight.assign(start.normal(size=weight.shape, scale=0.3))
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", jit_compile=compiled)
        # All N - K idle experts are drawn: there is no chance in it.
        return model.fit(
            [x, gate, gate, mask], y, batch_size=8, epochs=2, shuffle=False, verbose=0,
            validation_data=([x, gate, gate, mask], y),
        ).history  # fmt: skip

    segments = losses(False)
    groups = losses(True, dispatch="grouped", expert_capacity=8)
    for name in ("loss", "val_loss", "adversarial"):
        np.testing.assert_allclose(groups[name], segments[name], rtol=1e-4)


def test_bad_settings_are_rejected():
    for settings, message in [
        ({"dispatch": "loop"}, "dispatch must be one of"),
        ({"capacity": 0}, "capacity must be >= 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExpertTowers(2, [4], **settings)


def choices(kind, rows=40, slots=3, experts=6):
    rng = np.random.default_rng(1)
    if kind == "one expert for all":
        return np.full([rows, 1], 2, np.int32)
    if kind == "nothing":
        return np.full([rows, slots], -1, np.int32)
    chosen = np.argsort(rng.random([rows, experts]), axis=1)[:, :slots].astype(np.int32)
    if kind == "nine in ten to one, one without":
        chosen = np.where(rng.random([rows, 1]) < 0.9, 2, chosen % 4)[:, :1].astype(np.int32)
    chosen[rng.random(len(chosen)) < 0.3] = -1
    return chosen


@pytest.mark.parametrize(
    "kind", ["even", "nine in ten to one, one without", "one expert for all", "nothing"]
)
@pytest.mark.parametrize("capacity", [1, 7, 256])
def test_every_choice_has_its_own_slot_in_a_group_of_its_expert(kind, capacity):
    chosen = choices(kind)
    rows, slots, experts = (np.array(x) for x in group_rows(tf.constant(chosen), 6, capacity))
    assert (np.diff(experts) >= 0).all()
    seen = set()
    for row, number in np.ndindex(chosen.shape):
        slot = slots[row, number]
        if chosen[row, number] < 0:
            assert slot == rows.size
            continue
        assert rows.ravel()[slot] == row
        assert experts[slot // rows.shape[1]] == chosen[row, number]
        seen.add(slot)
    assert len(seen) == (chosen >= 0).sum()
    assert (rows < len(chosen)).sum() == len(seen)


def test_the_number_of_groups_is_that_of_the_worst_choice():
    """Five pairs, two experts, groups of two: 3 groups, needed by 4 pairs and 1 pair."""
    for kind in ([0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [-1, -1, -1, -1, -1]):
        assert group_rows(tf.constant(kind)[:, tf.newaxis], 2, 2).rows.shape == (3, 2)
    counts = group_rows(tf.constant([[0], [0], [0], [1], [1]]), 2, 2).rows.numpy()
    assert (counts < 5).sum(axis=1).tolist() == [2, 1, 2]


def test_no_rows_at_all_make_no_group():
    groups = group_rows(tf.zeros([0, 3], tf.int32), 4, 16)
    assert groups.rows.shape[0] == 0
    assert groups.slots.shape == (0, 3)


def test_the_gradient_of_taken_experts_is_dense_and_sums_their_groups():
    weights = tf.Variable(tf.ones([3, 2]))
    with tf.GradientTape() as tape:
        taken = gather_rows(tf.convert_to_tensor(weights), tf.constant([0, 2, 2]))
        loss = tf.reduce_sum(taken * tf.constant([[1.0], [10.0], [100.0]]))
    gradient = tape.gradient(loss, weights)
    assert not isinstance(gradient, tf.IndexedSlices)
    assert gradient.numpy().tolist() == [[1, 1], [0, 0], [110, 110]]


X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
MASK = np.array([[True, False, True, True], [False, True, False, False]])


@pytest.mark.parametrize("mask", [None, MASK])
def test_rows_return_to_their_positions(mask):
    rows, positions = take_rows(tf.constant(X), None if mask is None else tf.constant(mask))
    np.testing.assert_array_equal(rows, X.reshape(-1, 3) if mask is None else X[mask])
    back = put_rows(rows, positions, tf.constant(X))
    np.testing.assert_array_equal(back, X if mask is None else X * mask[..., None])


def test_values_of_any_shape_can_be_put_back():
    rows, positions = take_rows(tf.constant(X), tf.constant(MASK))
    assert put_rows(rows[:, 0], positions, X).shape == (2, 4)
    assert put_rows(rows[:, tf.newaxis], positions, X).shape == (2, 4, 1, 3)


def test_sizes_are_numbers_where_they_are_known():
    def sizes_of(x):
        lists, length, width = sizes(x)
        assert (length, width) == (2, 3)
        return lists

    assert sizes(np.zeros([4, 2, 3])) == [4, 2, 3]
    graph = tf.function(sizes_of, [tf.TensorSpec([None, 2, 3])], autograph=False)
    assert int(graph(tf.zeros([5, 2, 3]))) == 5


def test_known_shapes_stay_known_in_a_graph():
    inputs = tf.keras.Input([None, 3])
    mask = tf.keras.Input([None], dtype=tf.bool)
    rows, positions = take_rows(inputs, mask)
    assert rows.shape.as_list() == [None, 3]
    assert put_rows(rows, positions, inputs).shape.as_list() == [None, None, 3]


def test_rows_are_put_in_the_order_of_a_permutation():
    values, inverse = tf.constant([5.0, 6.0, 7.0]), tf.math.invert_permutation([2, 0, 1])
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = tf.reduce_sum(gather_rows(values, inverse) * [1.0, 10.0, 100.0])
    np.testing.assert_array_equal(gather_rows(values, inverse), [6.0, 7.0, 5.0])
    np.testing.assert_array_equal(tape.gradient(total, values), [100.0, 1.0, 10.0])


def test_no_graph_outlives_its_function():
    values, order = tf.constant([[5.0], [6.0], [7.0]]), tf.constant([2, 0, 1])
    assert not outlives_its_function(lambda x: gather_rows(x, order), values)


def test_padded_items_are_zero_even_if_they_are_nan():
    values = tf.constant([[[5.0], [float("nan")]]])
    valid = where_valid(values, tf.constant([[True, False]]))
    np.testing.assert_array_equal(valid, [[[5.0], [0.0]]])
