"""Several outputs for an item and the score that they make together."""

import numpy as np

from tfr_moe import metrics
from tfr_moe._compat import tf
from tfr_moe.levels import score_of_levels, single_score


def test_the_score_is_the_sum_of_the_sigmoids():
    # sigmoid(log(p / (1 - p))) = p
    logits = np.log([[[3.0, 1 / 3], [1.0, 1.0]]])
    np.testing.assert_allclose(score_of_levels(tf.constant(logits)), [[1.0, 1.0]], rtol=1e-6)


def test_scores_stay_as_they_are():
    scores = tf.constant([[1.0, -2.0]])
    assert score_of_levels(scores) is scores


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
