"""Every loss of ours against the papers' formulas, written out list by list in `reference`."""

import itertools
import math

import numpy as np
import pytest

from tests.losses import reference
from tfr_moe import losses
from tfr_moe._compat import tf, tfr
from tfr_moe.losses import pairwise

every_loss = pytest.mark.parametrize("name", reference.NAMES)
# float32 sums of some forty terms
CLOSE = {"rtol": 2e-5, "atol": 1e-6}


def get(name):
    return losses.get(name, max_label=reference.MAX_LABEL)


def batch(name, seed=0, length=7):
    """Labels [B, L], all different within a list for listmle, and logits with padding between."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, reference.MAX_LABEL + 1, (5, length)).astype(np.float32)
    if name == "listmle":
        labels = np.argsort(rng.random((5, length)), axis=1).astype(np.float32)
    labels[0, 1] = labels[0, 4] = labels[1, 0] = labels[2, 2:] = -1.0
    labels[3] = np.where(labels[3] >= 0, 0.0, -1.0) if name != "listmle" else labels[3]
    labels[4] = -1.0
    outputs = [reference.MAX_LABEL] if name == "ordinal" else []
    return labels, rng.normal(size=[5, length, *outputs]).astype(np.float32) * 2.0


def value_and_gradient(name, labels, logits, weights=None):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = get(name)(tf.constant(labels), logits, sample_weight=weights)
    return float(value), tape.gradient(value, logits).numpy()


def test_every_loss_of_ours_has_a_reference():
    assert set(reference.NAMES) == set(losses.LOSSES)


@every_loss
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_are_those_of_the_formula(name, seed):
    labels, logits = batch(name, seed)
    value, gradient = value_and_gradient(name, labels, logits)
    np.testing.assert_allclose(value, reference.loss(name, labels, logits), **CLOSE)
    np.testing.assert_allclose(gradient, reference.gradient(name, labels, logits), **CLOSE)


@every_loss
def test_weights_of_items_are_those_of_the_reference(name):
    labels, logits = batch(name)
    weights = np.random.default_rng(7).uniform(0.2, 3.0, labels.shape).astype(np.float32)
    value, _ = value_and_gradient(name, labels, logits, weights)
    np.testing.assert_allclose(value, reference.loss(name, labels, logits, weights), **CLOSE)


@every_loss
@pytest.mark.parametrize("form", ["[B]", "[B, 1]", "[B, L]"])
def test_a_list_of_weight_two_is_that_list_twice(name, form):
    labels, logits = batch(name)
    of_lists = np.array([2.0, 1.0, 1.0, 2.0, 1.0], np.float32)
    weights = {
        "[B]": of_lists,
        "[B, 1]": of_lists[:, None],
        "[B, L]": np.repeat(of_lists[:, None], labels.shape[1], axis=1),
    }[form]
    twice = [0, 0, 1, 2, 3, 3, 4]
    weighted, _ = value_and_gradient(name, labels, logits, weights)
    repeated, _ = value_and_gradient(name, labels[twice], logits[twice])
    np.testing.assert_allclose(weighted, repeated, **CLOSE)


@every_loss
def test_a_list_of_weight_zero_is_as_if_it_were_not_there(name):
    labels, logits = batch(name)
    without, _ = value_and_gradient(name, labels[1:], logits[1:])
    weighted, gradient = value_and_gradient(name, labels, logits, np.float32([0, 1, 1, 1, 1]))
    np.testing.assert_allclose(weighted, without, **CLOSE)
    np.testing.assert_array_equal(gradient[0], 0.0)


@every_loss
def test_padding_has_no_say_and_no_gradient(name):
    labels, logits = batch(name)
    value, gradient = value_and_gradient(name, labels, logits)
    np.testing.assert_array_equal(gradient[labels < 0], 0.0)
    junk = logits.copy()
    junk[labels < 0] = np.nan
    wide = [(0, 0), (0, 3)]
    wider, _ = value_and_gradient(
        name,
        np.pad(labels, wide, constant_values=-1.0),
        np.pad(junk, wide + [(0, 0)] * (junk.ndim - 2), constant_values=np.inf),
    )
    np.testing.assert_allclose(wider, value, **CLOSE)


@every_loss
def test_a_batch_of_nothing_but_padding_costs_nothing(name):
    labels, logits = batch(name)
    value, gradient = value_and_gradient(name, np.full_like(labels, -1.0), logits)
    assert value == 0.0
    np.testing.assert_array_equal(gradient, 0.0)


@every_loss
def test_a_loss_comes_back_from_its_config_and_is_the_same_in_a_graph(name):
    labels, logits = batch(name)
    loss = get(name)
    again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
    expected = float(loss(labels, logits))
    assert float(again(labels, logits)) == expected
    lengths_unknown = [tf.TensorSpec([None] * array.ndim) for array in (labels, logits[..., :4])]
    if name == "ordinal":
        lengths_unknown[1] = tf.TensorSpec([None, None, 4])
    graph = tf.function(loss.__call__, input_signature=lengths_unknown)
    np.testing.assert_allclose(graph(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["ranknet", "lambdarank", "ndcg_loss_2pp"])
@pytest.mark.parametrize("pairs_at_a_time", [1, 40, 71])
def test_pairs_in_blocks_are_all_pairs(name, pairs_at_a_time, monkeypatch):
    labels, logits = batch(name)
    expected, slope = value_and_gradient(name, labels, logits)
    monkeypatch.setattr(pairwise, "PAIRS_AT_A_TIME", pairs_at_a_time)
    value, gradient = value_and_gradient(name, labels, logits)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-7)


def test_listmle_draws_the_order_of_equal_labels():
    """Its mean over draws is the mean over all orders, here of three equal labels."""
    scores = [1.5, 0.0, -1.0]
    orders = [
        reference.listmle([3 - order.index(i) for i in range(3)], scores, np.ones(3))
        for order in itertools.permutations(range(3))
    ]
    loss = losses.ListMLELoss(seed=3)
    drawn = [float(loss([[1.0] * 3], [scores])) for _ in range(400)]
    assert len({round(value, 4) for value in drawn}) == len({round(v, 4) for v in orders})
    error = np.std(orders) / math.sqrt(len(drawn))
    assert abs(np.mean(drawn) - np.mean(orders)) < 4 * error


@pytest.mark.parametrize("spread", [50.0, 500.0])
def test_listmle_keeps_its_slope_where_scores_lie_far_apart(spread):
    logits = tf.constant([[0.0, -spread, -spread]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = losses.ListMLELoss()(tf.constant([[3.0, 2.0, 1.0]]), logits)
    np.testing.assert_allclose(value, math.log(2.0), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(value, logits), [[0.0, -0.5, 0.5]], atol=1e-4)


# What the docstrings say of TensorFlow Ranking's losses, so that it stays true.


def test_ranknet_of_tensorflow_ranking_has_another_logarithm_and_mean():
    labels, logits = batch("ranknet")
    theirs = tfr.keras.losses.PairwiseLogisticLoss()(labels, logits)
    lists = (labels >= 0).any(axis=1).sum()
    ours = losses.get("ranknet")(labels, logits) * math.log(2.0) * lists / labels.size
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "smooth", "factor"), [("lambdarank", 1, 1), ("ndcg_loss_2pp", 1 / 11, 11)]
)
def test_lambda_weights_of_tensorflow_ranking_are_ours_times_the_padded_length(
    name, smooth, factor
):
    labels, logits = batch(name)
    weight = tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=smooth)
    theirs = tfr.keras.losses.PairwiseLogisticLoss(lambda_weight=weight)(labels, logits)
    lists = (labels >= 0).any(axis=1).sum()
    ours = losses.get(name)(labels, logits) * math.log(2.0) * lists / labels.size
    np.testing.assert_allclose(theirs * factor, ours * labels.shape[1], rtol=1e-4)


def test_softmax_of_tensorflow_ranking_takes_labels_for_their_softmax():
    labels, logits = [[2.0, 1.0, 0.0]], [[0.3, -0.2, 0.9]]
    theirs = float(tfr.keras.losses.SoftmaxLoss()(labels, logits))
    log_p = np.log(reference.softmax(logits[0]))
    assert theirs == pytest.approx(-(2 * log_p[0] + log_p[1]), rel=1e-5)
    assert abs(theirs - reference.loss("listnet", labels, logits)) > 0.5
    clicks = [[1.0, 0.0, 0.0]]
    one_click = float(tfr.keras.losses.SoftmaxLoss()(clicks, logits))
    assert one_click == pytest.approx(float(losses.get("listnet_binary")(clicks, logits)), rel=1e-5)


def test_listmle_of_tensorflow_ranking_sees_padding():
    labels, logits = [[2.0, 1.0, 0.0]], [[0.3, -0.2, 0.9]]
    theirs = tfr.keras.losses.ListMLELoss()
    expected = reference.loss("listmle", labels, logits)
    assert float(theirs(labels, logits)) == pytest.approx(expected, rel=1e-5)
    padded = float(theirs([[*labels[0], -1.0, -1.0]], [[*logits[0], 0.0, 0.0]]))
    assert padded == pytest.approx(expected + math.log(2.0), rel=1e-4)


@pytest.mark.parametrize("name", ["lambdarank", "ndcg_loss_2pp"])
def test_gains_of_high_labels_are_those_of_labels_with_the_same_distance(name):
    # 2^y - 1 is 2^y for these labels, and a factor leaves the normalized gain as it is.
    logits = np.array([[0.3, -0.2, 1.0]], np.float32)
    value, gradient = value_and_gradient(name, np.float32([[130, 129, 128]]), logits)
    expected, slope = value_and_gradient(name, np.float32([[30, 29, 28]]), logits)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)
