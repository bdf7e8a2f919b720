"""NoisyTopKGate (eqs. 4 to 6) and the balancing term, by numbers worked out by hand."""

import math

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.gating import (
    GateOutput,
    NoisyTopKGate,
    expert_importance,
    squared_variation,
)


def gate_with(kernel, top_k, **kwargs):
    gate = NoisyTopKGate(num_experts=len(kernel[0]), top_k=top_k, **kwargs)
    gate.build([None, len(kernel)])
    gate.kernel.assign(np.asarray(kernel) / gate.learning_rate_multiplier)
    return gate


def test_logits_are_the_product_with_the_kernel_without_bias():
    # [1, 2] x [[1, 0, 2], [0, 1, -1]] = [1, 2, 0]
    gate = gate_with([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], top_k=1)
    np.testing.assert_allclose(gate(tf.constant([[1.0, 2.0]])).logits, [[1.0, 2.0, 0.0]])
    np.testing.assert_allclose(gate(tf.zeros([1, 2])).logits, [[0.0, 0.0, 0.0]])


def test_weights_are_the_softmax_over_the_top_k_logits():
    # N = 3, K = 2, G = [1, 2, 0]: experts 1 and 0, weights e^2 / (e^2 + e) and e / (e^2 + e)
    gate = gate_with([[1.0, 2.0, 0.0]], top_k=2)
    out = gate(tf.constant([[1.0]]))
    np.testing.assert_array_equal(out.indices, [[1, 0]])
    first = math.e**2 / (math.e**2 + math.e)
    np.testing.assert_allclose(out.weights, [[first, 1 - first]], rtol=1e-6)


def test_a_single_expert_has_weight_one():
    out = gate_with([[1.0, 2.0, 0.0]], top_k=1)(tf.constant([[1.0]]))
    np.testing.assert_array_equal(out.indices, [[1]])
    np.testing.assert_allclose(out.weights, [[1.0]])


def test_no_noise_outside_training():
    gate = gate_with([[1.0, 2.0, 0.0]], top_k=2)
    first, second = gate(tf.ones([4, 1])), gate(tf.ones([4, 1]))
    np.testing.assert_allclose(first.weights[0], tf.nn.softmax([2.0, 1.0]), rtol=1e-6)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_noise_in_training_has_the_softplus_deviation():
    tf.keras.utils.set_random_seed(7)
    gate = gate_with([[0.0, 0.0, 0.0]], top_k=3)
    gate.noise_kernel.assign([[0.0, 1.0, -3.0]])
    out = gate(tf.ones([20_000, 1]), training=True)
    deviations = np.array([math.log(2), math.log1p(math.e), math.log1p(math.exp(-3))])
    # Weights over all experts show the differences of their noise.
    logs = np.log(np.take_along_axis(out.weights.numpy(), np.argsort(out.indices, axis=1), axis=1))
    actual = np.std(logs - np.roll(logs, 1, axis=1), axis=0)
    expected = np.sqrt(deviations**2 + np.roll(deviations, 1) ** 2)
    # The deviation of 20,000 draws lies within 2 % of the true one (4 standard errors).
    np.testing.assert_allclose(actual, expected, rtol=0.02)
    np.testing.assert_allclose(out.logits, np.zeros([20_000, 3]))


def test_a_gate_without_noise_has_no_noise_kernel():
    gate = gate_with([[1.0, 2.0]], top_k=1, noisy=False)
    assert len(gate.trainable_variables) == 1
    out = gate(tf.ones([5, 1]), training=True)
    np.testing.assert_array_equal(out.indices, np.ones([5, 1]))


def test_item_level_gates_equal_list_level_gates_item_by_item():
    gate = gate_with(np.random.default_rng(0).normal(size=[3, 5]).tolist(), top_k=2)
    x = tf.random.normal([2, 4, 3], seed=1)
    items = gate(x)
    lists = gate(tf.reshape(x, [8, 3]))
    np.testing.assert_allclose(items.weights, np.reshape(lists.weights, [2, 4, 2]), rtol=1e-6)
    np.testing.assert_array_equal(items.indices, np.reshape(lists.indices, [2, 4, 2]))


def test_learning_rate_multiplier_moves_the_gate_that_many_times_faster_under_adam():
    moves = []
    for multiplier in (1.0, 10.0):
        gate = gate_with([[0.2, -0.1]], top_k=2, learning_rate_multiplier=multiplier)
        before = gate(tf.ones([1, 1])).logits.numpy()
        with tf.GradientTape() as tape:
            loss = gate(tf.ones([1, 1])).weights[0, 0]
        optimizer = tf.keras.optimizers.Adam(1e-3, epsilon=1e-12)
        variables = [gate.kernel]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        moves.append(np.abs(gate(tf.ones([1, 1])).logits.numpy() - before))
    np.testing.assert_allclose(moves[1], 10 * moves[0], rtol=1e-2)


def test_multiplier_leaves_the_initial_logits_alone():
    x = tf.random.normal([3, 4], seed=2)
    plain = NoisyTopKGate(5, 2, seed=3)(x).logits
    fast = NoisyTopKGate(5, 2, seed=3, learning_rate_multiplier=20.0)(x).logits
    np.testing.assert_allclose(plain, fast, rtol=1e-5)


@pytest.mark.parametrize("top_k", [0, 4])
def test_top_k_outside_1_to_n_is_rejected(top_k):
    with pytest.raises(ValueError, match="top_k must be in 1"):
        NoisyTopKGate(num_experts=3, top_k=top_k)


def output(logits, indices, weights):
    return GateOutput(*(tf.constant(v) for v in (logits, indices, weights)))


def test_importance_adds_up_weights_times_items():
    # List 1 with 3 items: experts 2 (0.75) and 0 (0.25); list 2 with 1 item: 0 (0.5) and 1 (0.5)
    zeros = np.zeros([2, 3], np.float32)
    gate = output(zeros, [[2, 0], [0, 1]], [[0.75, 0.25], [0.5, 0.5]])
    importance = expert_importance(gate, tf.constant([3.0, 1.0]), 3)
    np.testing.assert_allclose(importance, [3 * 0.25 + 0.5, 0.5, 3 * 0.75])


def test_squared_variation_of_equal_loads_is_zero_and_of_one_busy_expert_is_n_minus_1():
    assert float(squared_variation(tf.constant([2.0, 2.0, 2.0]))) == 0.0
    np.testing.assert_allclose(squared_variation(tf.constant([3.0, 0.0, 0.0])), 2.0, rtol=1e-6)
    assert float(squared_variation(tf.zeros([3]))) == 0.0
