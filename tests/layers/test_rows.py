"""Rows of valid items, and back."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.rows import put_rows, take_rows

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
