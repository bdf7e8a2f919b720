"""Calibration by hand."""

import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tfr_moe.analysis.calibration import Calibration
from tfr_moe.metrics.per_list import ListBatch


def scored(scores, labels, mask=None):
    scores, labels = np.atleast_2d(np.array(scores, float)), np.atleast_2d(np.array(labels, float))
    real = np.ones(scores.shape, bool) if mask is None else np.atleast_2d(mask)
    return ListBatch(scores, labels, real, np.array(["q"] * len(scores), object))


def test_bins_hold_what_was_predicted_and_what_was_seen():
    gathered = Calibration()
    # A chance of 1/4 for four items of which two are relevant, of 3/4 for four of which three are.
    low, high = -np.log(3.0), np.log(3.0)
    gathered.add(scored([low] * 4 + [high] * 4, [1, 1, 0, 0, 1, 1, 1, 0]))
    found = gathered.report(num_bins=2)
    assert [(b.items, b.observed) for b in found.bins] == [(4, 0.5), (4, 0.75)]
    assert [b.predicted for b in found.bins] == pytest.approx([0.25, 0.75])
    assert (found.predicted, found.observed) == pytest.approx((0.5, 0.625))
    assert found.expected_error == pytest.approx((4 * 0.25 + 4 * 0.0) / 8)
    # Wilson's interval of 2 of 4.
    assert (found.bins[0].low, found.bins[0].high) == pytest.approx((0.1500, 0.8500), abs=1e-4)


def test_padding_and_the_cut_into_batches_change_nothing():
    batch = random_batch(np.random.default_rng(0), lists=60)
    whole, parts, flat = Calibration(), Calibration(), Calibration()
    whole.add(batch)
    for rows in (slice(0, 7), slice(7, 60)):
        parts.add(
            ListBatch(
                batch.scores[rows], batch.labels[rows], batch.mask[rows], batch.list_ids[rows]
            )
        )
    flat.add(scored(batch.scores[batch.mask], batch.labels[batch.mask]))
    expected = flat.report()
    for gathered in (whole, parts):
        found = gathered.report()
        assert [b.items for b in found.bins] == [b.items for b in expected.bins]
        assert found.expected_error == pytest.approx(expected.expected_error)


def test_bins_have_about_as_many_items_each_however_the_scores_lie():
    rng = np.random.default_rng(1)
    gathered = Calibration()
    gathered.add(scored(rng.normal(-5, 1, 12_000), rng.random(12_000) < 0.01))
    sizes = [b.items for b in gathered.report().bins]
    assert len(sizes) == 12
    assert 900 < min(sizes) <= max(sizes) < 1100


def test_scores_beyond_all_bounds_are_counted():
    gathered = Calibration()
    gathered.add(scored([-1e6, 1e6], [0, 1]))
    assert gathered.report().expected_error == pytest.approx(0, abs=1e-9)


def test_nothing_has_no_bins():
    assert Calibration().report().bins == []
