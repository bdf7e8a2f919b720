"""Calibration by hand."""

import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tfr_moe.analysis.calibration import CalibrationCounter
from tfr_moe.metrics.per_list import ListBatch


def scored(scores, labels):
    scores, labels = np.atleast_2d(np.array(scores, float)), np.atleast_2d(np.array(labels, float))
    return ListBatch(scores, labels, np.ones(scores.shape, bool), np.array(["q"], object))


def test_bins_hold_what_was_predicted_and_what_was_observed():
    counter = CalibrationCounter()
    # A probability of 1/4 for four items of which two are relevant, of 3/4 for four of which three.
    low, high = -np.log(3.0), np.log(3.0)
    counter({"": scored([low] * 4 + [high] * 4, [1, 1, 0, 0, 1, 1, 1, 0])})
    actual = counter.result()
    assert actual.predicted == pytest.approx([0.25, 0.75])
    assert actual.observed == pytest.approx([0.5, 0.75])
    assert (actual.mean_predicted, actual.mean_observed) == pytest.approx((0.5, 0.625))
    assert actual.error == pytest.approx((4 * 0.25 + 4 * 0.0) / 8)
    # Wilson's interval of 2 of 4.
    assert (actual.low[0], actual.high[0]) == pytest.approx((0.1500, 0.8500), abs=1e-4)


def test_padding_and_the_cut_into_batches_change_nothing():
    batch = random_batch(np.random.default_rng(0), lists=60)
    parts, flat = CalibrationCounter(), CalibrationCounter()
    for rows in (slice(0, 7), slice(7, 60)):
        parts(
            {
                "": ListBatch(
                    batch.scores[rows], batch.labels[rows], batch.mask[rows], batch.list_ids[rows]
                )
            }
        )
    flat({"": scored(batch.scores[batch.mask], batch.labels[batch.mask])})
    np.testing.assert_allclose(parts.result().predicted, flat.result().predicted)
    assert parts.result().error == pytest.approx(flat.result().error)


def test_scores_beyond_all_bounds_are_counted_and_nothing_has_no_result():
    counter = CalibrationCounter()
    assert counter.result() is None
    counter({"": scored([-1e6, 1e6], [0, 1])})
    assert counter.result().error == pytest.approx(0, abs=1e-9)
