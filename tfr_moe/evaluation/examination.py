"""Examination by position, estimated from items that were shown at several positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import Bools, Floats


class ExaminationCurve(NamedTuple):
    """Examination [P] of positions 1 to P, relative to the first, with the ends of 95 % intervals.

    It is NaN for a position that cannot be compared. `pairs` is the number of query-item pairs that
    were shown at two or more positions.
    """

    examination: Floats
    low: Floats
    high: Floats
    pairs: int

    def weights(self, positions: ArrayLike, clip: float = 10.0) -> Floats:
        """Weights 1 / examination of clicks at positions [n] from 1, at most `clip`.

        Positions after P have the weight of P, those without an estimate the highest.

        Example:
            >>> ends = np.array([1.0, 0.25, 0.01])
            >>> ExaminationCurve(ends, ends, ends, 9).weights([1, 2, 3, 4]).tolist()
            [1.0, 4.0, 10.0, 10.0]
        """
        known = np.nan_to_num(self.examination, nan=0.0)
        at = np.clip(np.asarray(positions).astype(np.int64), 1, len(known)) - 1
        return 1.0 / np.maximum(known, 1.0 / clip)[at]


def examination_curve(
    frame: Any,
    pair: Sequence[str],
    list_id: str,
    position: str,
    click: str,
    max_position: int = 10,
    resamples: int = 200,
    seed: int = 0,
) -> ExaminationCurve:
    r"""Estimates the examination from the swaps of a log, as Agarwal et al. 2019 harvest them.

    For each pair of positions k and k', let S be the query-item pairs that were shown at both. The
    sums of their click rates have the ratio of the examinations,

    $$ \frac{\sum_{(q, d) \in S} c_k(q, d) / n_k(q, d)}{\sum_{(q, d) \in S} c_{k'}(q, d) /
       n_{k'}(q, d)} \approx \frac{p_k}{p_{k'}} $$

    whatever the relevances ("Estimating Position Bias without Intrusive Interventions",
    https://arxiv.org/abs/1812.05161). The logarithms of these ratios over all pairs of positions
    are solved for log p by weighted least squares. Intervals are of a bootstrap over lists.

    Args:
        frame: a data frame, or columns by name, with a row for each item shown.
        pair: columns that tell query-item pairs apart, such as `["query_id", "item_id"]`.
        position: column of positions, from 1.
        click: column of clicks; above 0 is one.
        max_position: P, the last position.

    Raises:
        UserError: if no pair was shown at two positions.
    """
    at = np.asarray(frame[position]).astype(np.int64) - 1
    rows = (at >= 0) & (at < max_position)
    keys: NDArray[np.int64] = np.zeros(int(rows.sum()), np.int64)
    for name in pair:
        codes = np.unique(np.asarray(frame[name])[rows], return_inverse=True)[1]
        keys = np.unique(keys * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
    lists = np.unique(np.asarray(frame[list_id])[rows], return_inverse=True)[1]
    clicks, at = np.asarray(frame[click])[rows] > 0, at[rows]
    # Pairs at a single position tell nothing.
    cells = np.unique(keys * max_position + at)
    repeated = np.bincount(cells // max_position, minlength=keys.max(initial=0) + 1) > 1
    useful = repeated[keys]
    if not useful.any():
        raise UserError(f"{' and '.join(pair)}: no values were shown at two or more positions")
    keys = np.unique(keys[useful], return_inverse=True)[1]
    lists, clicks, at = lists[useful], clicks[useful], at[useful]
    cell, shape = keys * max_position + at, (int(keys.max()) + 1, max_position)

    def solve(weights: Floats) -> Floats:
        impressions = np.bincount(cell, weights, shape[0] * shape[1]).reshape(shape)
        clicked = np.bincount(cell, weights * clicks, shape[0] * shape[1]).reshape(shape)
        observed = impressions > 0
        return _solve(
            np.divide(clicked, impressions, where=observed, out=np.zeros(shape)), observed
        )

    rng = np.random.default_rng(seed)
    count = int(lists.max()) + 1
    lists_drawn = (rng.integers(count, size=count) for _ in range(resamples))
    counts = (np.bincount(drawn, minlength=count).astype(np.float64) for drawn in lists_drawn)
    curves = np.array([solve(of_list[lists]) for of_list in counts])
    curve = solve(np.ones(len(at)))
    low, high = np.full([2, max_position], np.nan)
    known = ~np.isnan(curve) & ~np.isnan(curves).all(axis=0)
    low[known], high[known] = np.nanquantile(curves[:, known], [0.025, 0.975], axis=0)
    return ExaminationCurve(curve, low, high, shape[0])


def _solve(rates: Floats, observed: Bools) -> Floats:
    """Examination [P] from click rates [pairs, P] where pairs were shown."""
    sums = rates.T @ observed.astype(np.float64)  # [k, k']: at k, of the pairs shown at both
    first, second = np.nonzero(np.triu((sums > 0) & (sums.T > 0), 1))
    here, there = sums[first, second], sums[second, first]
    # The variance of the logarithm of a ratio of Poisson counts.
    weights = np.sqrt(1.0 / (1.0 / here + 1.0 / there))
    size = len(sums)
    design = np.zeros([len(first) + 1, size])
    equations = np.arange(len(first))
    design[equations, first], design[equations, second] = weights, -weights
    design[-1, 0] = 1.0  # log p_1 = 0
    target = np.append(weights * np.log(here / there), 0.0)
    solution = np.exp(np.linalg.lstsq(design, target, rcond=None)[0])
    # Only positions that a chain of comparisons links with the first are comparable.
    part = connected_components((sums > 0) & (sums.T > 0), directed=False)[1]
    return np.where(part == part[0], solution, np.nan)
