"""The mean over valid items."""

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.distribute import mean_over_items


def test_padding_counts_for_nothing():
    values, weights = tf.constant([[1.0, 5.0], [3.0, np.nan]]), tf.constant([[1, 0], [1, 0]])
    assert float(mean_over_items(values, weights)) == 2.0


def test_weights_broadcast_over_items():
    # (2 x 1 + 2 x 2 + 1 x 3 + 1 x 4) / 6
    values, weights = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[2.0], [1.0]])
    np.testing.assert_allclose(mean_over_items(values, weights), 13 / 6, rtol=1e-6)


def test_nothing_valid_gives_zero():
    assert float(mean_over_items(tf.constant([1.0]), tf.constant([0.0]))) == 0.0
