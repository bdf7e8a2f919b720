"""Weekly sums by key, and their totals over any range of weeks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray

_WEEKS = 64
"""More than the weeks of the file: key x 64 + week sorts by key, then by week."""


class Span(NamedTuple):
    """For each of some keys the weekly sums `first` to `end` (exclusive) of a range of weeks."""

    first: Array
    end: Array


class WeeklySums:
    """Counts and sums of integers by key and week.

    Args:
        keys: a key for each purchase row, integers >= 0.
        weeks: their weeks, below 64.
        values: integers to sum for each row, by name.
    """

    def __init__(self, keys: Array, weeks: Array, **values: Array):
        stamps = keys * _WEEKS + weeks
        order = np.argsort(stamps, kind="stable")
        self._stamps, starts = np.unique(stamps[order], return_index=True)
        # Integers: a difference of running totals does not depend on what other keys add.
        self._totals = {"count": np.append(starts, len(order))}
        for name, array in values.items():
            self._totals[name] = np.concatenate([[0], np.cumsum(array[order])])[
                self._totals["count"]
            ]

    def span(self, keys: Array, first: int, end: int) -> Span:
        """Returns the entries of keys in the weeks first <= week < end."""
        stamps = keys * _WEEKS
        return Span(
            np.asarray(np.searchsorted(self._stamps, stamps + max(first, 0))),
            np.asarray(np.searchsorted(self._stamps, stamps + end)),
        )

    def total(self, span: Span, name: str = "count") -> Array:
        """Returns the sums of a value, or the numbers of rows, over a span."""
        return self._totals[name][span.end] - self._totals[name][span.first]

    def first_week(self, span: Span) -> Array:
        """Returns the first week of a span, -1 where it is empty."""
        return self._week(span, span.first)

    def latest_week(self, span: Span) -> Array:
        """Returns the latest week of a span, -1 where it is empty."""
        return self._week(span, span.end - 1)

    def _week(self, span: Span, position: Array) -> Array:
        filled = span.end > span.first
        weeks = np.full(len(filled), -1)
        weeks[filled] = self._stamps[position[filled]] % _WEEKS
        return weeks


def ratio(numerator: Array, denominator: Array, default: float | Array) -> Array:
    """Returns quotients in float64, the default where the denominator is 0."""
    safe = np.where(denominator == 0, 1, denominator)
    return np.where(denominator == 0, default, numerator / safe)
