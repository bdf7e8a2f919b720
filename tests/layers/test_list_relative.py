"""Ranks within lists: against counting, and to the bit in any order."""

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.numerics import list_ranks


def test_they_count_smaller_and_half_of_the_equal_values_among_valid_items():
    rng = np.random.default_rng(1)
    values = rng.normal(size=[30, 12, 3]).round(1).astype(np.float32)
    mask = rng.random([30, 12]) < 0.7
    mask[0] = np.arange(12) == 3
    got = list_ranks(tf.constant(values), tf.constant(mask)).numpy()
    for one, valid, ranks in zip(values, mask, got, strict=True):
        others = max(valid.sum() - 1, 1)
        for item in np.flatnonzero(valid):
            rest = one[valid & (np.arange(12) != item)]
            count = (rest < one[item]).sum(0) + 0.5 * (rest == one[item]).sum(0)
            np.testing.assert_allclose(ranks[item], count / others, rtol=1e-6)
        assert not ranks[~valid].any()


def test_no_bit_depends_on_the_order_of_the_list():
    rng = np.random.default_rng(2)
    values, mask = rng.normal(size=[20, 300, 3]), rng.random([20, 300]) < 0.8
    order = rng.permutation(300)
    before = list_ranks(tf.constant(values), tf.constant(mask)).numpy()
    shuffled = tf.constant(values[:, order]), tf.constant(mask[:, order])
    np.testing.assert_array_equal(list_ranks(*shuffled).numpy(), before[:, order])


def test_what_stands_at_padded_places_does_not_matter():
    values = tf.constant([[[1.0], [2.0], [np.nan]], [[1.0], [2.0], [-np.inf]]])
    mask = tf.constant([[True, True, False]] * 2)
    np.testing.assert_array_equal(list_ranks(values, mask), [[[0.0], [1.0], [0.0]]] * 2)
