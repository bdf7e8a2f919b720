"""The MMoE family: slow references, and relations between the models."""

import itertools

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.multi_task import MMoE, OMoE, SharedBottom, SingleTask, logits_of
from tfr_moe.layers.task_sharing import (
    MULTITASK,
    CrossStitch,
    TensorFactorization,
)

# float32 sums in another order
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
RNG = np.random.default_rng(3)
X = RNG.normal(size=[4, 5, 6]).astype(np.float32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
SMALL = {"hidden_dims": [7, 4], "tower_hidden_dims": [3]}

every_model = pytest.mark.parametrize("name", MULTITASK)


def made(name, num_tasks=3, width=6, **settings):
    """A layer with weights that are nowhere 0, biases among them."""
    layer = MULTITASK[name](num_tasks, **{**SMALL, **settings})
    layer(tf.zeros([1, width]))
    rng = np.random.default_rng(8)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.7))
    return layer


# --------------------------------------------------------------------------------- slow references


def relu(x):
    return np.maximum(x, 0)


def network(layer, index, x, hidden_output):
    """One network of a stack, on one item."""
    depths = len(layer.kernels)
    for depth in range(depths):
        x = x @ layer.kernels[depth].numpy()[index] + layer.biases[depth].numpy()[index]
        x = relu(x) if hidden_output or depth < depths - 1 else x
    return x


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def slow_bottom(layer, x, task):
    """f_k of one item."""
    if isinstance(layer, SharedBottom):
        return network(layer.bottom, 0, x, True)
    if isinstance(layer, MMoE):
        gate = 0 if isinstance(layer, OMoE) else task
        weights = softmax(x @ layer.gate_kernel.numpy()[gate])
        outputs = [network(layer.experts, i, x, True) for i in range(layer.num_experts)]
        return sum(w * f for w, f in zip(weights, outputs, strict=True))
    if isinstance(layer, CrossStitch):
        hidden = [x] * layer.num_tasks
        for bottom, stitch in zip(layer.bottoms, layer.stitches, strict=True):
            hidden = [network(bottom, k, h, True) for k, h in enumerate(hidden)]
            hidden = [
                sum(stitch.numpy()[k, j] * h for j, h in enumerate(hidden))
                for k in range(layer.num_tasks)
            ]
        return hidden[task]
    assert isinstance(layer, TensorFactorization)
    for factors in layer.factors:
        core, u1, u2, u3, bias = (value.numpy() for value in factors.values())
        kernel = np.zeros([len(u1), len(u2)])
        for p, q, r in itertools.product(*map(range, core.shape)):
            kernel += core[p, q, r] * np.outer(u1[:, p], u2[:, q]) * u3[task, r]
        x = relu(x @ kernel + bias[task])
    return x


def slow(layer, x):
    """All tasks of one item."""
    if isinstance(layer, SingleTask):
        return [network(layer.networks, k, x, False)[0] for k in range(layer.num_tasks)]
    return [
        network(layer.towers, k, slow_bottom(layer, x, k), False)[0] for k in range(layer.num_tasks)
    ]


@every_model
def test_equals_the_slow_reference_on_lists_and_on_items(name):
    layer = made(name)
    expected = np.array([[slow(layer, item) if m else [0] * 3 for item, m in zip(*row, strict=True)]
                         for row in zip(X, MASK, strict=True)])  # fmt: skip
    for x, mask, wanted in (
        (X, MASK, expected),
        (X[MASK], None, expected[MASK]),
        (X[:, 0], MASK[:, 0], expected[:, 0]),
    ):
        got = logits_of(layer(x, mask=None if mask is None else tf.constant(mask)))
        np.testing.assert_allclose(got, wanted, **CLOSE)


def test_l2_distance_equals_the_sum_over_pairs():
    layer = made("l2_constrained")
    parameters = [np.concatenate([w.numpy()[k].ravel() for w in layer.trainable_weights])
                  for k in range(3)]  # fmt: skip
    pairs = sum(np.sum((a - b) ** 2) for a, b in itertools.combinations(parameters, 2))
    np.testing.assert_allclose(layer.distance(), pairs, rtol=1e-5)


# ------------------------------------------------------------------------------ between the models


def test_mmoe_of_one_task_equals_omoe_and_a_plain_softmax_mixture():
    first, second = made("mmoe", 1), made("omoe", 1)
    second.set_weights(first.get_weights())
    np.testing.assert_array_equal(first(X)["logits"], second(X)["logits"])

    gate = tf.keras.layers.Dense(first.num_experts, "softmax", use_bias=False)
    gate(X)
    gate.set_weights([first.gate_kernel.numpy()[0]])
    plain = np.einsum("bln,blnh->blh", gate(X), first.experts(X))
    tower = tf.keras.Sequential([tf.keras.layers.Dense(3, "relu"), tf.keras.layers.Dense(1)])
    tower(plain)
    kernels, biases = first.towers.kernels, first.towers.biases
    tower.set_weights([w.numpy()[0] for pair in zip(kernels, biases, strict=True) for w in pair])
    np.testing.assert_allclose(first(X)["logits"], tower(plain), **CLOSE)


def test_mmoe_with_equal_gates_equals_omoe():
    several, one = made("mmoe"), made("omoe")
    weights = {w.name.split("/", 1)[1]: w.numpy() for w in several.trainable_weights}
    equal = np.repeat(one.gate_kernel.numpy(), 3, axis=0)
    for weight in one.trainable_weights:
        path = weight.name.split("/", 1)[1]
        if "gate_kernel" not in path:
            weight.assign(weights[path])
    several.gate_kernel.assign(equal)
    np.testing.assert_allclose(several(X)["logits"], one(X)["logits"], **CLOSE)


def test_a_mixture_of_one_expert_equals_a_shared_bottom():
    mixture, bottom = made("mmoe", num_experts=1), made("shared_bottom")
    copies = [(bottom.bottom, mixture.experts), (bottom.towers, mixture.towers)]
    for target, source in copies:
        target.set_weights(source.get_weights())
    np.testing.assert_allclose(mixture(X)["logits"], bottom(X), **CLOSE)


def test_without_sharing_the_tied_models_equal_single_tasks():
    single, tied = made("single_task"), made("l2_constrained", l2_weight=0.0)
    tied.set_weights(single.get_weights())
    np.testing.assert_array_equal(tied(X, training=True), single(X))
    assert tied.losses == []

    stitched = made("cross_stitch", stitch_self_weight=1.0)
    for matrix in stitched.stitches:
        matrix.assign(np.eye(3))
    parts = [*stitched.bottoms, stitched.towers]
    for depth, (kernel, bias) in enumerate(
        zip(single.networks.kernels, single.networks.biases, strict=True)
    ):
        stack = [(k, b) for part in parts for k, b in zip(part.kernels, part.biases, strict=True)]
        stack[depth][0].assign(kernel)
        stack[depth][1].assign(bias)
    np.testing.assert_allclose(stitched(X), single(X), **CLOSE)


def test_stitches_start_as_a_convex_mixture():
    layer = MULTITASK["cross_stitch"](3, stitch_self_weight=0.8, **SMALL)
    layer(X)
    np.testing.assert_allclose(
        layer.stitches[0], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], rtol=1e-6
    )
    alone = MULTITASK["cross_stitch"](1, stitch_self_weight=0.8, **SMALL)
    alone(X)
    np.testing.assert_array_equal(alone.stitches[0], [[1.0]])


def test_full_ranks_reach_any_weights():
    """With r = the sides, identity factors and the core as the weights, nothing is lost."""
    layer = TensorFactorization(2, hidden_dims=[4], tower_hidden_dims=[], tensor_ranks=(6, 4, 2))
    layer(X)
    factors = layer.factors[0]
    wanted = RNG.normal(size=[6, 4, 2]).astype(np.float32)
    factors["core"].assign(wanted)
    for i, side in enumerate((6, 4, 2), start=1):
        factors[f"factor{i}"].assign(np.eye(side))
    np.testing.assert_allclose(layer.kernel(0), np.transpose(wanted, [2, 0, 1]), rtol=1e-6)


def test_ranks_are_cut_to_the_sides():
    layer = TensorFactorization(2, hidden_dims=[4], tensor_ranks=(99, 99, 99))
    layer(X)
    assert layer.factors[0]["core"].shape == (6, 4, 2)


def test_factorized_weights_start_with_glorots_variance():
    layer = TensorFactorization(8, hidden_dims=[64], tensor_ranks=(16, 16, 8), seed=1)
    layer(tf.zeros([1, 64]))
    # 32,768 dependent weights: the standard error of their variance is near 10 %
    assert np.var(layer.kernel(0)) == pytest.approx(2 / (64 + 64), rel=0.3)


# --------------------------------------------------------------------------------------- gradients


@every_model
def test_what_a_task_trains(name):
    """The loss of task 0 moves no other task's tower, and what is below as the model says."""
    layer = made(name)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(logits_of(layer(X, mask=tf.constant(MASK)))[..., 0])
    gradients = {
        w.name.split("/", 1)[1]: tf.convert_to_tensor(g).numpy()
        for w, g in zip(
            layer.trainable_weights, tape.gradient(loss, layer.trainable_weights), strict=True
        )
    }

    def moved(path):
        gradient = gradients[path]
        return [bool(np.abs(gradient[k]).max() > 0) for k in range(len(gradient))]

    towers = "networks" if name in ("single_task", "l2_constrained") else "task_towers"
    assert moved(f"{towers}/kernel_0:0") == [True, False, False]
    expected = {
        "cross_stitch": ("bottom_0/kernel_0:0", [True] * 3),
        "tensor_factorization": ("factor3_0:0", [True, False, False]),
        "omoe": ("gate_kernel:0", [True]),
        "mmoe": ("gate_kernel:0", [True, False, False]),
    }
    if name in expected:
        path, where = expected[name]
        assert moved(path) == where


@every_model
def test_padding_reaches_no_gradient(name):
    layer = made(name)
    spoiled = np.where(MASK[..., None], X, np.nan).astype(np.float32)

    def gradients(x):
        with tf.GradientTape() as tape:
            logits = logits_of(layer(x, mask=tf.constant(MASK), training=True))
            total = tf.add_n([tf.reduce_sum(tf.sin(logits)), *layer.losses])
        return tape.gradient(total, layer.trainable_weights)

    for got, expected in zip(gradients(spoiled), gradients(X), strict=True):
        np.testing.assert_allclose(got, expected, **CLOSE)


@every_model
def test_each_model_learns_two_tasks(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[512, 4]).astype(np.float32)
    y = np.stack([x[:, 0] * 2 - x[:, 1], np.sin(2 * x[:, 2])], axis=1)
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input([4])
    layer = MULTITASK[name](2, hidden_dims=[16], tower_hidden_dims=[8])
    model = tf.keras.Model(inputs, logits_of(layer(inputs)))
    model.compile(tf.keras.optimizers.Adam(0.02), "mse")
    model.fit(x, y, epochs=15, batch_size=64, verbose=0)
    # Without a model the error is the variance of the labels.
    error = np.square(model(x).numpy() - y).mean()
    assert error < 0.25 * y.var(axis=0).mean()


def test_the_papers_own_sizes():
    """Section 3.3: 100 x 16 x 8 + 16 x 8 x 2 = 13056 weights, as has a shared bottom of 113."""
    layer = MULTITASK["mmoe"](2, hidden_dims=[16], tower_hidden_dims=[8], num_experts=8)
    layer(tf.zeros([1, 100]))
    sizes = [int(tf.size(w)) for w in (layer.experts.kernels[0], layer.towers.kernels[0])]
    assert sum(sizes) == 13056
    assert round(13056 / (100 + 8 * 2)) == 113


def test_invalid_settings_are_rejected():
    for name, settings, message in [
        ("mmoe", {"num_tasks": 0}, "num_tasks must be >= 1"),
        ("mmoe", {"num_tasks": 1, "hidden_dims": ()}, "hidden_dims must have at least one width"),
        ("mmoe", {"num_tasks": 1, "task_names": ["a", "b"]}, "task_names must be 1 names"),
        ("mmoe", {"num_tasks": 1, "num_experts": 0}, "num_experts must be >= 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            MULTITASK[name](**settings)
