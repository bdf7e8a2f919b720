"""Statistics by signed ranks, which a few outliers do not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_ROUNDING = 1e-12


@dataclass(frozen=True)
class RankInterval:
    """A centre and its interval by signed ranks; NaN with too few values."""

    centre: float
    low: float
    high: float


def rank_interval(
    values: Sequence[float] | NDArray[np.float64], level: float = 0.95
) -> RankInterval:
    r"""The Hodges-Lehmann estimate of a centre, with the interval of Wilcoxon's signed-rank test.

    The estimate is the median of the n (n + 1) / 2 means of two values, including each with itself.
    The interval omits the c - 1 lowest and highest of these, c - 1 being the largest rank sum T
    with P(T) <= (1 - level) / 2 under random signs; it includes 0 exactly if the test at that level
    does not reject 0. Unlike a mean it is robust to outliers.

    Args:
        values: a sample of a symmetric distribution, such as differences of pairs.
        level: confidence level.

    Example:
        >>> rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
        RankInterval(centre=3.5, low=1.0, high=60.0)
    """
    ordered = np.asarray(values, np.float64)
    count = len(ordered)
    if not count:
        return RankInterval(*[float("nan")] * 3)
    means = np.sort(np.add.outer(ordered, ordered)[np.triu_indices(count)] / 2)
    # The distribution of the rank sum: each rank is in the sum with probability 1/2.
    distribution = np.array([1.0])
    for rank in range(1, count + 1):
        distribution = (np.pad(distribution, (0, rank)) + np.pad(distribution, (rank, 0))) / 2
    outside = int(np.searchsorted(np.cumsum(distribution), (1 - level) / 2 + 1e-12, side="right"))
    centre = float(np.median(means))
    if not outside:
        return RankInterval(centre, float("nan"), float("nan"))
    return RankInterval(centre, float(means[outside - 1]), float(means[-outside]))


def wilcoxon(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; 1 if all are 0, NaN without values.

    Values below 1e-12 are rounding errors and count as 0.

    Example:
        >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])  # all ranks on one side: 2 / 2^5
        0.0625
    """
    differences = np.asarray(values, np.float64)
    differences = np.where(np.abs(differences) < _ROUNDING, 0.0, differences)
    if not len(differences):
        return float("nan")
    return float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0
