"""Claims about kinds of models: several training runs of each, tested together and corrected together.

A difference between two trained models says nothing of the next training. Here each kind of model has
several runs with different seeds, and each comparison is looked at in three ways, which ask different
questions:

- over **seeds and lists** at once (two-level bootstrap): would it hold with other runs on other lists?
  Below some five runs the bootstrap has too few to draw from and its interval comes out too narrow;
- over **seeds** (Welch's t-test of the runs' means): would it hold with other runs on these lists? It is
  right for few runs, too;
- over **lists** (Wilcoxon's signed-rank test of the means over runs): would it hold on other lists with
  these runs? It knows nothing of the seed, and finds with many lists what no second training repeats.

All comparisons of one metric are a family, whose p-values are corrected together by Holm's method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import Array, Floats
from tfr_moe.evaluation.result import PerListResult, Policy
from tfr_moe.evaluation.significance import seed_matrix, two_level_bootstrap

_P_VALUES = ("p_both", "p_seeds", "p_lists")


@dataclass(frozen=True)
class Claim:
    """The difference model - reference in one metric, tested over seeds and lists.

    Attributes:
        metric: its name.
        model: one kind of model.
        reference: the other.
        difference: of the means over runs and lists.
        low: lower end of the 95 % two-level bootstrap interval over runs and lists.
        high: upper end.
        p_both: two-sided p-value of the same bootstrap.
        p_seeds: of Welch's t-test of the runs' means; NaN below two runs on either side.
        p_lists: of Wilcoxon's signed-rank test over lists of the means over runs.
        holm_both: `p_both` after Holm's correction within the metric's family.
        holm_seeds: `p_seeds` after it.
        holm_lists: `p_lists` after it.
        effect_seeds: Hedges' g of the runs' means (see `hedges_g`).
        effect_lists: rank-biserial correlation over lists (see `rank_biserial`).
        runs: number of runs of the model.
        reference_runs: number of runs of the reference.
        judged: number of lists that the metric could judge.
        lists: number of all lists.
    """

    metric: str
    model: str
    reference: str
    difference: float
    low: float
    high: float
    p_both: float
    p_seeds: float
    p_lists: float
    holm_both: float
    holm_seeds: float
    holm_lists: float
    effect_seeds: float
    effect_lists: float
    runs: int
    reference_runs: int
    judged: int
    lists: int


def hedges_g(a: Array, b: Array) -> float:
    r"""Difference of two means in pooled standard deviations, corrected for small samples.

    $$ g = J \frac{\bar a - \bar b}{s}, \quad s^2 = \frac{(n_a - 1) s_a^2 + (n_b - 1) s_b^2}
       {n_a + n_b - 2}, \quad J = 1 - \frac{3}{4 (n_a + n_b - 2) - 1} $$

    (Hedges 1981). NaN below two values on either side; 0 or infinite without any spread.

    Example:
        >>> round(hedges_g([3.0, 5.0], [1.0, 3.0]), 4)  # 2 / sqrt(2) and J = 1 - 3 / 7
        0.8081
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(len(a), len(b)) < 2:
        return float("nan")
    freedom = len(a) + len(b) - 2
    squares = (len(a) - 1) * np.var(a, ddof=1) + (len(b) - 1) * np.var(b, ddof=1)
    pooled = float(squares / freedom)
    gap = float(np.mean(a) - np.mean(b))
    if _none(pooled, gap):
        return 0.0 if gap == 0 else float(np.copysign(np.inf, gap))
    return (1 - 3 / (4 * freedom - 1)) * gap / pooled**0.5


def _none(variance: float, gap: float) -> bool:
    """Whether a variance is 0 up to rounding beside the gap that it is to be compared with."""
    return variance**0.5 <= 1e-12 * abs(gap)


def rank_biserial(differences: Array) -> float:
    r"""How one-sided paired differences are: (R+ - R-) / (R+ + R-) in [-1, 1].

    R+ and R- are the sums of the ranks of the absolute values of positive and negative differences,
    as in Wilcoxon's test; zeros are left out (Kerby 2014). 0 where all differences are 0.

    Example:
        >>> round(rank_biserial([1.0, 2.0, -3.0, 0.0]), 4)  # (1 + 2 - 3) / 6
        0.0
    """
    nonzero = np.asarray(differences, np.float64)
    nonzero = nonzero[nonzero != 0]
    if not len(nonzero):
        return 0.0
    ranks = stats.rankdata(np.abs(nonzero))
    return float(np.sum(np.sign(nonzero) * ranks) / np.sum(ranks))


def welch(a: Array, b: Array) -> float:
    """Two-sided p-value of Welch's t-test of two samples; NaN below two values on either side.

    Example:
        >>> round(welch([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]), 4)
        0.2879
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(len(a), len(b)) < 2:
        return float("nan")
    gap = float(np.mean(a) - np.mean(b))
    if _none(float(np.var(a) + np.var(b)), gap):
        # t is 0/0 or infinite; scipy would warn and return NaN or 0.
        return 1.0 if gap == 0 else 0.0
    # By moments: given a sample of equal values, as by a model without chance, scipy would warn.
    moments = [(np.mean(x), np.std(x, ddof=1), len(x)) for x in (a, b)]
    return float(stats.ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False).pvalue)


def wilcoxon(differences: Array) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; 1 where all are 0, NaN without any.

    Example:
        >>> wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0])  # all ranks on one side: 2 / 2^5
        0.0625
    """
    differences = np.asarray(differences, np.float64)
    if not len(differences):
        return float("nan")
    if not differences.any():
        return 1.0
    return float(stats.wilcoxon(differences).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values after Holm's step-down correction of a family (1979); NaN stay and don't count.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none becomes less than the one
    before it, or more than 1.

    Raises:
        UserError: where statsmodels is not installed.

    Example:
        >>> [round(p, 4) for p in holm([0.03, 0.01, float("nan"), 0.04])]
        [0.06, 0.03, nan, 0.06]
    """
    try:
        from statsmodels.stats.multitest import multipletests
    except ImportError:
        raise UserError(
            "tests of several comparisons need statsmodels: pip install 'tfr_moe[report]'"
        ) from None
    given = np.asarray(p_values, np.float64)
    known = ~np.isnan(given)
    if known.any():
        given[known] = multipletests(given[known], method="holm")[1]
    return [float(p) for p in given]


def _claim(
    metric: str, names: tuple[str, str], a: Floats, b: Floats, lists: int, resamples: int, seed: int
) -> Claim:
    """One comparison, not corrected yet: `a` and `b` are [runs, judged lists]."""
    both = two_level_bootstrap(a, b, resamples, seed)
    means_a, means_b = a.mean(axis=1), b.mean(axis=1)
    differences = a.mean(axis=0) - b.mean(axis=0)
    nothing = float("nan")
    return Claim(
        metric=metric,
        model=names[0],
        reference=names[1],
        difference=both.difference,
        low=both.low,
        high=both.high,
        p_both=both.p_value,
        p_seeds=welch(means_a, means_b),
        p_lists=wilcoxon(differences),
        holm_both=nothing,
        holm_seeds=nothing,
        holm_lists=nothing,
        effect_seeds=hedges_g(means_a, means_b),
        effect_lists=rank_biserial(differences),
        runs=len(a),
        reference_runs=len(b),
        judged=a.shape[1],
        lists=lists,
    )


def claims(
    results: Mapping[str, Sequence[PerListResult]],
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str] | None = None,
    policy: Policy = "skip",
    resamples: int = 2000,
    seed: int = 0,
) -> list[Claim]:
    """Compares kinds of models by several runs of each, all on the same lists.

    Args:
        results: per kind of model a result for each of its runs.
        pairs: (model, reference) for each comparison; for one metric these are a family.
        metrics: names; None for all that were computed.
        policy: what lists with nothing relevant count.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Returns:
        A claim for each metric and pair, in this order.

    Raises:
        UserError: for a name without runs, runs of other lists, a metric that judges no list, or
            without statsmodels.
    """
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if not results.get(name):
            raise UserError(f"model {name!r} has no run to compare; there are {', '.join(results)}")
    if not pairs:
        return []
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    found: list[Claim] = []
    for metric in metrics or tuple(results[names[0]][0].values):
        values = _matrices(results, names, metric, policy)
        lists = len(results[names[0]][0])
        family = [
            _claim(metric, pair, values[pair[0]], values[pair[1]], lists, resamples, seed)
            for pair in pairs
        ]
        found += _corrected(family)
    return found


def _matrices(
    results: Mapping[str, Sequence[PerListResult]],
    names: Sequence[str],
    metric: str,
    policy: Policy,
) -> dict[str, Floats]:
    """Per model [runs, judged lists], the lists of all in one order."""
    matrix, _ = seed_matrix([run for name in names for run in results[name]], metric, policy)
    if not matrix.shape[1]:
        raise UserError(f"metric {metric!r} can judge none of the lists")
    values, start = {}, 0
    for name in names:
        values[name] = matrix[start : start + len(results[name])]
        start += len(results[name])
    return values


def _corrected(family: Sequence[Claim]) -> list[Claim]:
    adjusted: dict[str, list[Any]] = {
        name.replace("p_", "holm_"): holm([getattr(claim, name) for claim in family])
        for name in _P_VALUES
    }
    return [
        dataclasses.replace(claim, **{name: values[i] for name, values in adjusted.items()})
        for i, claim in enumerate(family)
    ]
