"""Task scores: ESMM's product in logits, combinations by hand."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.layers.outputs import (
    CombinedScore,
    TaskScores,
    joint_logit,
)


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def test_the_joint_logit_is_that_of_the_product():
    a, b = np.random.default_rng(0).normal(size=[2, 50], scale=4.0)
    p = sigmoid(a) * sigmoid(b)
    got = joint_logit(tf.constant(a, tf.float32), tf.constant(b, tf.float32))
    # float32 logits of order 10
    np.testing.assert_allclose(got, np.log(p / (1 - p)), atol=1e-5)


@pytest.mark.parametrize("size", [60.0, 1e4])
def test_the_joint_logit_of_extremes_keeps_value_and_gradient(size):
    a = tf.constant([-size, size, -size, size])
    b = tf.constant([-size, -size, size, size])
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        logit = joint_logit(a, b)
    # e^-a + e^-b + e^-(a+b) is led by its largest term; at +, + by two equal ones.
    expected = [-2 * size, -size, -size, size - np.log(2)]
    np.testing.assert_allclose(logit, expected, rtol=1e-6)
    for gradient, wanted in zip(
        tape.gradient(logit, [a, b]), ([1, 0, 1, 0.5], [1, 1, 0, 0.5]), strict=True
    ):
        np.testing.assert_allclose(gradient, wanted, atol=1e-6)


def test_a_purchase_given_a_click_by_hand():
    # p(click) = 1/2 and p(purchase | click) = 1/4 make p(purchase) = 1/8, as odds 1 to 7.
    layer = TaskScores({"purchase": "click", "click": None})
    scores = layer(tf.constant([[np.log(1 / 3), 0.0]], tf.float32))
    assert list(scores) == ["purchase", "click"]
    np.testing.assert_allclose(scores["click"], [0.0])
    np.testing.assert_allclose(scores["purchase"], [np.log(1 / 7)], rtol=1e-6)


def test_a_chain_multiplies_up():
    logits = np.random.default_rng(1).normal(size=[5, 3]).astype(np.float32)
    scores = TaskScores({"click": None, "cart": "click", "purchase": "cart"})(logits)
    expected = np.cumprod(sigmoid(logits), axis=1)
    for k, name in enumerate(("click", "cart", "purchase")):
        np.testing.assert_allclose(sigmoid(scores[name]), expected[:, k], rtol=1e-5)


def test_padded_places_score_0():
    scores = TaskScores({"a": None, "b": "a"})(
        tf.fill([1, 2, 2], np.nan), mask=tf.constant([[False, False]])
    )
    for score in scores.values():
        np.testing.assert_array_equal(score, [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"b": "a"}, "tasks.b.conditioned_on: 'a' is not a task; allowed: b"),
        ({"a": "b", "b": "a"}, "tasks.a.conditioned_on: forms a cycle with 'a'"),
        ({"a": "a"}, "tasks.a.conditioned_on: forms a cycle with 'a'"),
    ],
)
def test_what_is_given_must_be_a_task_without_a_circle(given, message):
    with pytest.raises(ValueError, match=message):
        TaskScores(given)


def test_combinations_by_hand():
    scores = {"click": tf.constant([0.0, np.log(3)]), "purchase": tf.constant([0.0, -np.log(3)])}
    weights = {"click": 1.0, "purchase": 8.0}
    # Probabilities 1/2, 3/4 and 1/2, 1/4: 0.5 + 4 and 0.75 + 2.
    np.testing.assert_allclose(CombinedScore(weights)(scores), [4.5, 2.75], rtol=1e-6)
    np.testing.assert_allclose(
        CombinedScore(weights, "logit")(scores), [0.0, -7 * np.log(3)], rtol=1e-6
    )
    with pytest.raises(ValueError, match="combination must be probability or logit"):
        CombinedScore(weights, "mean")
