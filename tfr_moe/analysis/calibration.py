"""Calibration: predicted probabilities against the observed share of relevant items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfr_moe.metrics.per_list import ListBatch

NUM_BINS = 10
_FINE = 2000
_LIMIT = 10.0  # logits beyond it share the first and the last bin


@dataclass(frozen=True)
class Calibration:
    r"""Predicted and observed probabilities of items, in bins of about as many items each.

    With $n_b$ items in bin b, mean prediction $p_b$ and share $o_b$ of relevant items, `error` is

    $$ ECE = \sum_b \frac{n_b}{n} |p_b - o_b| $$

    `low` and `high` are the ends of 95 % Wilson intervals of `observed`.
    """

    predicted: list[float]
    observed: list[float]
    low: list[float]
    high: list[float]
    mean_predicted: float
    mean_observed: float
    error: float


class CalibrationCounter:
    """Accumulates predictions 1 / (1 + exp(-score)) and labels in constant memory."""

    def __init__(self, task: str = "") -> None:
        self._task = task
        self._sums = np.zeros([3, _FINE])  # items, predictions, relevant items

    def __call__(self, by_task: Mapping[str, ListBatch]) -> None:
        """Adds the items of a batch; an item is relevant if its label is above 0."""
        batch = by_task[self._task]
        scores = batch.scores[batch.mask].astype(np.float64)
        # Bins of scores, not of probabilities, separate small probabilities.
        shares = (np.clip(scores, -_LIMIT, _LIMIT) + _LIMIT) / (2 * _LIMIT)
        bins = np.minimum((shares * _FINE).astype(np.int64), _FINE - 1)
        predictions = np.exp(-np.logaddexp(0.0, -scores))
        for row, weights in enumerate((None, predictions, batch.labels[batch.mask] > 0)):
            self._sums[row] += np.bincount(bins, weights, _FINE)

    def result(self) -> Calibration | None:
        """The calibration over all batches; None without items."""
        from scipy.stats import binomtest  # takes long to load

        total = self._sums[0].sum()
        if not total:
            return None
        before = np.cumsum(self._sums[0]) - self._sums[0]
        groups = np.minimum((before * NUM_BINS / total).astype(np.int64), NUM_BINS - 1)
        sums = np.stack([np.bincount(groups, row, NUM_BINS) for row in self._sums])
        items, predictions, relevant = sums[:, sums[0] > 0]
        predicted, observed = predictions / items, relevant / items
        intervals = [
            binomtest(int(r), int(n)).proportion_ci(method="wilson")
            for r, n in zip(relevant, items, strict=True)
        ]
        low, high = np.transpose(intervals).tolist()
        return Calibration(
            predicted.tolist(),
            observed.tolist(),
            low,
            high,
            float(predictions.sum() / total),
            float(relevant.sum() / total),
            float((items * np.abs(predicted - observed)).sum() / total),
        )
