"""Rows of valid items, and weights of selected experts."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.dispatch import put_rows, take_experts, take_rows


def test_the_gradient_of_taken_experts_is_dense_and_sums_their_groups():
    weights = tf.Variable(tf.ones([3, 2]))
    with tf.GradientTape() as tape:
        taken = take_experts(tf.convert_to_tensor(weights), tf.constant([0, 2, 2]))
        loss = tf.reduce_sum(taken * tf.constant([[1.0], [10.0], [100.0]]))
    gradient = tape.gradient(loss, weights)
    assert not isinstance(gradient, tf.IndexedSlices)
    assert gradient.numpy().tolist() == [[1, 1], [0, 0], [110, 110]]


X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
MASK = np.array([[True, False, True, True], [False, True, False, False]])


@pytest.mark.parametrize("mask", [None, MASK])
def test_rows_return_to_their_places(mask):
    rows, places = take_rows(tf.constant(X), None if mask is None else tf.constant(mask))
    np.testing.assert_array_equal(rows, X.reshape(-1, 3) if mask is None else X[mask])
    back = put_rows(rows, places, tf.constant(X))
    np.testing.assert_array_equal(back, X if mask is None else X * mask[..., None])


def test_values_of_any_shape_can_be_put_back():
    rows, places = take_rows(tf.constant(X), tf.constant(MASK))
    assert put_rows(rows[:, 0], places, X).shape == (2, 4)
    assert put_rows(rows[:, tf.newaxis], places, X).shape == (2, 4, 1, 3)


def test_known_shapes_stay_known_in_a_graph():
    inputs = tf.keras.Input([None, 3])
    mask = tf.keras.Input([None], dtype=tf.bool)
    rows, places = take_rows(inputs, mask)
    assert rows.shape.as_list() == [None, 3]
    assert put_rows(rows, places, inputs).shape.as_list() == [None, None, 3]
