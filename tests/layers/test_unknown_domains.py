"""The share of lists that count as of the unknown domain in training."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.categories import UnknownDomains


def test_in_training_a_share_of_the_lists_is_of_the_unknown_domain():
    layer = UnknownDomains(0.3, seed=1)
    domains = tf.repeat(tf.constant([1, 3]), 5000)
    actual = layer(domains, training=True).numpy()
    assert actual.dtype == np.int32
    # Four standard errors of a share of 0.3 among 10,000.
    assert np.mean(actual == 0) == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 10_000))
    np.testing.assert_array_equal(actual[actual > 0], domains[actual > 0])
    np.testing.assert_array_equal(layer(domains), domains)
    assert np.any(layer(domains, training=True) != actual)
