"""PLE: a slow reference of the equations, one level as CGC, and what a list reaches."""

import numpy as np
import pytest

from tests.layers.test_multi_task import network, softmax
from tfr_moe._compat import tf
from tfr_moe.layers import ProgressiveExtraction
from tfr_moe.layers.ple import layers_of_levels

D, M, S = 3, 2, 2
RNG = np.random.default_rng(6)
X = RNG.normal(size=[4, 5, 6]).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], bool)
DOMAINS = np.array([2, 0, 1, 2], np.int32)
# float32 sums in another order
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def made(num_levels, num_domains=D, num_domain_experts=M, num_shared_experts=S, **settings):
    """A layer whose weights are nowhere 0."""
    layer = ProgressiveExtraction(
        num_domains,
        [7, 5, 4],
        [3],
        num_levels,
        num_domain_experts,
        num_shared_experts,
        **settings,
    )
    layer.build([None, None, 6])
    rng = np.random.default_rng(8)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return layer


def slow(layer, x):
    """The scores of all domains for one item."""
    specific, shared = [x] * D, x
    for level in layer.levels:
        of_domains = [
            [network(level.domain_experts, p * M + i, specific[p], True) for i in range(M)]
            for p in range(D)
        ]
        of_shared = [network(level.shared_experts, i, shared, True) for i in range(S)]
        extracted = []
        for p in range(D):
            weights = softmax(specific[p] @ level.gate_kernel.numpy()[p])
            used = [*of_domains[p], *of_shared]
            extracted.append(sum(w * f for w, f in zip(weights, used, strict=True)))
        if not level.last:
            weights = softmax(shared @ level.shared_gate_kernel.numpy())
            used = [*(f for part in of_domains for f in part), *of_shared]
            shared = sum(w * f for w, f in zip(weights, used, strict=True))
        specific = extracted
    return [network(layer.towers, p, specific[p], False)[0] for p in range(D)]


@pytest.mark.parametrize("num_levels", [1, 2, 3])
def test_equals_the_slow_reference(num_levels):
    layer, mask = made(num_levels), tf.constant(MASK)
    expected = np.zeros([*MASK.shape, D])
    for b, i in np.argwhere(MASK):
        expected[b, i] = slow(layer, X[b, i])
    of_domains = np.stack([scores[:, p] for scores, p in zip(expected, DOMAINS, strict=True)])
    for training in (True, False):
        got = layer(X, DOMAINS, mask=mask, training=training)["logits"]
        assert got.dtype == tf.float32
        np.testing.assert_allclose(got, of_domains, **CLOSE)
    alone = layer(X[:1], DOMAINS[:1], mask=mask[:1])["logits"]
    np.testing.assert_allclose(alone, of_domains[:1], **CLOSE)


def test_one_level_by_hand():
    """Experts 2 x and x of domain 1 and a shared -x on x = 3; its gate weighs e^x, 1, 1 to 3."""
    layer = ProgressiveExtraction(2, [1], [], 1, num_domain_experts=2, num_shared_experts=1)
    layer.build([None, None, 1])
    for weight in layer.trainable_weights:
        weight.assign(tf.zeros_like(weight))
    (level,) = layer.levels
    level.domain_experts.kernels[0].assign(np.reshape([0, 0, 2, 1], [4, 1, 1]))
    level.shared_experts.kernels[0].assign([[[-1.0]]])
    level.shared_experts.biases[0].assign([[4.0]])  # -3 + 4 = 1, above 0
    level.gate_kernel.assign(np.reshape([0, 0, 0, np.log(2) / 3, 0, 0], [2, 1, 3]))
    layer.towers.kernels[0].assign([[[0.0]], [[10.0]]])
    # (2 x 6 + 3 + 1) / 4 = 4, times 10
    got = layer(tf.constant([[[3.0]]]), tf.constant([1]))["logits"]
    np.testing.assert_allclose(got, [[40.0]], rtol=1e-5)


def test_one_level_neither_computes_nor_trains_other_domains():
    layer = made(1)
    (level,) = layer.levels
    for stack in (*level.domain_experts.kernels, *layer.towers.kernels):
        values = stack.numpy()
        values[: len(values) // D * 2] = np.nan  # domains 0 and 1
        stack.assign(values)
    with tf.GradientTape() as tape:
        logits = layer(X[:1], DOMAINS[:1], training=True)["logits"]
        total = tf.reduce_sum(logits)
    assert np.isfinite(logits).all()
    gate, kernel = tape.gradient(total, [level.gate_kernel, level.domain_experts.kernels[0]])
    for gradient in (gate.numpy(), kernel.numpy()):
        reached = np.abs(gradient.reshape(D, -1)).max(axis=1) > 0
        assert reached.tolist() == [False, False, True]


def test_below_the_last_level_all_experts_learn_from_every_list():
    layer = made(2)
    first, last = layer.levels
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(X[:1], DOMAINS[:1], training=True)["logits"])
    kernels = [first.domain_experts.kernels[0], last.domain_experts.kernels[0]]
    below, above = (g.numpy().reshape(D, -1) for g in tape.gradient(total, kernels))
    assert (np.abs(below).max(axis=1) > 0).all()
    assert (np.abs(above).max(axis=1) > 0).tolist() == [False, False, True]


def test_layers_are_dealt_to_levels_in_order():
    assert layers_of_levels([8, 7, 6, 5, 4], 3) == [(8, 7), (6, 5), (4,)]
    assert layers_of_levels([8, 7], 2) == [(8,), (7,)]
    assert layers_of_levels([8, 7], 1) == [(8, 7)]


def test_parameters_by_hand():
    # Level 1 of 2: D m + s = 8 experts 6 -> 7 -> 5 of 7 x 7 + 8 x 5 = 89, gates 3 x 6 x 4 + 6 x 8.
    # Level 2: 8 experts 5 -> 4 of 24, gates 3 x 5 x 4. Towers: 3 of 4 -> 3 -> 1, 15 + 4.
    count = sum(int(np.prod(weight.shape)) for weight in made(2).trainable_weights)
    assert count == (8 * 89 + 72 + 48) + (8 * 24 + 60) + 3 * 19


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_levels": 4}, "num_levels must be from 1 to the number of hidden layers"),
        ({"num_levels": 0}, "num_levels must be from 1 to the number of hidden layers"),
        ({"num_levels": 1, "num_domains": 0}, "num_experts must be >= 1"),
        ({"num_levels": 1, "num_domain_experts": 0}, "num_experts must be >= 1"),
        ({"num_levels": 1, "num_shared_experts": 0}, "num_experts must be >= 1"),
    ],
)
def test_what_is_invalid_is_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        made(**settings)
