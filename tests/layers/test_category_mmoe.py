"""CategoryMMoE: a slow reference, HSC of each task, and that experts are computed once."""

import numpy as np
import pytest

from tests.layers.test_multi_task import network, softmax
from tfr_moe._compat import tf
from tfr_moe.layers.category_mmoe import CategoryMMoE

N, K, TASKS = 5, 2, 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=[4, 5, 6]).astype(np.float32)
SC, TC = RNG.normal(size=[2, 4, 3]).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)


def made(**settings):
    layer = CategoryMMoE(
        TASKS,
        [7, 4],
        [3],
        **{"num_experts": N, "top_k": K, "noisy_gate": False, "hsc_weight": 0.5, **settings},
    )
    layer(X, SC, TC, training=True)
    rng = np.random.default_rng(8)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


def top(logits):
    return np.argsort(-logits, kind="stable")[:K]


def slow(layer):
    logits, hsc = np.zeros([4, 5, TASKS]), np.zeros([4, TASKS])
    for b in range(4):
        for k in range(TASKS):
            of_sub = SC[b] @ layer.gates[k].kernel.numpy()
            parent = TC[b] @ layer.constraint_gates[k].kernel.numpy()
            chosen = top(of_sub)
            weights = softmax(of_sub[chosen])
            hsc[b, k] = np.sum((softmax(of_sub) - softmax(parent))[chosen] ** 2)
            for i in np.flatnonzero(MASK[b]):
                outputs = [network(layer.experts, e, X[b, i], True) for e in chosen]
                mixed = sum(w * f for w, f in zip(weights, outputs, strict=True))
                logits[b, i, k] = network(layer.towers, k, mixed, False)[0]
    return logits, hsc


@pytest.mark.parametrize("training", [False, True])
def test_equals_the_slow_reference(training):
    layer = made()
    for metric in layer.metrics:
        metric.reset_state()
    got = layer(X, SC, TC, mask=tf.constant(MASK), training=training)["logits"]
    logits, hsc = slow(layer)
    # float32 sums in another order
    np.testing.assert_allclose(got, logits, rtol=1e-4, atol=1e-4)
    items = MASK.sum(axis=1)
    means = items @ hsc / items.sum()
    if training:
        np.testing.assert_allclose(layer.losses, 0.5 * means, rtol=1e-4)
        terms = {m.name: float(m.result()) for m in layer.metrics if m.name.startswith("hsc_")}
        assert terms == {
            f"hsc_task_{k}": pytest.approx(float(means[k]), rel=1e-4) for k in range(TASKS)
        }
    else:
        assert layer.losses == []


def test_an_expert_that_several_tasks_choose_is_computed_once(monkeypatch):
    layer = made(hsc_weight=None)
    for gate in layer.gates:
        gate.kernel.assign(layer.gates[0].kernel)
    counted = []
    matmul = tf.matmul

    def counting(a, b, *args, **kwargs):
        counted.append(int(a.shape[0]) * int(b.shape[1]) if len(b.shape) == 2 else 0)
        return matmul(a, b, *args, **kwargs)

    monkeypatch.setattr(tf, "matmul", counting)
    layer(X, SC, TC, mask=tf.constant(MASK))
    gates = 4 * N * TASKS
    assert sum(counted) - gates == MASK.sum() * K * (7 + 4)


def test_tasks_that_choose_apart_are_all_served():
    layer = made(hsc_weight=None, num_experts=2, top_k=1)
    for k, gate in enumerate(layer.gates):
        gate.kernel.assign(np.outer(np.sign(SC[0]), [1, -1]) * (-1) ** k)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(X[:1], SC[:1])["logits"][..., 0])
    kernel = tf.convert_to_tensor(tape.gradient(total, layer.experts.kernels[0])).numpy()
    assert np.abs(kernel[0]).max() > 0
    assert (kernel[1] == 0).all()
    logits = layer(X[:1], SC[:1])["logits"].numpy()[0, 0]
    for k in range(TASKS):
        hidden = network(layer.experts, k % 2, X[0, 0], True)
        assert logits[k] == pytest.approx(network(layer.towers, k, hidden, False)[0], rel=1e-4)


def test_hsc_reaches_the_gates_of_its_task_alone_and_never_the_experts():
    layer = made()
    with tf.GradientTape() as tape:
        layer(X, SC, TC, training=True)
        loss = layer.losses[1]
    gradients = tape.gradient(loss, layer.trainable_weights)
    reached = {
        weight.name.split("/")[-2]
        for weight, gradient in zip(layer.trainable_weights, gradients, strict=True)
        if gradient is not None and np.abs(gradient).max() > 0
    }
    assert reached == {"gate_task_1", "constraint_gate_task_1"}


def test_noise_is_drawn_in_training_only():
    layer = made(noisy_gate=True)
    first, second = (layer(X, SC, TC, training=True)["logits"].numpy() for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    first, second = (layer(X, SC, TC)["logits"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
