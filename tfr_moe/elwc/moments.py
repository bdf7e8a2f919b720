"""Count, mean, standard deviation and extremes of columns, mergeable over blocks of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Moments(NamedTuple):
    """Number of rows and, per column, mean, sum of squared differences from it, extremes; [m]."""

    rows: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def no_moments(width: int) -> Moments:
    """Returns the moments of no rows."""
    zero = np.zeros(width)
    return Moments(0, zero, zero, np.full(width, np.inf), np.full(width, -np.inf))


def moments_of(rows: NDArray[np.float64]) -> Moments:
    """Returns the moments of a matrix [rows, m] with at least one row."""
    mean = rows.mean(axis=0)
    m2 = np.square(rows - mean).sum(axis=0)
    return Moments(len(rows), mean, m2, rows.min(axis=0), rows.max(axis=0))


def merge(one: Moments, other: Moments) -> Moments:
    """Returns the moments of the rows of both (Chan, Golub and LeVeque 1983).

    With n = n_a + n_b and d = mean_b - mean_a:

        mean = mean_a + d n_b / n
        M2   = M2_a + M2_b + d^2 n_a n_b / n

    Example:
        >>> both = merge(moments_of(np.array([[1.0], [3.0]])), moments_of(np.array([[8.0]])))
        >>> both.rows, float(both.mean[0]), float(both.m2[0])
        (3, 4.0, 26.0)
    """
    count = one.rows + other.rows
    if not one.rows or not other.rows:
        return one if one.rows else other
    delta = other.mean - one.mean
    return Moments(
        count,
        one.mean + delta * (other.rows / count),
        one.m2 + other.m2 + np.square(delta) * (one.rows * other.rows / count),
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
    )


def describe_moments(columns: list[str], moments: Moments) -> dict[str, dict[str, float]]:
    """Returns count, mean, std, min and max by column; nothing for no rows."""
    if not moments.rows:
        return {}
    std = np.sqrt(moments.m2 / moments.rows)
    return {
        column: {
            "count": moments.rows,
            "mean": _rounded(moments.mean[i]),
            "std": _rounded(std[i]),
            "min": _rounded(moments.low[i]),
            "max": _rounded(moments.high[i]),
        }
        for i, column in enumerate(columns)
    }


def _rounded(value: float) -> float:
    # Sums taken in another order differ in the last digits; the file should not.
    return float(f"{value:.12g}")
