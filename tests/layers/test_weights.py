"""Initializers and regularizers reach every weight that they are named for."""

import pytest

from tfr_moe import layers
from tfr_moe._compat import tf

ITEMS, LISTS, DOMAINS = tf.ones([2, 3, 5]), tf.ones([2, 4]), tf.constant([1, 0])
KERNELS = {"kernel_initializer": "ones", "bias_initializer": "ones", "kernel_regularizer": "l2"}
ALL = {**KERNELS, "bias_regularizer": "l2"}
GATES = {"gate_initializer": "ones", "gate_regularizer": "l2"}
# The layer, its inputs, the number of its weights, and what is in the names of those with a start
# of their own.
CASES = {
    "single_task": (lambda: layers.SingleTask(2, [4], **ALL), [ITEMS], 6, ()),
    "shared_bottom": (lambda: layers.SharedBottom(2, [4], **ALL), [ITEMS], 6, ()),
    "l2_constrained": (
        lambda: layers.L2Constrained(2, [4], l2_weight=0.0, **ALL),
        *([ITEMS], 6, ()),
    ),
    "cross_stitch": (lambda: layers.CrossStitch(2, [4], **ALL), [ITEMS], 7, ("/stitch",)),
    "tensor_factorization": (
        lambda: layers.TensorFactorization(2, [4], tensor_ranks=(1, 1, 1), **ALL),
        *([ITEMS], 9, ("/core", "/factor")),
    ),
    "omoe": (lambda: layers.OMoE(2, [4], num_experts=3, **ALL, **GATES), [ITEMS], 7, ()),
    "mmoe": (lambda: layers.MMoE(2, [4], num_experts=3, **ALL, **GATES), [ITEMS], 7, ()),
    "category_mmoe": (
        lambda: layers.CategoryMMoE(2, [4], num_experts=3, top_k=1, **ALL, **GATES),
        *([ITEMS, LISTS, LISTS], 12, ("noise",)),
    ),
    "ple": (
        lambda: layers.ProgressiveExtraction(2, [4, 4], [4], **ALL, **GATES),
        *([ITEMS, DOMAINS], 15, ()),
    ),
    "dlcm": (lambda: layers.DeepListwiseContext([4], 4, **KERNELS), [ITEMS], 9, ("recurrent",)),
}


@pytest.mark.parametrize("name", CASES)
def test_initializers_and_regularizers_reach_all_weights(name):
    make, inputs, count, separate = CASES[name]
    layer = make()
    layer(*inputs)
    assert len(layer.weights) == count
    named = [w for w in layer.weights if not any(part in w.name for part in separate)]
    for weight in named:
        assert (weight.numpy() == 1).all(), weight.name
    if name == "dlcm":  # has no regularizer of biases
        named = [weight for weight in named if "bias" not in weight.name]
    # "l2" is 0.01 times the sum of squares, here the number of ones.
    expected = sum(0.01 * int(tf.size(weight)) for weight in named)
    assert float(tf.add_n(layer.losses)) == pytest.approx(expected, rel=1e-5)
