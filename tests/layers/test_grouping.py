"""Groups of a fixed size: everyone has a place, alone, with the right expert, whatever the choice."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.grouping import fill_rows, group_rows, take_experts


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
def test_every_choice_has_a_place_of_its_own_in_a_group_of_its_expert(kind, capacity):
    chosen = choices(kind)
    rows, places, experts = (np.array(x) for x in group_rows(tf.constant(chosen), 6, capacity))
    assert (np.diff(experts) >= 0).all()
    seen = set()
    for row, slot in np.ndindex(chosen.shape):
        place = places[row, slot]
        if chosen[row, slot] < 0:
            assert place == rows.size
            continue
        assert rows.ravel()[place] == row
        assert experts[place // rows.shape[1]] == chosen[row, slot]
        seen.add(place)
    assert len(seen) == (chosen >= 0).sum()
    assert (rows < len(chosen)).sum() == len(seen)


def test_the_number_of_groups_is_that_of_the_worst_choice():
    """Five pairs, two experts, groups of two: 3 groups, as 4 to one and 1 to the other need them."""
    for kind in ([0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [-1, -1, -1, -1, -1]):
        assert group_rows(tf.constant(kind)[:, tf.newaxis], 2, 2).rows.shape == (3, 2)
    counts = group_rows(tf.constant([[0], [0], [0], [1], [1]]), 2, 2).rows.numpy()
    assert (counts < 5).sum(axis=1).tolist() == [2, 1, 2]


def test_no_rows_at_all_make_no_group():
    groups = group_rows(tf.zeros([0, 3], tf.int32), 4, 16)
    assert groups.rows.shape[0] == 0
    assert groups.places.shape == (0, 3)


def test_the_gradient_of_taken_experts_is_dense_and_sums_their_groups():
    weights = tf.Variable(tf.ones([3, 2]))
    with tf.GradientTape() as tape:
        taken = take_experts(tf.convert_to_tensor(weights), tf.constant([0, 2, 2]))
        loss = tf.reduce_sum(taken * tf.constant([[1.0], [10.0], [100.0]]))
    gradient = tape.gradient(loss, weights)
    assert not isinstance(gradient, tf.IndexedSlices)
    assert gradient.numpy().tolist() == [[1, 1], [0, 0], [110, 110]]


def test_filled_rows_have_few_lengths_and_at_most_an_eighth_too_many():
    lengths = {}
    for count in (0, 1, 64, 65, 1000, 1024, 1025, 1153, 2047, 2048, 5000):
        rows, chosen = fill_rows(tf.zeros([count, 1]), tf.zeros([count, 1], tf.int32))
        assert rows.shape[0] == chosen.shape[0] >= count
        assert (chosen.numpy()[count:] == -1).all()
        lengths[count] = rows.shape[0]
        if count > 1024:
            assert rows.shape[0] <= 1.125 * count
    assert lengths[0] == lengths[1] == 64
    assert lengths[1025] == 1152
    assert lengths[1153] == 1280
