"""From logits to scores."""

import math

import numpy as np

from tfr_moe import losses, metrics
from tfr_moe._compat import tf
from tfr_moe.layers.outputs import expected_grade, log_softmax, ranks_by_score, single_score


def test_the_score_is_the_sum_of_the_sigmoids():
    # sigmoid(log(p / (1 - p))) = p
    logits = np.log([[[3.0, 1 / 3], [1.0, 1.0]]])
    np.testing.assert_allclose(expected_grade(tf.constant(logits)), [[1.0, 1.0]], rtol=1e-6)


def test_scores_stay_as_they_are():
    scores = tf.constant([[1.0, -2.0]])
    assert expected_grade(scores) is scores


def test_a_model_of_levels_becomes_one_of_scores_and_others_stay():
    inputs = tf.keras.Input([None, 3])
    model = tf.keras.Model(inputs, inputs, name="levels")
    single = single_score(model)
    assert single.output_shape == (None, None)
    assert single.name == "levels"
    np.testing.assert_allclose(single(tf.zeros([1, 2, 3])), [[1.5, 1.5]])
    assert single_score(single) is single


def test_a_metric_ranks_levels_by_their_score():
    levels = [[[2.0, -9.0], [1.0, 1.0], [0.0, 0.0]]]  # scores 0.88, 1.46, 1.0
    mrr = metrics.get("mrr")
    mrr.update_state([[1.0, 0.0, 0.0]], levels)
    np.testing.assert_allclose(mrr.result(), 1 / 3, rtol=1e-6)


def test_ranks_put_padding_last_and_keep_the_order_of_ties():
    scores = tf.constant([[-3e38, 0.0, 1.0, 1.0]])
    valid = tf.constant([[True, False, True, True]])
    np.testing.assert_array_equal(ranks_by_score(scores, valid), [[3, 4, 1, 2]])


def test_scores_are_logs_of_probabilities_over_the_valid_items():
    logits = tf.constant([[0.0, math.log(3), 50.0], [7.0, 1.0, 1.0]])
    mask = tf.constant([[True, True, False], [False, True, True]])
    got = tf.exp(log_softmax(logits, mask)).numpy()
    np.testing.assert_allclose(got[0][:2], [0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(got[1][1:], [0.5, 0.5], rtol=1e-6)


def test_the_softmax_loss_of_the_scores_is_that_of_the_logits_and_of_eq_9():
    logits = np.random.default_rng(0).normal(size=[3, 4]).astype(np.float32)
    labels = np.array([[1, 0, 0, 1], [0, 0, 1, -1], [0, 1, -1, -1]], np.float32)
    scores = log_softmax(tf.constant(logits), tf.constant(labels >= 0))
    loss = losses.get("softmax_loss")
    by_logits, by_scores = (float(loss(labels, x)) for x in (logits, scores))
    assert abs(by_logits - by_scores) < 1e-5
    total = -sum(float(scores[b, i]) for b, i in np.argwhere(labels == 1))
    assert abs(by_scores - total / 3) < 1e-5


def test_a_list_without_items_is_finite():
    scores = log_softmax(tf.ones([1, 3]), tf.zeros([1, 3], tf.bool))
    np.testing.assert_array_equal(scores, 0.0)
