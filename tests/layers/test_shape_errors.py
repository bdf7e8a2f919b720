"""Wrong shapes and types are rejected in one sentence with what was expected and received."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers import (
    MULTITASK,
    CategoryMixtureOfExperts,
    CategoryMMoE,
    DeepListwiseContext,
    EncoderBlock,
    ExpertTowers,
    ItemTower,
    NoisyTopKGate,
    PartitionedNormalization,
    ProgressiveExtraction,
    SelfAttentionEncoder,
    StarTopology,
)

ITEMS, LISTS, MASK = tf.ones([2, 3, 5]), tf.ones([2, 4]), tf.ones([2, 3], tf.bool)
DOMAINS = tf.constant([0, 1])


def mixture(**settings):
    settings = {"num_experts": 4, "top_k": 2, "expert_hidden_dims": [4], **settings}
    return CategoryMixtureOfExperts(**settings)


SETTINGS = {
    "top_k must be in 1 .. num_experts = 4. Received: top_k=5": {"top_k": 5},
    "expert_hidden_dims must be a sequence of positive integers, such as [64, 32]. "
    "Received: expert_hidden_dims=16": {"expert_hidden_dims": 16},
    "Received: expert_hidden_dims=[8, 0]": {"expert_hidden_dims": [8, 0]},
    "Received: expert_hidden_dims=[2.5]": {"expert_hidden_dims": [2.5]},
    "Received: expert_hidden_dims='64'": {"expert_hidden_dims": "64"},
}


@pytest.mark.parametrize("message", SETTINGS)
def test_settings(message):
    with pytest.raises(ValueError) as caught:
        mixture(**SETTINGS[message])
    assert message in str(caught.value)


CALLS = {
    "inputs must have shape [batch, list, features]. Received: inputs of shape (2, 5)": (
        lambda: mixture()(tf.ones([2, 5]), LISTS, LISTS)
    ),
    "inputs must be float vectors. Received: inputs of type int32": (
        lambda: mixture()(tf.ones([2, 3, 5], tf.int32), LISTS, LISTS)
    ),
    "mask must be bool of shape (2, 3), the shape of inputs without its last axis. "
    "Received: mask of type bool and shape (2, 4)": (
        lambda: mixture()(ITEMS, LISTS, LISTS, mask=tf.ones([2, 4], tf.bool))
    ),
    "Received: mask of type float32 and shape (2, 3)": (
        lambda: mixture()(ITEMS, LISTS, LISTS, mask=tf.ones([2, 3]))
    ),
    "gate_inputs must be float vectors of shape (2, None) or (2, 3, None). "
    "Received: gate_inputs of type float32 and shape (3, 4)": (
        lambda: mixture()(ITEMS, tf.ones([3, 4]), LISTS)
    ),
    "Received: gate_inputs of type float32 and shape (2, 4, 4)": (
        lambda: mixture()(ITEMS, tf.ones([2, 4, 4]), LISTS)
    ),
    "gate_inputs must be float vectors of shape (2, None) or (2, 3, None). "
    "Received: gate_inputs of type int32 and shape (2,)": (
        lambda: mixture()(ITEMS, DOMAINS, LISTS)
    ),
    "gate_inputs must be float vectors of shape (2, None) or (2, 3, None). "
    "Received: gate_inputs of type int64 and shape (2, 1)": (
        lambda: mixture()(ITEMS, np.array([[1], [2]]), LISTS)
    ),
    "constraint_inputs are required unless hsc_weight is None and gate_residual is False. "
    "Received: constraint_inputs=None": (lambda: mixture()(ITEMS, LISTS)),
    "constraint_inputs must be float vectors of shape (2, None). "
    "Received: constraint_inputs of type float32 and shape (2, 3, 4)": (
        lambda: mixture()(ITEMS, LISTS, tf.ones([2, 3, 4]))
    ),
    "inputs must be float vectors of shape (None, 2) or (None, None, 2). "
    "Received: inputs of type int32 and shape (2,)": (lambda: NoisyTopKGate(4, 2)(DOMAINS)),
    "inputs must have shape [batch, features] or [batch, list, features]. "
    "Received: inputs of shape (2, 3, 5, 1)": (
        lambda: ExpertTowers(4, [4])(ITEMS[..., tf.newaxis])
    ),
    "indices must be integers of shape (2, None) or (2, 3, None). "
    "Received: indices of type float32 and shape (2, 4)": (
        lambda: ExpertTowers(4, [4])(ITEMS, LISTS)
    ),
    "indices must be integers of shape (2, None) or (2, 3, None)": (
        lambda: ExpertTowers(4, [4])(ITEMS, tf.constant([0, 1]))
    ),
    "domains must be integers of shape (2,). Received: domains of type int32 and shape (2, 1)": (
        lambda: StarTopology(2, [4])(ITEMS, DOMAINS[:, tf.newaxis])
    ),
    "Received: domains of type float32 and shape (2, 4)": (
        lambda: PartitionedNormalization(2)(ITEMS, LISTS)
    ),
    "domains must be integers of shape (2,). Received: domains of type int32 and shape (1,)": (
        lambda: ProgressiveExtraction(2, [4, 4])(ITEMS, DOMAINS[:1])
    ),
    "constraint_inputs must be float vectors of shape (2, None). "
    "Received: constraint_inputs=None": (lambda: CategoryMMoE(2, [4])(ITEMS, LISTS)),
    "gate_inputs must be float vectors of shape (2, None). "
    "Received: gate_inputs of type int32 and shape (2,)": (
        lambda: CategoryMMoE(2, [4])(ITEMS, DOMAINS, LISTS)
    ),
}


@pytest.mark.parametrize("message", CALLS)
def test_calls(message):
    with pytest.raises(ValueError) as caught:
        CALLS[message]()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "layer",
    [
        ItemTower([4]),
        SelfAttentionEncoder(4, 1),
        EncoderBlock(1, hidden_dim=4),
        DeepListwiseContext([4], 4),
        lambda items, mask=None: ProgressiveExtraction(2, [4, 4])(items, DOMAINS, mask),
        lambda items, mask=None: CategoryMMoE(2, [4])(items, LISTS, LISTS, mask),
    ],
)
def test_layers_over_lists_reject_items_and_masks_of_another_shape(layer):
    with pytest.raises(ValueError, match=r"inputs must have shape \[batch, list, features\]"):
        layer(tf.ones([2, 5]))
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(2, 3\)"):
        layer(ITEMS, mask=MASK[:, :2])


@pytest.mark.parametrize("name", MULTITASK)
def test_multi_task_models_reject_masks_of_another_shape_and_items_without_a_batch(name):
    layer = MULTITASK[name](2, [4])
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(2, 3\)"):
        layer(ITEMS, mask=MASK[:, :2])
    with pytest.raises(ValueError, match=r"inputs must have shape \[batch, features\] or "):
        layer(ITEMS[0, 0])


WRONG = {
    "hidden_dims must be a sequence of positive integers": {"hidden_dims": 16},
    "dropout must be at least 0 and below 1. Received: dropout=1": {"dropout": 1},
}


@pytest.mark.parametrize("message", WRONG)
@pytest.mark.parametrize(
    "make", [*MULTITASK.values(), CategoryMMoE, ProgressiveExtraction, StarTopology]
)
def test_arguments_of_every_family(make, message):
    with pytest.raises(ValueError, match=message):
        make(2, **WRONG[message])


def test_a_number_of_tasks_below_one_is_named():
    with pytest.raises(ValueError, match=r"num_tasks must be >= 1. Received: num_tasks=0"):
        MULTITASK["mmoe"](0)


def test_unknown_sizes_pass():
    items = tf.keras.Input([None, 5])
    lists, mask = tf.keras.Input([4]), tf.keras.Input([None], dtype="bool")
    assert mixture()(items, lists, lists, mask=mask)["logits"].shape.rank == 2


def test_numpy_arrays_pass():
    arrays = [value.numpy() for value in (ITEMS, LISTS, LISTS)]
    assert mixture()(*arrays, mask=MASK.numpy())["logits"].shape == [2, 3]
