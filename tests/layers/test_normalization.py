"""Normalization of experts' hidden values and of items by domain, against slow references."""

import numpy as np
import pytest

from tests.layers.test_experts import random_case
from tfr_moe._compat import tf
from tfr_moe.layers import PartitionedNormalization
from tfr_moe.layers.experts import ExpertTowers

CASE = random_case(False)


def towers(norm, dispatch="sorted"):
    layer = ExpertTowers(6, [8, 5], seed=1, norm=norm, dispatch=dispatch, capacity=4)
    layer.build([None, None, 4])
    rng = np.random.default_rng(2)
    for pair in layer.norms[:2]:
        for weight in pair[:2]:
            weight.assign(rng.normal(size=weight.shape))
    return layer


def slow(layer, norm, training):
    """Expert by expert, its valid rows through Keras' layers; and the moving averages after it."""
    inputs, indices, mask = CASE
    out = np.zeros([*mask.shape, indices.shape[-1]], np.float32)
    averages = []
    for expert in range(6):
        slots = np.argwhere((indices[:, None] == expert) & mask[..., None])
        hidden = tf.constant(inputs[slots[:, 0], slots[:, 1]])
        for depth in range(3):
            kernel, bias = layer.kernels[depth][expert], layer.biases[depth][expert]
            hidden = tf.matmul(hidden, kernel) + bias
            if depth == 2:
                continue
            kind = {
                "batch": tf.keras.layers.BatchNormalization,
                "layer": lambda: tf.keras.layers.LayerNormalization(epsilon=1e-3),
            }[norm]()
            kind.build(hidden.shape)
            kind.set_weights([weight[expert].numpy() for weight in layer.norms[depth]])
            hidden = tf.nn.relu(kind(hidden, training=training))
            if norm == "batch":
                averages += [kind.moving_mean.numpy(), kind.moving_variance.numpy()]
        out[tuple(slots.T)] = hidden[:, 0]
    return out, averages


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("dispatch", ["sorted", "grouped"])
@pytest.mark.parametrize("training", [True, False])
def test_equals_keras_layers_on_the_rows_of_each_expert(norm, dispatch, training):
    layer = towers(norm, dispatch)
    for pair in layer.norms[:2]:
        for weight in pair[2:]:
            weight.assign(0.5 + np.random.default_rng(4).random(weight.shape))
    expected, averages = slow(layer, norm, training)
    inputs, indices, mask = CASE
    got = layer(inputs, indices, mask=tf.constant(mask), training=training)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    if norm == "batch":
        found = [
            weight[expert].numpy()
            for expert in range(6)
            for depth in range(2)
            for weight in layer.norms[depth][2:]
        ]
        for ours, keras in zip(found, averages, strict=True):
            np.testing.assert_allclose(ours, keras, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dispatch", ["sorted", "grouped"])
def test_an_expert_without_a_row_keeps_its_moving_averages(dispatch):
    layer = towers("batch", dispatch)
    inputs, _, mask = CASE
    before = [weight.numpy() for weight in layer.norms[0][2:]]
    chosen = np.zeros([len(mask), 1], np.int32)
    layer(inputs, chosen, mask=tf.constant(mask), training=True)
    for weight, old in zip(layer.norms[0][2:], before, strict=True):
        np.testing.assert_array_equal(weight[1:], old[1:])
        assert np.abs(weight[0] - old[0]).max() > 1e-4


def test_all_experts_at_once_normalise_as_chosen_ones_do():
    first, second = towers("batch"), towers("batch")
    inputs, _, mask = CASE
    everyone = np.tile(np.arange(6, dtype=np.int32), [5, 1])
    got = first(inputs, mask=tf.constant(mask), training=True)
    expected = second(inputs, everyone, mask=tf.constant(mask), training=True)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(first.weights, second.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_moving_averages_are_served_to_a_list_alone():
    layer = towers("batch")
    inputs, indices, mask = CASE
    layer(inputs, indices, mask=tf.constant(mask), training=True)
    together = layer(inputs, indices, mask=tf.constant(mask))
    alone = layer(inputs[1:2], indices[1:2], mask=tf.constant(mask[1:2]))
    np.testing.assert_allclose(alone[0], together[1], rtol=1e-5, atol=1e-6)


def test_experts_drop_other_units_of_the_same_rows():
    layer = ExpertTowers(2, [64], dropout=0.5, seed=1, hidden_output=True)
    rows, both = tf.ones([1, 3, 4]), tf.constant([[0, 1]])
    layer.build(rows.shape)
    layer.kernels[0].assign(tf.ones_like(layer.kernels[0]))
    # In one graph, where seeds of operations count from the same start.
    out = tf.function(lambda: layer(rows, both, training=True))()
    assert np.any(out[0, :, 0] != out[0, :, 1])


NAN = float("nan")


def column(*lists):
    """[B, L, 1] of numbers."""
    return tf.constant(lists, tf.float32)[..., tf.newaxis]


def test_training_takes_the_moments_of_the_domains_valid_items_by_hand():
    # Domain 1 has 1 and 3, then 8: mean 4, variance (9 + 1 + 16) / 3. Domain 2 has 5 alone.
    layer = PartitionedNormalization(3)
    items = column([1.0, 3.0, NAN], [5.0, NAN, NAN], [NAN, 8.0, NAN])
    mask = tf.constant([[True, True, False], [True, False, False], [False, True, False]])
    got = layer(items, tf.constant([1, 2, 1]), mask=mask, training=True).numpy()[..., 0]
    std = np.sqrt(26 / 3 + 1e-3)
    expected = [[-3 / std, -1 / std, 0], [0, 0, 0], [0, 4 / std, 0]]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_scales_multiply_and_shifts_add_by_hand():
    layer = PartitionedNormalization(2)
    layer.build([None, None, 1])
    layer.scale.assign([3.0])
    layer.shift.assign([0.5])
    layer.domain_scale.assign([[0.0], [1.0]])  # gamma_p is 1 and 2
    layer.domain_shift.assign([[0.0], [10.0]])
    layer.moving_mean.assign([[1.0], [2.0]])
    layer.moving_variance.assign([[4.0 - 1e-3], [0.25 - 1e-3]])
    layer.moving_items.assign([[9.0], [9.0]])
    got = layer(column([5.0], [3.0]), tf.constant([0, 1]))
    # 3 x (5 - 1) / 2 + 0.5; 3 x 2 x (3 - 2) / 0.5 + 0.5 + 10
    np.testing.assert_allclose(got.numpy().ravel(), [6.5, 22.5], rtol=1e-5)


def test_one_domain_is_batch_normalisation():
    rng = np.random.default_rng(1)
    items = rng.normal(2.0, 3.0, [4, 5, 3]).astype(np.float32)
    ours, keras = PartitionedNormalization(1), tf.keras.layers.BatchNormalization()
    zeros = tf.zeros([4], tf.int32)
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(items))
        total = tf.reduce_sum(tf.sin(ours(x, zeros, training=True)))
    with tf.GradientTape() as other:
        other.watch(y := tf.constant(items))
        expected = tf.reduce_sum(tf.sin(keras(y, training=True)))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(total, x), other.gradient(expected, y), rtol=1e-3, atol=1e-5
    )


def test_moving_moments_by_hand():
    layer = PartitionedNormalization(2)
    ones = tf.constant([1])
    layer(column([1.0, 3.0]), ones, training=True)
    moments = (layer.moving_mean, layer.moving_variance, layer.moving_items)
    assert [float(m[1, 0]) for m in moments] == [2.0, 1.0, 2.0]
    layer(column([5.0, 5.0, 5.0, 5.0]), ones, training=True)
    # 0.99 x 2 + 4 = 5.98 items, of which 4 are new; the means are 3 apart.
    rate = 4 / 5.98
    mean = 2 + 3 * rate
    variance = (1 - rate) * 1 + rate * (1 - rate) * 9
    found = [float(m[1, 0]) for m in moments]
    np.testing.assert_allclose(found, [mean, variance, 5.98], rtol=1e-6)
    assert [float(m[0, 0]) for m in moments] == [0.0, 1.0, 0.0]


def test_moving_moments_come_near_those_of_all_items_whatever_the_batches():
    """Twenty batches of 1 to 9 items; the last one weighs 0.99^-19 = 1.2 times the first."""
    rng = np.random.default_rng(2)
    layer, seen = PartitionedNormalization(1), []
    for _ in range(20):
        items = rng.normal(7.0, 2.0, [1, rng.integers(1, 10), 1]).astype(np.float32)
        layer(items, tf.constant([0]), training=True)
        seen.append(items.ravel())
    weights = np.concatenate([np.full(len(s), 0.99 ** (19 - i)) for i, s in enumerate(seen)])
    everything = np.concatenate(seen)
    mean = np.average(everything, weights=weights)
    variance = np.average((everything - mean) ** 2, weights=weights)
    np.testing.assert_allclose(layer.moving_mean[0, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance[0, 0], variance, rtol=1e-4)


def test_a_domain_that_training_never_saw_has_the_moments_of_the_unknown_one():
    layer = PartitionedNormalization(3)
    items = column([4.0, 6.0], [4.0, 6.0])
    unseen = layer(items, tf.constant([0, 2])).numpy()
    np.testing.assert_allclose(unseen, items / np.sqrt(1.001), rtol=1e-5)
    layer(column([1.0, 3.0], [100.0, 100.0]), tf.constant([0, 1]), training=True)
    first, second = layer(items, tf.constant([0, 2])).numpy()
    np.testing.assert_allclose(first, second)
    np.testing.assert_allclose(first.ravel(), np.array([2.0, 4.0]) / np.sqrt(1.001), rtol=1e-5)


def test_an_empty_batch_teaches_nothing():
    layer = PartitionedNormalization(2)
    layer(column([1.0, 3.0]), tf.constant([1]), training=True)
    before = [weight.numpy() for weight in layer.weights]
    nothing = tf.zeros([1, 2], tf.bool)
    layer(column([9.0, 9.0]), tf.constant([1]), mask=nothing, training=True)
    for old, weight in zip(before, layer.weights, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_there_is_a_domain():
    with pytest.raises(ValueError, match="num_domains must be >= 1"):
        PartitionedNormalization(0)
