"""Normalisation in towers: equal to Keras' own layers on each expert's valid rows alone."""

import numpy as np
import pytest

from tests.layers.test_experts import random_case
from tfr_moe._compat import tf
from tfr_moe.layers.experts import ExpertTowers

CASE = random_case(False)


def towers(norm, dispatch="segments"):
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
@pytest.mark.parametrize("dispatch", ["segments", "capacity"])
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


@pytest.mark.parametrize("dispatch", ["segments", "capacity"])
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
