"""STAR: numbers by hand, the shared tower at the start, a slow loop over items, gradient reach."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers import ItemTower, StarTopology
from tfr_moe.layers.star import StarTowers

D = 3
RNG = np.random.default_rng(5)
X = RNG.normal(size=[4, 5, 6]).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], bool)
DOMAINS = np.array([2, 0, 1, 2], np.int32)
# float32 sums in another order
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def scattered(layer):
    """Gives every trained weight a value of its own."""
    rng = np.random.default_rng(8)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return layer


def tower_of(towers, domain, x):
    """The tower of a domain on one item, from the equations."""
    for depth, ((kernel, bias), difference, shift) in enumerate(
        zip(towers.shared, towers.kernels, towers.biases, strict=True)
    ):
        merged = kernel.numpy() * (1 + difference.numpy()[domain])
        x = x @ merged + bias.numpy() + shift.numpy()[domain]
        if depth < len(towers.shared) - 1:
            x = np.maximum(x, 0)
    return x


def test_a_tower_by_hand():
    # Shared kernel [2, -1], domain 1 multiplies by [3, 1] and adds 4 to the shared bias 1:
    # domain 0 says 2 x 5 - 7 + 1 = 4, domain 1 says 6 x 5 - 7 + 1 + 4 = 28.
    towers = StarTowers(2, [])
    towers.build([None, 2])
    kernel, bias = towers.shared[0]
    kernel.assign([[2.0], [-1.0]])
    bias.assign([1.0])
    towers.kernels[0].assign([[[0.0], [0.0]], [[2.0], [0.0]]])
    towers.biases[0].assign([[0.0], [4.0]])
    x = tf.constant([[[5.0, 7.0]], [[5.0, 7.0]]])
    np.testing.assert_allclose(towers(x, tf.constant([[0], [1]])).numpy().ravel(), [4.0, 28.0])


def test_all_domains_start_as_the_shared_tower():
    towers, plain = StarTowers(D, [8, 4], seed=1), ItemTower([8, 4], seed=1)
    got = towers(X, DOMAINS[:, np.newaxis], mask=tf.constant(MASK))
    expected = plain(X, mask=tf.constant(MASK))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(got[..., 0], expected, **CLOSE)


@pytest.mark.parametrize("settings", [{}, {"dispatch": "grouped", "capacity": 3}])
def test_towers_equal_a_loop_over_items(settings):
    towers = StarTowers(D, [7, 4], **settings)
    towers.build([None, None, 6])
    scattered(towers)
    expected = np.zeros(MASK.shape)
    for b, i in np.argwhere(MASK):
        expected[b, i] = tower_of(towers, DOMAINS[b], X[b, i])[0]
    chosen, mask = tf.constant(DOMAINS[:, np.newaxis]), tf.constant(MASK)
    for training in (True, False):
        got = towers(X, chosen, mask=mask, training=training)
        np.testing.assert_allclose(got[..., 0], expected, **CLOSE)
    alone = towers(X[:1], chosen[:1], mask=mask[:1])
    np.testing.assert_allclose(alone[..., 0], expected[:1], **CLOSE)
    every = towers(X, mask=mask)
    np.testing.assert_allclose(every.numpy()[0, :, DOMAINS[0]], expected[0], **CLOSE)


def star(**settings):
    layer = StarTopology(D, [7, 4], auxiliary_hidden_dims=[3], domain_dim=2, **settings)
    layer(X, DOMAINS)
    scattered(layer)
    if layer.domain_norm:
        rng = np.random.default_rng(9)
        layer.norm.moving_mean.assign(rng.normal(size=[D, 6]))
        layer.norm.moving_variance.assign(0.5 + rng.random([D, 6]))
        layer.norm.moving_items.assign(tf.ones([D, 1]))
    return layer


def normalised(layer, training):
    """The items' vectors by domain, from the equation."""
    norm, result = layer.norm, np.zeros_like(X)
    for domain in range(D):
        rows = np.argwhere(MASK & (domain == DOMAINS)[:, np.newaxis])
        values = X[tuple(rows.T)]
        mean, variance = (m.numpy()[domain] for m in (norm.moving_mean, norm.moving_variance))
        if training and len(values):
            mean, variance = values.mean(axis=0), values.var(axis=0)
        scale = norm.scale.numpy() * (1 + norm.domain_scale.numpy()[domain])
        shift = norm.shift.numpy() + norm.domain_shift.numpy()[domain]
        result[tuple(rows.T)] = scale * (values - mean) / np.sqrt(variance + 1e-3) + shift
    return result


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("domain_norm", [False, True])
def test_the_score_equals_a_loop_over_items(training, domain_norm):
    layer = star(domain_norm=domain_norm)
    vectors = normalised(layer, training) if domain_norm else X
    embeddings = layer.embedding.embeddings.numpy()
    hidden, last = layer.auxiliary.tower.kernels
    first_bias, last_bias = layer.auxiliary.tower.biases
    expected = np.zeros(MASK.shape)
    for b, i in np.argwhere(MASK):
        of_tower = tower_of(layer.towers, DOMAINS[b], vectors[b, i])[0]
        both = np.concatenate([X[b, i], embeddings[DOMAINS[b]]])
        inner = np.maximum(both @ hidden.numpy()[0] + first_bias.numpy()[0], 0)
        expected[b, i] = of_tower + (inner @ last.numpy()[0] + last_bias.numpy()[0])[0]
    got = layer(X, DOMAINS, mask=tf.constant(MASK), training=training)
    assert got.dtype == tf.float32
    np.testing.assert_allclose(got, expected, **CLOSE)


def test_a_list_trains_what_is_shared_and_what_is_its_domains():
    layer = star()
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.sin(layer(X[:1], DOMAINS[:1], training=True)))
    weights = layer.trainable_weights
    for weight, gradient in zip(weights, tape.gradient(total, weights), strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy()
        if len(gradient) != D:  # of all domains
            assert np.abs(gradient).max() > 0, weight.name
        else:
            reached = np.abs(gradient.reshape(D, -1)).max(axis=1) > 0
            assert reached.tolist() == [False, False, True], weight.name


def test_parameters_by_hand():
    # A tower 6 -> 7 -> 4 -> 1 has 7 x 7 + 8 x 4 + 5 = 86, four times; scales and shifts 4 x 2 x 6;
    # the auxiliary network 6 + 2 -> 3 -> 1 has 9 x 3 + 4, the embedding 3 x 2.
    count = sum(int(np.prod(weight.shape)) for weight in star().trainable_weights)
    assert count == (D + 1) * 86 + (D + 1) * 12 + 31 + D * 2
