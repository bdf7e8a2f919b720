"""CategoryMixtureOfExperts: eqs. 7 and 13 whole, and who is reached by which gradient."""

import math

import numpy as np
import pytest

from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.layers.mixture import CategoryMixtureOfExperts


def small_case(top_k, **kwargs):
    """N = 3 linear experts E_i(x) = w_i x + b_i on one input; gates fixed by hand."""
    moe = CategoryMixtureOfExperts(
        num_experts=3,
        top_k=top_k,
        num_adversarial=1,
        expert_hidden_dims=[],
        hsc_weight=0.1,
        adversarial_weight=0.2,
        noisy_gate=False,
        **kwargs,
    )
    items = tf.constant([[[1.0], [2.0], [99.0]]])
    mask = tf.constant([[True, True, False]])
    moe(items, tf.ones([1, 1]), tf.ones([1, 1]), mask=mask)
    moe.inference_gate.kernel.assign([[math.log(2), 0.0, -1.0]])
    moe.constraint_gate.kernel.assign([[0.0, 0.0, 0.0]])
    moe.towers.kernels[0].assign(np.reshape([1.0, -1.0, 0.0], [3, 1, 1]))
    moe.towers.biases[0].assign(np.reshape([0.0, 0.5, 0.25], [3, 1]))
    return moe, items, mask


def test_logits_weigh_the_selected_experts_k_1():
    moe, items, mask = small_case(top_k=1)
    out = moe(items, tf.ones([1, 1]), tf.ones([1, 1]), mask=mask)
    # Expert 0 alone: E_0(1) = 1, E_0(2) = 2; padding scores 0.
    np.testing.assert_allclose(out["logits"], [[1.0, 2.0, 0.0]])
    np.testing.assert_array_equal(out["expert_ids"], [[0]])


def test_logits_weigh_the_selected_experts_k_2():
    moe, items, mask = small_case(top_k=2)
    out = moe(items, tf.ones([1, 1]), tf.ones([1, 1]), mask=mask)
    # P = softmax(ln 2, 0) = (2/3, 1/3); E_0 = 1, 2; E_1 = -0.5, -1.5
    np.testing.assert_allclose(out["logits"], [[2 / 3 - 0.5 / 3, 4 / 3 - 1.5 / 3, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(out["expert_weights"], [[2 / 3, 1 / 3]], rtol=1e-6)


def test_the_whole_objective_by_hand():
    """Eq. 13 with N = 3, K = 2, D = 1: the one idle expert is expert 2."""
    moe, items, mask = small_case(top_k=2)
    out = moe(items, tf.ones([1, 1]), tf.ones([1, 1]), mask=mask, training=True)
    labels = tf.constant([[1.0, 0.0, -1.0]])
    total = losses.get("sigmoid_cross_entropy")(labels, out["logits"]) + tf.add_n(moe.losses)

    def sigma(x):
        return 1 / (1 + math.exp(-x))

    first, second = 2 / 3 - 0.5 / 3, 4 / 3 - 1.5 / 3
    cross_entropy = -(math.log(sigma(first)) + math.log(1 - sigma(second))) / 2
    powers = 2 + 1 + math.exp(-1)
    hsc = (2 / powers - 1 / 3) ** 2 + (1 / powers - 1 / 3) ** 2
    idle = sigma(0.25)
    adversarial = (
        (sigma(1.0) - idle) ** 2
        + (sigma(-0.5) - idle) ** 2
        + (sigma(2.0) - idle) ** 2
        + (sigma(-1.5) - idle) ** 2
    ) / 2
    expected = cross_entropy + 0.1 * hsc - 0.2 * adversarial
    np.testing.assert_allclose(total, expected, rtol=1e-6)


def random_model(seed=1, **kwargs):
    settings = {
        "num_experts": 6,
        "top_k": 2,
        "num_adversarial": 2,
        "expert_hidden_dims": [8],
        "noisy_gate": False,
        "seed": seed,
        **kwargs,
    }
    return CategoryMixtureOfExperts(**settings)


def random_batch(batch=8, size=5, seed=0):
    rng = np.random.default_rng(seed)
    items = rng.normal(size=[batch, size, 4]).astype(np.float32)
    sc = rng.normal(size=[batch, 3]).astype(np.float32)
    tc = rng.normal(size=[batch, 3]).astype(np.float32)
    mask = rng.random([batch, size]) < 0.7
    mask[:, 0] = True
    return items, sc, tc, mask


def gradients(moe, batch, pick):
    """Gradient norms of a scalar of the layer's outcome, by variable and by the two embeddings."""
    items, sc, tc, mask = (tf.constant(part) for part in batch)
    moe(items, sc, tc, mask=mask)
    with tf.GradientTape() as tape:
        tape.watch([sc, tc])
        out = moe(items, sc, tc, mask=mask, training=True)
        loss = pick(moe, out)
    targets = [*moe.trainable_variables, sc, tc]
    names = [*(v.name for v in moe.trainable_variables), "sc", "tc"]
    result = tape.gradient(loss, targets)
    return {
        name: 0.0 if g is None else float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(g))))
        for name, g in zip(names, result, strict=True)
    }


def only_loss(weight_name):
    weights = {"hsc_weight": 0.0, "adversarial_weight": 0.0, weight_name: 1.0}
    return random_model(**weights)


def test_hsc_reaches_both_gates_and_both_embeddings_but_no_tower():
    actual = gradients(only_loss("hsc_weight"), random_batch(), lambda m, out: tf.add_n(m.losses))
    for name, norm in actual.items():
        if "towers" in name:
            assert norm == 0.0, name
        else:
            assert norm > 0.0, name


def test_advloss_reaches_the_towers_but_not_the_constraint_gate():
    actual = gradients(
        only_loss("adversarial_weight"), random_batch(), lambda m, out: tf.add_n(m.losses)
    )
    assert actual["tc"] == 0.0
    for name, norm in actual.items():
        if "constraint" in name:
            assert norm == 0.0, name
        # The output bias cancels nowhere: the sigmoids of active and idle experts differ.
        if "towers" in name:
            assert norm > 0.0, name


def test_advloss_reaches_active_and_idle_towers():
    moe = only_loss("adversarial_weight")
    items, sc, tc, mask = (tf.constant(part) for part in random_batch(batch=1))
    moe(items, sc, tc, mask=mask)
    with tf.GradientTape() as tape:
        out = moe(items, sc, tc, mask=mask, training=True)
        loss = tf.add_n(moe.losses)
    kernel = tf.convert_to_tensor(tape.gradient(loss, moe.towers.kernels[0]))
    reached = set(np.flatnonzero(tf.reduce_sum(tf.abs(kernel), [1, 2]).numpy()))
    active = set(out["expert_ids"].numpy()[0])
    assert active < reached
    assert len(reached - active) == 2  # the D idle experts of this draw


def test_the_scores_reach_gate_and_towers_but_not_the_constraint_gate():
    moe = random_model()
    actual = gradients(moe, random_batch(), lambda m, out: tf.reduce_sum(out["logits"]))
    assert actual["sc"] > 0.0
    assert actual["tc"] == 0.0


def test_regularisers_are_means_whatever_the_batch_and_the_padding():
    items, sc, tc, mask = random_batch(batch=6)
    moe = random_model(num_adversarial=4)  # D = N - K: no draw, so runs compare
    moe(items, sc, tc, mask=tf.constant(mask))

    def losses_of(*batch):
        moe(*batch[:3], mask=tf.constant(batch[3]), training=True)
        return np.array([float(loss) for loss in moe.losses])

    once = losses_of(items, sc, tc, mask)
    twice = losses_of(*(np.concatenate([part, part]) for part in (items, sc, tc, mask)))
    np.testing.assert_allclose(once, twice, rtol=1e-5)
    wide = losses_of(
        np.pad(items, [(0, 0), (0, 7), (0, 0)], constant_values=3.0),
        sc,
        tc,
        np.pad(mask, [(0, 0), (0, 7)]),
    )
    np.testing.assert_allclose(once, wide, rtol=1e-5)


def test_no_losses_and_no_idle_experts_outside_training():
    items, sc, tc, mask = random_batch()
    moe = random_model(importance_weight=1.0)
    moe(items, sc, tc, mask=tf.constant(mask))
    assert moe.losses == []
    assert all(math.isnan(m.result()) for m in moe.metrics if m.name != "expert_usage")


def test_the_watched_values_are_those_of_the_regularisers():
    items, sc, tc, mask = random_batch()
    moe = random_model(hsc_weight=1.0, adversarial_weight=1.0)
    moe(items, sc, tc, mask=tf.constant(mask))
    moe(items, sc, tc, mask=tf.constant(mask), training=True)
    hsc, adversarial = (float(loss) for loss in moe.losses)
    seen = {m.name: m.result() for m in moe.metrics}
    np.testing.assert_allclose(seen["hsc"], hsc, rtol=1e-6)
    np.testing.assert_allclose(seen["adversarial"], -adversarial, rtol=1e-6)
    np.testing.assert_allclose(seen["adversarial_share"], -adversarial / 4, rtol=1e-6)
    usage = seen["expert_usage"]
    assert 2 / 6 <= float(usage["busiest_share"]) <= 1.0


def test_dead_experts_are_counted_over_the_epoch():
    moe, items, mask = small_case(top_k=1)
    for _ in range(3):
        moe(items, tf.ones([1, 1]), tf.ones([1, 1]), mask=mask, training=True)
    usage = next(m for m in moe.metrics if m.name == "expert_usage").result()
    assert float(usage["dead_experts"]) == 2.0
    assert float(usage["busiest_share"]) == 1.0


def test_gate_entropy_of_equal_weights_is_log_k():
    moe = random_model()
    items, sc, tc, mask = random_batch()
    moe(items, sc, tc, mask=tf.constant(mask))
    moe.inference_gate.kernel.assign(tf.zeros_like(moe.inference_gate.kernel))
    moe(items, sc, tc, mask=tf.constant(mask), training=True)
    entropy = next(m for m in moe.metrics if m.name == "gate_entropy").result()
    np.testing.assert_allclose(entropy, math.log(2), rtol=1e-6)


def test_item_level_gate_equals_list_level_gate_when_all_items_agree():
    items, sc, tc, mask = random_batch()
    moe = random_model()
    lists = moe(items, sc, tc, mask=tf.constant(mask))["logits"]
    per_item = np.repeat(sc[:, np.newaxis, :], items.shape[1], axis=1)
    np.testing.assert_allclose(
        moe(items, per_item, tc, mask=tf.constant(mask))["logits"], lists, rtol=1e-5, atol=1e-6
    )


def test_more_adversarial_than_idle_experts_is_rejected():
    with pytest.raises(ValueError, match="num_adversarial must be <= num_experts - top_k = 1"):
        CategoryMixtureOfExperts(num_experts=3, top_k=2, num_adversarial=2)


INPUTS = (tf.random.stateless_normal([2, 3, 5], [1, 2]), tf.ones([2, 3]), tf.eye(2))


def test_a_residual_gate_starts_as_its_parents():
    layer = random_model(gate_residual=True)
    decided = layer.decide(INPUTS[1], INPUTS[2])
    np.testing.assert_allclose(decided.logits, layer.parent_gate(INPUTS[2]).logits)
    assert np.abs(decided.logits).max() > 0.1
    layer.inference_gate.kernel.assign_add(tf.eye(3, 6))
    moved = layer.decide(INPUTS[1], INPUTS[2]).logits - decided.logits
    np.testing.assert_allclose(moved, [[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]] * 2, rtol=1e-5)


def test_a_shared_expert_adds_its_score_to_every_item():
    layer = random_model(shared_expert=True)
    with_it = layer(*INPUTS)["logits"]
    shared = layer.shared(INPUTS[0])
    assert np.abs(shared).max() > 0.1
    layer.shared = None
    np.testing.assert_allclose(with_it, layer(*INPUTS)["logits"] + shared, rtol=1e-5)


def test_arguments_survive_serialization():
    settings = {
        "gate_residual": True,
        "shared_expert": True,
        "dispatch": "grouped",
        "expert_capacity": 7,
        "kernel_initializer": tf.keras.initializers.HeNormal(seed=3),
        "kernel_regularizer": tf.keras.regularizers.L2(0.1),
        "gate_initializer": "ones",
    }
    layer = random_model(**settings)
    copy = type(layer).from_config(layer.get_config())
    layer(*INPUTS)
    copy(*INPUTS)
    for one, other in zip(layer.get_weights(), copy.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (copy.towers.dispatch, copy.towers.capacity) == ("grouped", 7)
    assert (copy.parent_gate.kernel.numpy() == 1).all()
    assert (copy.inference_gate.kernel.numpy() == 0).all()
    # One penalty per kernel: of the experts and of the shared one, two layers each.
    assert len(copy.losses) == 4
