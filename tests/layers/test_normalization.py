"""Normalization of items by domain, against hand-worked numbers and slow references."""

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers import PartitionedNormalization

NAN = float("nan")


def column(*lists):
    """[B, L, 1] of numbers."""
    return tf.constant(lists, tf.float32)[..., tf.newaxis]


def test_training_takes_the_moments_of_the_domains_valid_items_by_hand():
    # Domain 1 has 1 and 3, then 8: mean 4, variance (9 + 1 + 16) / 3. Domain 2 has 5 alone.
    layer = PartitionedNormalization(3)
    items = column([1.0, 3.0, NAN], [5.0, NAN, NAN], [NAN, 8.0, NAN])
    mask = tf.constant([[True, True, False], [True, False, False], [False, True, False]])
    got = layer(items, tf.constant([1, 2, 1]), mask=mask, training=True).numpy()[..., 0]
    std = np.sqrt(26 / 3 + 1e-3)
    expected = [[-3 / std, -1 / std, 0], [0, 0, 0], [0, 4 / std, 0]]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_scales_multiply_and_shifts_add_by_hand():
    layer = PartitionedNormalization(2)
    layer.build([None, None, 1])
    layer.scale.assign([3.0])
    layer.shift.assign([0.5])
    layer.domain_scale.assign([[0.0], [1.0]])  # gamma_p is 1 and 2
    layer.domain_shift.assign([[0.0], [10.0]])
    layer.moving_mean.assign([[1.0], [2.0]])
    layer.moving_variance.assign([[4.0 - 1e-3], [0.25 - 1e-3]])
    layer.moving_items.assign([[9.0], [9.0]])
    got = layer(column([5.0], [3.0]), tf.constant([0, 1]))
    # 3 x (5 - 1) / 2 + 0.5; 3 x 2 x (3 - 2) / 0.5 + 0.5 + 10
    np.testing.assert_allclose(got.numpy().ravel(), [6.5, 22.5], rtol=1e-5)


def test_one_domain_is_batch_normalisation():
    rng = np.random.default_rng(1)
    items = rng.normal(2.0, 3.0, [4, 5, 3]).astype(np.float32)
    ours, keras = PartitionedNormalization(1), tf.keras.layers.BatchNormalization()
    zeros = tf.zeros([4], tf.int32)
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(items))
        total = tf.reduce_sum(tf.sin(ours(x, zeros, training=True)))
    with tf.GradientTape() as other:
        other.watch(y := tf.constant(items))
        expected = tf.reduce_sum(tf.sin(keras(y, training=True)))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(total, x), other.gradient(expected, y), rtol=1e-3, atol=1e-5
    )


def test_moving_moments_by_hand():
    layer = PartitionedNormalization(2)
    ones = tf.constant([1])
    layer(column([1.0, 3.0]), ones, training=True)
    moments = (layer.moving_mean, layer.moving_variance, layer.moving_items)
    assert [float(m[1, 0]) for m in moments] == [2.0, 1.0, 2.0]
    layer(column([5.0, 5.0, 5.0, 5.0]), ones, training=True)
    # 0.99 x 2 + 4 = 5.98 items, of which 4 are new; the means are 3 apart.
    rate = 4 / 5.98
    mean = 2 + 3 * rate
    variance = (1 - rate) * 1 + rate * (1 - rate) * 9
    actual = [float(m[1, 0]) for m in moments]
    np.testing.assert_allclose(actual, [mean, variance, 5.98], rtol=1e-6)
    assert [float(m[0, 0]) for m in moments] == [0.0, 1.0, 0.0]


def test_moving_moments_come_near_those_of_all_items_whatever_the_batches():
    """Twenty batches of 1 to 9 items; the last one weighs 0.99^-19 = 1.2 times the first."""
    rng = np.random.default_rng(2)
    layer, seen = PartitionedNormalization(1), []
    for _ in range(20):
        items = rng.normal(7.0, 2.0, [1, rng.integers(1, 10), 1]).astype(np.float32)
        layer(items, tf.constant([0]), training=True)
        seen.append(items.ravel())
    weights = np.concatenate([np.full(len(s), 0.99 ** (19 - i)) for i, s in enumerate(seen)])
    everything = np.concatenate(seen)
    mean = np.average(everything, weights=weights)
    variance = np.average((everything - mean) ** 2, weights=weights)
    np.testing.assert_allclose(layer.moving_mean[0, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance[0, 0], variance, rtol=1e-4)


def test_a_domain_that_training_never_saw_has_the_moments_of_the_unknown_one():
    layer = PartitionedNormalization(3)
    items = column([4.0, 6.0], [4.0, 6.0])
    unseen = layer(items, tf.constant([0, 2])).numpy()
    np.testing.assert_allclose(unseen, items / np.sqrt(1.001), rtol=1e-5)
    layer(column([1.0, 3.0], [100.0, 100.0]), tf.constant([0, 1]), training=True)
    first, second = layer(items, tf.constant([0, 2])).numpy()
    np.testing.assert_allclose(first, second)
    np.testing.assert_allclose(first.ravel(), np.array([2.0, 4.0]) / np.sqrt(1.001), rtol=1e-5)


def test_an_empty_batch_teaches_nothing():
    layer = PartitionedNormalization(2)
    layer(column([1.0, 3.0]), tf.constant([1]), training=True)
    before = [weight.numpy() for weight in layer.weights]
    nothing = tf.zeros([1, 2], tf.bool)
    layer(column([9.0, 9.0]), tf.constant([1]), mask=nothing, training=True)
    for old, weight in zip(before, layer.weights, strict=True):
        np.testing.assert_array_equal(weight, old)
