"""HSC (eqs. 8 to 10), AdvLoss (eq. 11) and the draw of idle experts, by hand and by slow loops."""

import math

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.regularizers import (
    AdversarialExpertPenalty,
    HierarchicalSoftConstraint,
    sample_idle_experts,
)


def softmax(row):
    powers = [math.exp(v) for v in row]
    return [p / sum(powers) for p in powers]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_hsc_of_three_experts_by_hand():
    # p^I = softmax(ln 2, 0, 0) = (1/2, 1/4, 1/4); p^C = (1/3, 1/3, 1/3)
    inference, constraint = tf.constant([[math.log(2), 0.0, 0.0]]), tf.zeros([1, 3])
    hsc = HierarchicalSoftConstraint(1.0)
    one = hsc(inference, constraint, tf.constant([[0]]), tf.constant([1.0]))
    np.testing.assert_allclose(one, [(1 / 2 - 1 / 3) ** 2], rtol=1e-6)
    two = hsc(inference, constraint, tf.constant([[0, 2]]), tf.constant([1.0]))
    np.testing.assert_allclose(two, [(1 / 2 - 1 / 3) ** 2 + (1 / 4 - 1 / 3) ** 2], rtol=1e-6)


def test_hsc_sums_over_the_selected_experts_only_but_normalises_over_all():
    rng = np.random.default_rng(0)
    inference, constraint = rng.normal(size=[2, 4, 6]).astype(np.float32)
    indices = np.argsort(rng.random([4, 6]), axis=1)[:, :3]
    expected = [
        sum((softmax(inference[b])[i] - softmax(constraint[b])[i]) ** 2 for i in indices[b])
        for b in range(4)
    ]
    got = HierarchicalSoftConstraint(1.0)(inference, constraint, indices, tf.ones([4]))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_hsc_of_item_gates_compares_each_item_with_its_list():
    rng = np.random.default_rng(1)
    inference = rng.normal(size=[2, 3, 5]).astype(np.float32)
    constraint = rng.normal(size=[2, 5]).astype(np.float32)
    indices = np.argsort(rng.random([2, 3, 5]), axis=-1)[..., :2]
    layer = HierarchicalSoftConstraint(1.0)
    got = layer(inference, constraint, indices, tf.ones([2, 3]))
    for i in range(3):
        alone = layer(inference[:, i], constraint, indices[:, i], tf.ones([2]))
        np.testing.assert_allclose(got[:, i], alone, rtol=1e-6)


def test_hsc_loss_is_the_mean_over_items_not_over_lists():
    inference = tf.constant([[math.log(2), 0.0, 0.0], [0.0, 0.0, 0.0]])
    layer = HierarchicalSoftConstraint(0.1)
    layer(
        inference, tf.zeros([2, 3]), tf.constant([[0], [0]]), tf.constant([3.0, 1.0]), training=True
    )
    # Three items at (1/6)^2, one at 0.
    np.testing.assert_allclose(layer.losses, [0.1 * 3 / 4 * (1 / 6) ** 2], rtol=1e-6)


def test_hsc_adds_no_loss_outside_training():
    layer = HierarchicalSoftConstraint(0.1)
    layer(tf.zeros([1, 2]), tf.zeros([1, 2]), tf.constant([[0]]), tf.constant([1.0]))
    assert layer.losses == []


def test_advloss_of_one_pair_by_hand():
    # sigma(0) = 1/2, sigma(ln 3) = 3/4: (1/4)^2
    layer = AdversarialExpertPenalty(1.0)
    got = layer(tf.zeros([1, 1, 1]), tf.fill([1, 1, 1], math.log(3)), tf.constant([[True]]))
    np.testing.assert_allclose(got, [[1 / 16]], rtol=1e-6)


def test_advloss_adds_up_all_pairs_of_active_and_idle_experts():
    rng = np.random.default_rng(2)
    active = rng.normal(size=[3, 4, 3]).astype(np.float32)
    idle = rng.normal(size=[3, 4, 2]).astype(np.float32)
    expected = np.zeros([3, 4])
    for b, i, k, d in np.ndindex(3, 4, 3, 2):
        expected[b, i] += (sigmoid(active[b, i, k]) - sigmoid(idle[b, i, d])) ** 2
    got = AdversarialExpertPenalty(1.0)(active, idle, tf.ones([3, 4], tf.bool))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_advloss_is_subtracted_and_averaged_over_valid_items():
    idle = tf.constant([[[math.log(3)], [50.0]]])
    layer = AdversarialExpertPenalty(0.1)
    layer(tf.zeros([1, 2, 1]), idle, tf.constant([[True, False]]), training=True)
    np.testing.assert_allclose(layer.losses, [-0.1 / 16], rtol=1e-6)


def test_advloss_never_exceeds_k_times_d():
    active, idle = tf.fill([1, 1, 4], 1e4), tf.fill([1, 1, 2], -1e4)
    got = AdversarialExpertPenalty(1.0)(active, idle, tf.constant([[True]]))
    np.testing.assert_allclose(got, [[8.0]])


def test_idle_experts_are_never_active_and_never_twice():
    indices = tf.constant(np.argsort(np.random.default_rng(3).random([500, 8]), axis=1)[:, :3])
    idle = sample_idle_experts(indices, num_experts=8, num_adversarial=5).numpy()
    together = np.sort(np.concatenate([indices, idle], axis=1), axis=1)
    np.testing.assert_array_equal(together, np.tile(np.arange(8), [500, 1]))


def test_idle_experts_are_drawn_uniformly_and_anew():
    tf.keras.utils.set_random_seed(4)
    indices = tf.tile([[0, 3]], [30_000, 1])
    idle = sample_idle_experts(indices, num_experts=6, num_adversarial=1).numpy()[:, 0]
    shares = np.bincount(idle, minlength=6) / len(idle)
    # 30,000 draws: standard error 0.0025 of a share of 1/4; four of them.
    np.testing.assert_allclose(shares, [0, 0.25, 0.25, 0, 0.25, 0.25], atol=0.01)
    again = sample_idle_experts(indices, num_experts=6, num_adversarial=1).numpy()[:, 0]
    assert (again != idle).mean() > 0.5


def test_item_level_gates_draw_for_each_item():
    indices = tf.zeros([50, 4, 1], tf.int32)
    idle = sample_idle_experts(indices, num_experts=5, num_adversarial=2)
    assert idle.shape == [50, 4, 2]
    assert len(np.unique(idle.numpy().reshape([-1, 2]), axis=0)) > 6
