"""DLCM against a GRU written out item by item."""

import numpy as np
import pytest

from tests.layers.test_attention import batch, shaken, slow_dense
from tfr_moe._compat import tf
from tfr_moe.layers.dlcm import DeepListwiseContext


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_gru(reader, vectors):
    """Outputs [L, a], read in the order given, and the last of them."""
    kernel, recurrent, bias = (w.numpy().astype(np.float64) for w in reader.weights)
    state = np.zeros(recurrent.shape[0])
    outputs = []
    for vector in vectors:
        update, reset, new = np.split(vector @ kernel + bias[0], 3)
        old_update, old_reset, old_new = np.split(state @ recurrent + bias[1], 3)
        share = sigmoid(update + old_update)
        proposed = np.tanh(new + sigmoid(reset + old_reset) * old_new)
        state = share * state + (1 - share) * proposed
        outputs.append(state)
    return np.array(outputs), state


def slow_dlcm(layer, items):
    """Logits [L] of items [L, n] that stand in the order of the initial list."""
    rows = []
    for item in items:
        hidden = item
        for dense in layer.abstract:
            hidden = slow_dense(dense, hidden)
            hidden = np.where(hidden > 0, hidden, np.expm1(hidden))
        rows.append(np.concatenate([item, hidden]) if layer.abstract else item)
    outputs, state = slow_gru(layer.reader, rows[::-1])
    views = np.tanh(slow_dense(layer.views, state)).reshape(layer.num_comparisons, layer.state_dim)
    return [slow_dense(layer.output_layer, views @ output)[0] for output in outputs[::-1]]


def dlcm_of(hidden_dims=(7, 6)):
    layer = DeepListwiseContext(hidden_dims, state_dim=4, num_comparisons=3, seed=1)
    layer(tf.ones([1, 2, 5]))
    return shaken(layer)


@pytest.mark.smoke
@pytest.mark.parametrize("hidden_dims", [(7, 6), ()])
def test_it_equals_the_slow_one_on_the_valid_items_alone(hidden_dims):
    inputs, mask = batch()
    layer = dlcm_of(hidden_dims)
    got = layer(inputs, mask=mask).numpy()
    for scores, row, valid in zip(got, inputs, mask, strict=True):
        expected = slow_dlcm(layer, row[valid].astype(np.float64))
        # float32 against float64
        np.testing.assert_allclose(scores[valid], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(scores[~valid], 0.0)


def test_the_order_of_the_items_is_the_initial_list():
    inputs, _ = batch(shape=(1, 3, 5))
    layer = dlcm_of()
    order = [1, 2, 0]
    expected = np.array(slow_dlcm(layer, inputs[0][order].astype(np.float64)))
    got = layer(inputs[:, order]).numpy()[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(got - layer(inputs).numpy()[0][order]).max() > 1e-3
