"""Eq. 8 of PRM by hand, and eq. 9 as TFR's softmax loss of it."""

import math

import numpy as np

from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.layers.listwise import ListLogProbability


def test_scores_are_logs_of_probabilities_over_the_valid_items():
    logits = tf.constant([[0.0, math.log(3), 50.0], [7.0, 1.0, 1.0]])
    mask = tf.constant([[True, True, False], [False, True, True]])
    got = tf.exp(ListLogProbability()(logits, mask=mask)).numpy()
    np.testing.assert_allclose(got[0][:2], [0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(got[1][1:], [0.5, 0.5], rtol=1e-6)


def test_the_softmax_loss_of_the_scores_is_that_of_the_logits_and_of_eq_9():
    logits = np.random.default_rng(0).normal(size=[3, 4]).astype(np.float32)
    labels = np.array([[1, 0, 0, 1], [0, 0, 1, -1], [0, 1, -1, -1]], np.float32)
    scores = ListLogProbability()(tf.constant(logits), mask=tf.constant(labels >= 0))
    loss = losses.get("softmax_loss")
    by_logits, by_scores = (float(loss(labels, x)) for x in (logits, scores))
    assert abs(by_logits - by_scores) < 1e-5
    total = -sum(float(scores[b, i]) for b, i in np.argwhere(labels == 1))
    assert abs(by_scores - total / 3) < 1e-5


def test_a_list_without_items_is_finite():
    scores = ListLogProbability()(tf.ones([1, 3]), mask=tf.zeros([1, 3], tf.bool))
    np.testing.assert_array_equal(scores, 0.0)
