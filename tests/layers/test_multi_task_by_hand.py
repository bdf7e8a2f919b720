"""The MMoE family: numbers worked out by hand."""

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers.multi_task import MMoE, OMoE, SharedBottom, SingleTask
from tfr_moe.layers.task_sharing import (
    CrossStitch,
    L2Constrained,
    TensorFactorization,
)

ONE_UNIT = {"hidden_dims": [1], "tower_hidden_dims": []}


def assign(layer, x, **weights):
    """Builds a layer on x and sets each named weight; the others become 0."""
    layer(tf.constant(x))
    left = dict(weights)
    for weight in layer.trainable_weights:
        path = "/".join(weight.name.split(":")[0].split("/")[-2:])
        result = [key for key in left if path.endswith(key)]
        value = left.pop(result[0]) if result else np.zeros(weight.shape)
        weight.assign(np.reshape(np.asarray(value, np.float32), weight.shape))
    assert not left, f"no such weights: {list(left)}"
    return layer


def test_single_task_by_hand():
    x = [[1.0, 2.0]]
    # Task 0: relu(1 + 2) x 2 + 1 = 7. Task 1: relu(1 - 2 + 4) x -1 = -3.
    layer = assign(
        SingleTask(2, **ONE_UNIT),
        x,
        **{
            "networks/kernel_0": [1, 1, 1, -1],
            "networks/bias_0": [0, 4],
            "networks/kernel_1": [2, -1],
            "networks/bias_1": [1, 0],
        },
    )
    np.testing.assert_allclose(layer(tf.constant(x)), [[7.0, -3.0]])


def test_shared_bottom_by_hand():
    x = [[1.0, 2.0]]
    # f = relu(1 + 2 x 2) = 5; y = 2 x 5 + 1 = 11 and -1 x 5 = -5.
    layer = assign(
        SharedBottom(2, **ONE_UNIT),
        x,
        **{"bottom/kernel_0": [1, 2], "towers/kernel_0": [2, -1], "towers/bias_0": [1, 0]},
    )
    np.testing.assert_allclose(layer(tf.constant(x)), [[11.0, -5.0]])


def test_l2_constrained_by_hand():
    x = [[1.0]]
    # theta_0 = (1, 0, 2, 0), theta_1 = (3, 0, 2, 1): squared distance 2^2 + 1^2 = 5, a tenth of it
    # 0.5.
    layer = assign(
        L2Constrained(2, l2_weight=0.1, **ONE_UNIT),
        x,
        **{"networks/kernel_0": [1, 3], "networks/kernel_1": [2, 2], "networks/bias_1": [0, 1]},
    )
    # y = 1 x 2 and 3 x 2 + 1.
    np.testing.assert_allclose(layer(tf.constant(x), training=True), [[2.0, 7.0]])
    np.testing.assert_allclose(layer.losses, [0.5], rtol=1e-6)
    layer(tf.constant(x))
    assert layer.losses == []


def test_cross_stitch_by_hand():
    x = [[1.0]]
    # 0.9 x 1 + 0.1 x 3 = 1.2 and 0.2 x 1 + 0.8 x 3 = 2.6.
    layer = assign(
        CrossStitch(2, **ONE_UNIT),
        x,
        **{
            "bottom_0/kernel_0": [1, 3],
            "stitch_0": [0.9, 0.1, 0.2, 0.8],
            "towers/kernel_0": [1, 1],
        },
    )
    np.testing.assert_allclose(layer(tf.constant(x)), [[1.2, 2.6]], rtol=1e-6)


def test_tensor_factorization_by_hand():
    x = [[1.0, 1.0]]
    # W_0 = 2 x (1, 3) x 1, so f_0 = 2 + 6 = 8; W_1 = -W_0, so f_1 = relu(-8 + 9) = 1.
    layer = assign(
        TensorFactorization(2, tensor_ranks=(1, 1, 1), name="factorization", **ONE_UNIT),
        x,
        core_0=2,
        factor1_0=[1, 3],
        factor2_0=1,
        factor3_0=[1, -1],
        **{"factorization/bias_0": [0, 9], "towers/kernel_0": [1, 1]},
    )
    np.testing.assert_allclose(layer(tf.constant(x)), [[8.0, 1.0]])


def test_omoe_by_hand():
    x = [[1.0]]
    # Experts 2 and 4, gate (0.75, 0.25): f = 2.5 for both towers.
    layer = assign(
        OMoE(2, num_experts=2, **ONE_UNIT),
        x,
        gate_kernel=[np.log(3), 0],
        **{"experts/kernel_0": [2, 4], "towers/kernel_0": [1, 10]},
    )
    np.testing.assert_allclose(layer(tf.constant(x))["logits"], [[2.5, 25.0]], rtol=1e-6)


def test_mmoe_by_hand():
    x = [[1.0]]
    # The same experts, gates (0.75, 0.25) and (0.5, 0.5): f = 2.5 and 3.
    layer = assign(
        MMoE(2, num_experts=2, **ONE_UNIT),
        x,
        gate_kernel=[np.log(3), 0, 1, 1],
        **{"experts/kernel_0": [2, 4], "towers/kernel_0": [1, 10]},
    )
    np.testing.assert_allclose(layer(tf.constant(x))["logits"], [[2.5, 30.0]], rtol=1e-6)
