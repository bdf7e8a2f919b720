"""CrossedWeights: a weight for each pair of IDs."""

import itertools

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.crossed_weights import CrossedWeights

IDS = {
    "user": [["u1"], [""]],
    "clicked": [["a", "b"], ["b", ""]],
    "brand": [[["x"], ["y"], [""]], [["x"], ["x"], ["y"]]],
}


def cross(pair, ids, buckets=10_000):
    """The weights that the pairs of two ids have, each seen alone."""
    layer = CrossedWeights([pair], buckets, seed=1)
    first, second = ids
    features = {pair[0]: tf.constant([[first]]), pair[1]: tf.constant([[[second]]])}
    return float(layer(features, mask=tf.ones([1, 1], tf.bool))[0, 0])


def test_each_pair_of_ids_that_are_there_adds_its_weight():
    features = {name: tf.constant(values) for name, values in IDS.items()}
    mask = tf.constant([[True, True, True], [True, True, False]])
    got = CrossedWeights([("clicked", "brand")], 10_000, seed=1)(features, mask=mask).numpy()
    for row, item in np.argwhere(mask.numpy()):
        pairs = itertools.product(IDS["clicked"][row], IDS["brand"][row][item])
        expected = sum(cross(("clicked", "brand"), pair) for pair in pairs if all(pair))
        assert got[row, item] == pytest.approx(expected, abs=1e-7)
    assert got[1, 2] == 0.0
    assert got[0, 0] != got[0, 1]


def test_an_empty_id_crosses_with_nothing():
    features = {name: tf.constant(values) for name, values in IDS.items()}
    got = CrossedWeights([("user", "brand")], 10_000)(features, mask=tf.ones([2, 3], tf.bool))
    assert (got.numpy() != 0).tolist() == [[True, True, False], [False, False, False]]


def test_the_order_within_a_pair_counts_and_several_pairs_add_up():
    assert cross(("a", "b"), ("x", "y")) != cross(("a", "b"), ("y", "x"))
    features = {"a": tf.constant([["x"]]), "b": tf.constant([[["y"]]])}
    both = CrossedWeights([("a", "b"), ("b", "a")], 50)
    both(features, mask=tf.ones([1, 1], tf.bool))
    both.crossed.assign(tf.ones_like(both.crossed))
    assert float(both(features, mask=tf.ones([1, 1], tf.bool))[0, 0]) == 2.0
