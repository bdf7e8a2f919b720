"""Differences between models, with an interval and a p-value over lists and over seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import CONFIDENCE, PerListResult, Policy, t_interval
from tfr_moe.metrics.per_list import Array, Floats

_ROUNDING = 1e-12
"""Differences and standard errors of metrics below this are rounding errors."""
_SMALLEST_P = 1e-15


class DifferenceInterval(NamedTuple):
    """95 % interval and two-sided p-value of a difference; NaN below two lists.

    `includes_seeds` says whether the variance over seeds is included.
    """

    low: float
    high: float
    p_value: float
    includes_seeds: bool


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of one metric on the same lists.

    Attributes:
        mean_a: mean of a over its runs and the evaluated lists.
        low: lower end of the 95 % interval of `difference_interval`, `high` its upper end; NaN
            below two lists.
        p_value: two-sided, by the same t statistic; 1 if a and b are equal on every list.
        includes_seeds: whether interval and p-value include the variance over seeds, as they do
            with two or more runs on both sides.
        evaluated: number of lists on which the metric is defined.
    """

    metric: str
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_value: float
    includes_seeds: bool
    runs_a: int
    runs_b: int
    evaluated: int
    policy: Policy

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0, be it over seeds and lists or over lists only."""
        return self.low > 0 or self.high < 0

    @property
    def significant(self) -> bool:
        """Whether the interval over seeds and lists excludes 0; False without several seeds."""
        return self.includes_seeds and self.excludes_zero


@dataclass(frozen=True)
class SeedInterval:
    """Mean over runs of one configuration with a 95 % t interval; NaN below two runs."""

    mean: float
    low: float
    high: float
    standard_deviation: float
    runs: int


def alignment(a: PerListResult, b: PerListResult) -> Array:
    """[n] indices that reorder the lists of `b` as those of `a`; a `UserError` if they differ."""
    if np.array_equal(a.list_ids, b.list_ids) and not (a.list_ids == "").any():
        return np.arange(len(a))
    if (a.list_ids == "").any() or (b.list_ids == "").any():
        raise UserError("lists without an ID cannot be paired: the data needs a list ID")
    only_a, only_b = np.setdiff1d(a.list_ids, b.list_ids), np.setdiff1d(b.list_ids, a.list_ids)
    if len(only_a) or len(only_b):
        example = (only_a if len(only_a) else only_b)[0]
        raise UserError(
            f"results are of different lists: {len(only_a)} only in the first, {len(only_b)} only "
            f"in the second, such as {str(example)!r}"
        )
    order_b = np.argsort(b.list_ids, kind="stable")
    return order_b[np.searchsorted(b.list_ids, a.list_ids, sorter=order_b)]


def aligned_values(
    results: Sequence[PerListResult], metric: str, policy: Policy = "skip"
) -> Floats:
    """[results, n] values on the n lists on which the metric is defined, in the same order.

    A list on which it is defined in some results only is a `UserError`: then labels or positions
    differ.
    """
    first = results[0]
    rows = [result.with_policy(metric, policy)[alignment(first, result)] for result in results]
    values = np.stack(rows)
    undefined = np.isnan(values)
    odd = np.flatnonzero((undefined != undefined[0]).any(axis=0))
    if len(odd):
        raise UserError(
            f"list {str(first.list_ids[odd[0]])!r}: {metric} is defined in one of the two "
            "results only: their labels or positions differ"
        )
    return values[:, ~undefined[0]]


def _seed_variance(values: Floats) -> tuple[float, float]:
    """Variances of the mean of [runs, lists]: over runs, and its part from run-list interaction."""
    runs, lists = values.shape
    over_lists, over_runs = values.mean(axis=1, keepdims=True), values.mean(axis=0)
    residuals = values - over_lists - over_runs + values.mean()
    interaction = float(np.sum(residuals**2)) / ((runs - 1) * (lists - 1))
    return float(np.var(over_lists, ddof=1)) / runs, interaction / (runs * lists)


def difference_interval(values_a: Floats, values_b: Floats) -> DifferenceInterval:
    r"""The t interval of the difference of two means over runs and lists.

    With $S_a$ and $S_b$ runs, $L$ lists, $s_a^2$ and $s_b^2$ the variances of the runs' means,
    $s_d^2$ the variance over lists of the difference of the means over runs, and $e_a^2$, $e_b^2$
    the residual mean squares of runs x lists, the variance of the difference is

    $$ V = V_a + V_b + V_l, \quad V_a = \frac{s_a^2}{S_a}, \quad V_b = \frac{s_b^2}{S_b}, \quad
       V_l = \max\Big(0, \frac{s_d^2}{L} - \frac{e_a^2}{S_a L} - \frac{e_b^2}{S_b L}\Big) $$

    The residuals are subtracted because $V_a$, $V_b$ and $s_d^2 / L$ each contain them. The degrees
    of freedom are Welch's and Satterthwaite's
    ([1946](https://doi.org/10.2307/3002019)):
    $V^2 / (V_a^2 / (S_a - 1) + V_b^2 / (S_b - 1) + V_l^2 / (L - 1))$.

    If only b varies with its seed, because a is of trees without sampling, these are too many for
    two and three runs, while the quantile of $S_b - 1$ degrees of freedom is too wide where most of
    V is $V_l$. Then the half-width is the root of

    $$ t_{L - 1}^2 V + \big(t_{S_b - 1}^2 - t_{L - 1}^2\big)\, V_b\, (V_b / V)^{4/5} $$

    whose exponent was calibrated by simulation: the interval covers between 93 and 97 % for
    every share of $V_b$ in $V$, from two runs on.

    With one run on either side there is no seed variance: $V = s_d^2 / L$ with $L - 1$ degrees of
    freedom, which for one run on both sides is the paired t-test.

    Args:
        values_a: [runs of a, lists] per-list values without NaN.
        values_b: [runs of b, lists], the same lists in the same order.

    Example:
        >>> a, b = np.array([[0.5, 0.9, 0.4]]), np.array([[0.4, 0.6, 0.2]])
        >>> found = difference_interval(a, b)
        >>> round(found.low, 4), round(found.high, 4), round(found.p_value, 4)
        (-0.0484, 0.4484, 0.0742)
    """
    lists = values_a.shape[1]
    includes_seeds = min(len(values_a), len(values_b)) > 1
    if lists < 2:
        return DifferenceInterval(np.nan, np.nan, np.nan, includes_seeds)
    differences = values_a.mean(axis=0) - values_b.mean(axis=0)
    difference = float(differences.mean())
    of_lists = float(np.var(differences, ddof=1)) / lists
    parts = [(of_lists, lists - 1)]
    if includes_seeds:
        (of_a, residual_a), (of_b, residual_b) = _seed_variance(values_a), _seed_variance(values_b)
        parts = [
            (max(0.0, of_lists - residual_a - residual_b), lists - 1),
            (of_a, len(values_a) - 1),
            (of_b, len(values_b) - 1),
        ]
    parts = [(part, freedom) for part, freedom in parts if part > _ROUNDING**2]
    if not parts:  # t is 0/0 or infinite
        p_value = 1.0 if abs(difference) <= _ROUNDING else 0.0
        return DifferenceInterval(difference, difference, p_value, includes_seeds)
    if includes_seeds and len(parts) == 2 and parts[0][1] == lists - 1:
        root = functools.partial(_half_width_of_one_side, parts)
        half_width, p_value = root(1 - CONFIDENCE), _alpha_of(abs(difference), root)
    else:
        deviation, freedom = _satterthwaite(parts)
        half_width = deviation * float(-stdtrit(freedom, (1 - CONFIDENCE) / 2))
        p_value = 2 * float(stdtr(freedom, -abs(difference) / deviation))
    low, high = difference - half_width, difference + half_width
    return DifferenceInterval(low, high, p_value, includes_seeds)


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Standard deviation of a sum, and the degrees of freedom of Welch and Satterthwaite."""
    variance = sum(part for part, _ in parts)
    return variance**0.5, variance**2 / sum(part**2 / freedom for part, freedom in parts)


def _half_width_of_one_side(parts: Sequence[tuple[float, int]], alpha: float) -> float:
    """Half-width of level 1 - alpha if one model alone varies with its seed."""
    (of_lists, _), (of_seeds, _) = parts
    by_lists, by_seeds = (stdtrit(freedom, alpha / 2) ** 2 for _, freedom in parts)
    variance = of_lists + of_seeds
    share = of_seeds / variance
    return float(variance * (by_lists + (by_seeds - by_lists) * share**1.8)) ** 0.5


def _alpha_of(difference: float, half_width: Callable[[float], float]) -> float:
    """The alpha whose interval ends at 0."""
    from scipy.optimize import brentq  # takes long to load, and few comparisons need it

    if half_width(_SMALLEST_P) < difference:
        return 0.0
    return float(brentq(lambda alpha: half_width(alpha) - difference, _SMALLEST_P, 1.0))


def compare(
    a: PerListResult | Sequence[PerListResult],
    b: PerListResult | Sequence[PerListResult],
    metric: str,
    policy: Policy = "skip",
) -> Comparison:
    """Compares two models, or two kinds of models, on the same lists: a minus b.

    Interval and p-value are those of `difference_interval`. For single results they hold the two
    trained models fixed and **do not include seed variance** (`includes_seeds`), which may be
    larger; several runs that differ by their seed compare kinds of models.

    Args:
        a: one model's result, or those of several runs.
        b: the other's, of the same lists in any order.

    Raises:
        UserError: if the results are not of the same lists and labels, or there are none.
    """
    runs_a = [a] if isinstance(a, PerListResult) else list(a)
    runs_b = [b] if isinstance(b, PerListResult) else list(b)
    if not runs_a or not runs_b:
        raise UserError("compare needs at least one result on either side")
    values = aligned_values([*runs_a, *runs_b], metric, policy)
    values_a, values_b = values[: len(runs_a)], values[len(runs_a) :]
    interval = difference_interval(values_a, values_b)
    evaluated = values.shape[1]
    mean_a, mean_b = (
        float(side.mean()) if evaluated else float("nan") for side in (values_a, values_b)
    )
    return Comparison(
        metric,
        mean_a,
        mean_b,
        mean_a - mean_b,
        *interval,
        runs_a=len(runs_a),
        runs_b=len(runs_b),
        evaluated=evaluated,
        policy=policy,
    )


def seed_interval(values: Sequence[float] | Array) -> SeedInterval:
    """Mean and 95 % t interval of a number over several runs with different seeds.

    Example:
        >>> interval = seed_interval([0.70, 0.72, 0.74])
        >>> round(interval.mean, 4), round(interval.low, 4), round(interval.high, 4)
        (0.72, 0.6703, 0.7697)
    """
    runs = np.asarray(values, np.float64)
    mean, _, low, high = t_interval(runs)
    deviation = float(np.std(runs, ddof=1)) if len(runs) > 1 else float("nan")
    return SeedInterval(mean, low, high, deviation, len(runs))
