"""What mixtures can do beyond the paper, by numbers worked out by hand."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig
from tfr_moe.layers import (
    AdversarialExpertPenalty,
    CategoryMixtureOfExperts,
    HierarchicalSoftConstraint,
    NoisyTopKGate,
)
from tfr_moe.layers.mixture_options import OPTIONS

ONE = tf.constant([1.0])
LN3 = float(np.log(3.0))


def hsc_gradients(**settings):
    """Of HSC between softmaxes (3/4, 1/4) and (1/2, 1/2) over both experts, by both gates' logits."""
    layer = HierarchicalSoftConstraint(1.0, **settings)
    inference, constraint = tf.constant([[LN3, 0.0]]), tf.constant([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([inference, constraint])
        value = layer(inference, constraint, tf.constant([[0, 1]]), ONE, training=True)
        total = tf.add_n(layer.losses)
    none = tf.UnconnectedGradients.ZERO
    found = tape.gradient(total, [inference, constraint], unconnected_gradients=none)
    return float(value[0]), [g.numpy()[0] for g in found]


def test_the_fixed_side_of_hsc_is_not_moved_and_the_value_stays():
    # (1/4)^2 twice. By the inference logits: 2/4 p (1 - p) + 2/4 p (1 - p), p (1 - p) = 3/16.
    free = hsc_gradients()
    assert free[0] == pytest.approx(1 / 8)
    np.testing.assert_allclose(free[1][0], [3 / 16, -3 / 16], rtol=1e-5)
    np.testing.assert_allclose(free[1][1], [-1 / 4, 1 / 4], rtol=1e-5)
    value, (inference, constraint) = hsc_gradients(fixed_side="constraint")
    assert value == pytest.approx(1 / 8)
    np.testing.assert_allclose(inference, free[1][0])
    assert not constraint.any()
    value, (inference, constraint) = hsc_gradients(fixed_side="inference")
    assert value == pytest.approx(1 / 8)
    np.testing.assert_allclose(constraint, free[1][1])
    assert not inference.any()


def test_hsc_on_logits_compares_logits():
    assert hsc_gradients(on="logits")[0] == pytest.approx(LN3**2)


def test_the_weight_of_hsc_grows_over_its_warm_up():
    layer = HierarchicalSoftConstraint(0.5, on="logits", warmup_steps=2)
    seen = []
    for _ in range(4):
        layer(tf.constant([[2.0]]), tf.constant([[0.0]]), tf.constant([[0]]), ONE, training=True)
        seen.append(float(layer.losses[0]))
    assert seen == pytest.approx([0.0, 1.0, 2.0, 2.0])  # 0.5 x 2^2 at the end
    layer(tf.constant([[2.0]]), tf.constant([[0.0]]), tf.constant([[0]]), ONE)
    assert float(layer.step) == 4


def test_a_margin_ends_the_reward_and_the_gradient():
    # Sigmoids 1/2 and 3/4: 1/4 apart.
    idle = tf.constant([[[LN3]]])
    for margin, value, moves in ((0.1, 0.01, False), (0.5, 1 / 16, True)):
        penalty = AdversarialExpertPenalty(1.0, margin=margin)
        active = tf.zeros([1, 1, 1])
        with tf.GradientTape() as tape:
            tape.watch(active)
            found = penalty(active, idle, tf.constant([[True]]))
        assert float(found[0, 0]) == pytest.approx(value)
        assert bool(tape.gradient(found, active).numpy().any()) is moves


def test_centred_experts_cannot_disagree_by_an_offset():
    active = tf.constant([[[0.0], [1.0], [99.0]]])
    offset = active + tf.constant([[[5.0], [5.0], [-7.0]]])
    mask = tf.constant([[True, True, False]])
    plain, centred = AdversarialExpertPenalty(1.0), AdversarialExpertPenalty(1.0, centred=True)
    assert float(plain(active, offset, mask)[0, 0]) > 0.2
    np.testing.assert_allclose(centred(active, offset, mask), 0.0, atol=1e-7)
    # Logits -x and x around the mean 0: (2 sigma(x) - 1)^2, x = ln 3 gives 1/4.
    mirrored = tf.constant([[[-LN3], [LN3], [0.0]]])
    found = centred(-mirrored, mirrored, mask)
    np.testing.assert_allclose(found[0], [1 / 4, 1 / 4, 0.0], rtol=1e-5)


def gate_with(kernel, **settings):
    gate = NoisyTopKGate(len(kernel[0]), 1, noisy=False, **settings)
    gate.build([None, len(kernel)])
    gate.kernel.assign(kernel)
    return gate


def test_the_scale_of_the_start_scales_the_kernel():
    kernels = []
    for scale in (1.0, 0.1, 0.0):
        gate = NoisyTopKGate(3, 1, seed=1, init_scale=scale)
        gate.build([None, 4])
        kernels.append(gate.kernel.numpy())
    np.testing.assert_allclose(kernels[1], 0.1 * kernels[0], rtol=1e-5)
    assert not kernels[2].any()


def test_a_bias_changes_the_choice_but_not_the_weights_and_follows_the_load():
    gate = gate_with([[1.0, 0.9, 0.0]], bias_rate=0.2)
    assert gate(ONE[:, tf.newaxis]).indices.numpy().tolist() == [[0]]
    gate.balance(tf.constant([3.0, 0.0, 0.0]))  # the mean is 1
    np.testing.assert_allclose(gate.bias, [-0.2, 0.2, 0.2])
    found = gate(ONE[:, tf.newaxis])
    assert found.indices.numpy().tolist() == [[1]]
    np.testing.assert_allclose(found.logits, [[1.0, 0.9, 0.0]])
    np.testing.assert_allclose(gate.as_selected(found).logits, [[0.8, 1.1, 0.2]])
    gate.top_k = 2
    pair = gate(ONE[:, tf.newaxis])
    assert pair.indices.numpy().tolist() == [[1, 0]]
    np.testing.assert_allclose(pair.weights, tf.nn.softmax([[0.9, 1.0]]))


def mixture(**options):
    return CategoryMixtureOfExperts(
        num_experts=4,
        top_k=2,
        num_adversarial=1,
        expert_hidden_dims=[4],
        noisy_gate=False,
        seed=1,
        options=options,
    )


INPUTS = (tf.random.stateless_normal([2, 3, 5], [1, 2]), tf.ones([2, 3]), tf.eye(2))


def test_a_mixture_balances_its_gate_by_bias_while_it_trains():
    layer = mixture(gate_bias_rate=0.5)
    layer(*INPUTS)
    assert not layer.inference_gate.bias.numpy().any()
    # Both lists choose the same two of four experts: those fall, the others rise.
    chosen = layer(*INPUTS, training=True)["expert_ids"].numpy()[0]
    bias = layer.inference_gate.bias.numpy()
    assert sorted(bias[chosen]) == [-0.5, -0.5]
    assert bias.sum() == 0


def test_a_residual_gate_begins_as_its_parents():
    layer = mixture(gate_residual=True, gate_init_scale=2.0)
    decided = layer.decide(INPUTS[1], INPUTS[2])
    np.testing.assert_allclose(decided.logits, layer.parent_gate(INPUTS[2]).logits)
    layer.inference_gate.kernel.assign_add(tf.eye(3, 4))
    moved = layer.decide(INPUTS[1], INPUTS[2]).logits - decided.logits
    np.testing.assert_allclose(moved, [[1.0, 1.0, 1.0, 0.0]] * 2, rtol=1e-5)


def test_a_shared_expert_adds_its_score_to_every_item():
    layer = mixture(shared_expert=True)
    with_it = layer(*INPUTS)["logits"]
    shared = layer.shared(INPUTS[0])
    layer.shared = None
    np.testing.assert_allclose(with_it, layer(*INPUTS)["logits"] + shared, rtol=1e-5)


def test_experts_of_shared_weights_start_as_one_tower_and_learn_apart():
    layer = mixture(shared_weights=True)
    inputs, gate_inputs, parents = INPUTS
    each = layer.towers(inputs)
    np.testing.assert_allclose(each, tf.repeat(each[..., :1], 4, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(layer(*INPUTS)["logits"], each[..., 0], rtol=1e-5)
    chosen = layer(*INPUTS)["expert_ids"].numpy()[0]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(inputs, gate_inputs, parents)["logits"])
    kernel = layer.towers.kernels[-1]
    own, shared = tape.gradient(loss, [kernel, layer.towers.shared[-1][0]])
    moved = np.abs(own.numpy()).sum(axis=(1, 2)) > 0
    assert sorted(np.flatnonzero(moved)) == sorted(chosen)
    # w_i = w (1 + d_i) at d = 0: dL/dw = sum_i dL/dw_i, and dL/dd_i = w dL/dw_i.
    np.testing.assert_allclose(
        own.numpy().sum(axis=0), layer.towers.shared[-1][0] * shared, rtol=1e-4, atol=1e-6
    )


def test_options_left_at_their_defaults_leave_the_mixture_as_it_was():
    defaults = {name: default for name, (_, _, default) in OPTIONS.items()}
    plain, same = mixture(), mixture(**defaults)
    np.testing.assert_array_equal(plain(*INPUTS)["logits"], same(*INPUTS)["logits"])
    assert len(plain.weights) == len(same.weights)
    assert same.get_config()["options"] == {}
    with pytest.raises(ValueError, match="'depth'"):
        mixture(depth=3)


def test_a_run_has_each_option_with_the_same_default():
    for name, (_, _, default) in OPTIONS.items():
        assert getattr(RunConfig(), name) == default


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (HierarchicalSoftConstraint, {"fixed_side": "both"}),
        (HierarchicalSoftConstraint, {"on": "ranks"}),
        (HierarchicalSoftConstraint, {"warmup_steps": -1}),
        (AdversarialExpertPenalty, {"margin": 0.0}),
    ],
)
def test_values_that_mean_nothing_are_refused(kind, settings):
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        kind(1.0, **settings)
