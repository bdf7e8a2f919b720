"""Calibration: predicted probabilities against the observed share of relevant items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfr_moe.metrics.per_list import ListBatch

_FINE = 2000
NUM_BINS = 12


@dataclass(frozen=True)
class CalibrationBin:
    """Items of similar predicted probability.

    Attributes:
        predicted: mean predicted probability.
        observed: share of relevant items.
        items: number of items.
        low: lower end of the 95 % Wilson interval of the share.
        high: upper end.
    """

    predicted: float
    observed: float
    items: int
    low: float
    high: float


@dataclass(frozen=True)
class CalibrationReport:
    r"""Predicted and observed probabilities over items.

    With bins b of n_b items, mean prediction p_b and share o_b of relevant items, the expected
    calibration error is

    $$ ECE = \sum_b \frac{n_b}{n} |p_b - o_b| $$

    Attributes:
        bins: by increasing prediction, with about as many items each.
        items: number of items.
        predicted: mean prediction over all items.
        observed: share of relevant ones.
        expected_error: ECE.
    """

    bins: list[CalibrationBin]
    items: int
    predicted: float
    observed: float
    expected_error: float


class Calibration:
    r"""Accumulates predictions p = 1 / (1 + exp(-score)) and labels in constant memory.

    The predictions are probabilities only for a model trained by the cross entropy of single items.
    They are counted in a fine histogram, from which bins of about equal size are made.

    Example:
        >>> calibration = Calibration()
        >>> labels, mask = np.array([[1.0, 0.0]]), np.ones([1, 2], bool)
        >>> calibration.add(ListBatch(np.zeros([1, 2]), labels, mask, ["q"]))
        >>> calibration.report().observed, calibration.report().expected_error
        (0.5, 0.0)
    """

    def __init__(self) -> None:
        self._counts, self._sums, self._relevant = (np.zeros(_FINE) for _ in range(3))

    def add(self, batch: ListBatch) -> None:
        """Adds the items of a batch; an item is relevant if its label is above 0."""
        scores = batch.scores[batch.mask].astype(np.float64)
        probabilities = np.exp(-np.logaddexp(0.0, -scores))
        # Bins of scores, not of probabilities, separate small probabilities.
        bins = ((np.clip(scores, -10, 9.999) + 10) * (_FINE / 20)).astype(np.int64)
        self._counts += np.bincount(bins, minlength=_FINE)
        self._sums += np.bincount(bins, weights=probabilities, minlength=_FINE)
        relevant = batch.labels[batch.mask] > 0
        self._relevant += np.bincount(bins[relevant], minlength=_FINE)

    def report(self, num_bins: int = NUM_BINS) -> CalibrationReport:
        """The report over all batches, in at most `num_bins` bins."""
        total = self._counts.sum()
        if not total:
            return CalibrationReport([], 0, np.nan, np.nan, np.nan)
        before = np.cumsum(self._counts) - self._counts
        groups = np.minimum((before * num_bins / total).astype(np.int64), num_bins - 1)
        counts, sums, relevant = (
            np.bincount(groups, weights=values, minlength=num_bins)
            for values in (self._counts, self._sums, self._relevant)
        )
        bins = [
            _bin(count, predicted, hits)
            for count, predicted, hits in zip(counts, sums, relevant, strict=True)
            if count
        ]
        error = sum(b.items * abs(b.predicted - b.observed) for b in bins) / total
        return CalibrationReport(
            bins,
            int(total),
            float(sums.sum() / total),
            float(relevant.sum() / total),
            float(error),
        )


def _bin(count: float, predicted: float, relevant: float) -> CalibrationBin:
    from scipy.stats import binomtest

    interval = binomtest(int(relevant), int(count)).proportion_ci(0.95, "wilson")
    return CalibrationBin(
        float(predicted / count),
        float(relevant / count),
        int(count),
        float(interval.low),
        float(interval.high),
    )
