"""Whether a difference between models is more than chance.

A test over lists asks whether the difference would hold on other lists like these, **for these two
trained models**. It knows nothing of the seed: another training run of the same configuration may
move a metric by more than the interval is wide. `seed_interval` looks at several runs, and
`compare_runs` at runs and lists at once; a claim about a *kind* of model needs one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import Array, Floats
from tfr_moe.evaluation.result import CONFIDENCE, PerListResult, Policy, t_interval

_CHUNK = 4_000_000  # numbers drawn at a time by the bootstraps: some 64 MB


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of one metric on the same lists.

    Attributes:
        metric: its name.
        mean_a: mean of a over the lists that both were judged on.
        mean_b: mean of b over them.
        difference: mean of the per-list differences a - b.
        low: lower end of the 95 % percentile bootstrap interval over lists; NaN below two lists.
        high: upper end.
        p_value: of the two-sided paired t-test; 1 where a and b are equal on every list, NaN below
            two lists.
        judged: number of lists.
        policy: what lists with nothing relevant count.
    """

    metric: str
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_value: float
    judged: int
    policy: Policy


@dataclass(frozen=True)
class SeedInterval:
    """Mean over runs of one configuration with a 95 % t interval; NaN below two runs."""

    mean: float
    low: float
    high: float
    standard_deviation: float
    runs: int


@dataclass(frozen=True)
class TwoLevelInterval:
    """Difference of means over runs and lists with a 95 % percentile bootstrap interval.

    `p_value` is two-sided: twice the smaller share of resamples at or beyond 0, the observed one
    counted among them, so that it is never 0.
    """

    difference: float
    low: float
    high: float
    p_value: float
    runs_a: int
    runs_b: int
    lists: int


def alignment(a: PerListResult, b: PerListResult) -> Array:
    """[n] indices that bring the lists of `b` into the order of those of `a`.

    Raises:
        UserError: where the two don't hold the same lists or lists have no id.
    """
    if np.array_equal(a.list_ids, b.list_ids) and not (a.list_ids == "").any():
        return np.arange(len(a))
    if (a.list_ids == "").any() or (b.list_ids == "").any():
        raise UserError("lists without an id can't be paired: the data need a list id")
    only_a, only_b = np.setdiff1d(a.list_ids, b.list_ids), np.setdiff1d(b.list_ids, a.list_ids)
    if len(only_a) or len(only_b):
        example = (only_a if len(only_a) else only_b)[0]
        raise UserError(
            f"results are of different lists: {len(only_a)} only in the first, {len(only_b)} only "
            f"in the second, such as {str(example)!r}"
        )
    order_b = np.argsort(b.list_ids, kind="stable")
    return order_b[np.searchsorted(b.list_ids, a.list_ids, sorter=order_b)]


def paired(
    a: PerListResult, b: PerListResult, metric: str, policy: Policy = "skip"
) -> tuple[Floats, Floats]:
    """The values of two results on the lists that the metric can judge, list by list.

    Raises:
        UserError: where the lists differ, or a list is judged in one result only (then their labels
            or positions differ).
    """
    order = alignment(a, b)
    values_a, values_b = a.with_policy(metric, policy), b.with_policy(metric, policy)[order]
    odd = np.flatnonzero(np.isnan(values_a) != np.isnan(values_b))
    if len(odd):
        raise UserError(
            f"list {str(a.list_ids[odd[0]])!r} has another {metric} judgement in the two results: "
            "their labels or positions differ"
        )
    judged = ~np.isnan(values_a)
    return values_a[judged], values_b[judged]


def _constant(differences: Floats) -> bool:
    """Whether the differences are equal up to rounding: then they have no spread to test against."""
    return bool(np.ptp(differences) <= 1e-12 * np.abs(differences).max())


def _t_test(a: Floats, b: Floats) -> float:
    differences = a - b
    if len(differences) < 2:
        return float("nan")
    if _constant(differences):
        # t is 0/0 or infinite; scipy would warn and return NaN or 0.
        return 0.0 if differences[0] else 1.0
    return float(stats.ttest_rel(a, b).pvalue)


def _bootstrap(differences: Floats, resamples: int, seed: int) -> tuple[float, float]:
    if len(differences) < 2:
        return float("nan"), float("nan")
    if _constant(differences):
        return float(differences[0]), float(differences[0])
    # Resampling pairs and taking the difference of means is resampling the pairs' differences.
    interval = stats.bootstrap(
        (differences,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _CHUNK // len(differences)),
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def compare(
    a: PerListResult,
    b: PerListResult,
    metric: str,
    policy: Policy = "skip",
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compares two models on the same lists: a minus b, paired list by list.

    The p-value is of the paired t-test, the interval of a percentile bootstrap over lists. Both hold
    the two trained models fixed and **ignore the seed of their training**.

    Args:
        a: one model's result.
        b: the other's, of the same lists in any order.
        metric: a metric computed in both.
        policy: what lists with nothing relevant count.
        resamples: number of bootstrap resamples.
        seed: of the bootstrap; the same seed gives the same interval.

    Raises:
        UserError: where the results are not of the same lists and labels.
    """
    values_a, values_b = paired(a, b, metric, policy)
    differences = values_a - values_b
    low, high = _bootstrap(differences, resamples, seed)
    some = len(differences) > 0
    return Comparison(
        metric=metric,
        mean_a=float(np.mean(values_a)) if some else float("nan"),
        mean_b=float(np.mean(values_b)) if some else float("nan"),
        difference=float(np.mean(differences)) if some else float("nan"),
        low=low,
        high=high,
        p_value=_t_test(values_a, values_b),
        judged=len(differences),
        policy=policy,
    )


def seed_interval(values: Sequence[float] | Array) -> SeedInterval:
    """Mean and 95 % t interval of one number measured in several runs with different seeds.

    Example:
        >>> found = seed_interval([0.70, 0.72, 0.74])
        >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4)
        (0.72, 0.6703, 0.7697)
    """
    runs = np.asarray(values, np.float64)
    mean, _, low, high = t_interval(runs)
    deviation = float(np.std(runs, ddof=1)) if len(runs) > 1 else float("nan")
    return SeedInterval(mean, low, high, deviation, len(runs))


@dataclass(frozen=True)
class RankInterval:
    """A centre and its interval by signed ranks. NaN where there are too few values for an interval."""

    centre: float
    low: float
    high: float


def rank_interval(values: Sequence[float] | Array, level: float = 0.95) -> RankInterval:
    r"""The Hodges-Lehmann estimate of a centre, and the interval that Wilcoxon's signed ranks give it.

    The estimate is the median of the n (n + 1) / 2 means of two values, each with itself among them. The
    interval leaves out the c - 1 lowest and highest of these, c - 1 being the largest rank sum T with
    P(T) <= (1 - level) / 2 under the hypothesis that the signs are a toss; it holds 0 exactly where the test
    at that level does not refuse 0. A few values that are far out hardly move it, unlike a mean.

    Args:
        values: from a distribution that is symmetric about its centre, such as differences of pairs.
        level: of the interval.

    Example:
        >>> rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
        RankInterval(centre=3.5, low=1.0, high=60.0)
    """
    ordered = np.asarray(values, np.float64)
    count = len(ordered)
    if not count:
        return RankInterval(*[float("nan")] * 3)
    means = np.sort(np.add.outer(ordered, ordered)[np.triu_indices(count)] / 2)
    # The law of the rank sum: each rank counts or does not.
    law = np.array([1.0])
    for rank in range(1, count + 1):
        law = (np.pad(law, (0, rank)) + np.pad(law, (rank, 0))) / 2
    outside = int(np.searchsorted(np.cumsum(law), (1 - level) / 2 + 1e-12, side="right"))
    centre = float(np.median(means))
    if not outside:
        return RankInterval(centre, float("nan"), float("nan"))
    return RankInterval(centre, float(means[outside - 1]), float(means[-outside]))


def seed_matrix(
    results: Sequence[PerListResult], metric: str, policy: Policy = "skip"
) -> tuple[Floats, Array]:
    """The values of several runs on the same lists: [runs, judged lists], and the lists' ids.

    Raises:
        UserError: where the runs are not of the same lists and labels.
    """
    first = results[0]
    rows = []
    for result in results:
        paired(first, result, metric, policy)
        rows.append(result.with_policy(metric, policy)[alignment(first, result)])
    judged = ~np.isnan(rows[0])
    return np.stack(rows)[:, judged], first.list_ids[judged]


def _draw_shares(rng: np.random.Generator, size: int, draws: int) -> Floats:
    """[draws, size]: the share that each of `size` units has in a resample with replacement."""
    picked = rng.integers(size, size=(draws, size)) + size * np.arange(draws)[:, None]
    return np.bincount(picked.ravel(), minlength=draws * size).reshape(draws, size) / size


def _two_sided(drawn: Floats) -> float:
    beyond = min(int(np.sum(drawn <= 0)), int(np.sum(drawn >= 0)))
    return min(1.0, 2 * (beyond + 1) / (len(drawn) + 1))


def two_level_bootstrap(
    values_a: Array, values_b: Array, resamples: int = 2000, seed: int = 0
) -> TwoLevelInterval:
    """Interval of the difference a - b over training runs and lists at once.

    Each resample draws runs of a, runs of b and lists, with replacement; the lists are the same for
    both. With few runs the interval is itself rough: three runs have ten different resamples.

    Args:
        values_a: [runs of a, lists] per-list values without NaN (see `seed_matrix`).
        values_b: [runs of b, lists], the same lists in the same order.
        resamples: number of resamples.
        seed: the same seed gives the same interval.

    Raises:
        UserError: for arrays without the same lists, or with NaN.

    Example:
        >>> a, b = np.array([[0.9, 0.7], [0.9, 0.7]]), np.array([[0.4, 0.2]])
        >>> two_level_bootstrap(a, b).difference
        0.5
    """
    values_a, values_b = np.asarray(values_a, np.float64), np.asarray(values_b, np.float64)
    if values_a.ndim != 2 or values_b.ndim != 2 or values_a.shape[1] != values_b.shape[1]:
        raise UserError(
            f"two_level_bootstrap needs [runs, lists] arrays of the same lists, got shapes "
            f"{values_a.shape} and {values_b.shape}"
        )
    if not values_a.size or not values_b.size or np.isnan(values_a.sum() + values_b.sum()):
        raise UserError("two_level_bootstrap needs runs and lists, and values without NaN")
    rng = np.random.default_rng(seed)
    lists = values_a.shape[1]
    chunk = max(1, _CHUNK // lists)
    differences = []
    for start in range(0, resamples, chunk):
        draws = min(chunk, resamples - start)
        mean_a = _draw_shares(rng, len(values_a), draws) @ values_a
        mean_b = _draw_shares(rng, len(values_b), draws) @ values_b
        shares = _draw_shares(rng, lists, draws)
        differences.append(np.sum((mean_a - mean_b) * shares, axis=1))
    tail = (1 - CONFIDENCE) / 2
    drawn = np.concatenate(differences)
    return TwoLevelInterval(
        difference=float(values_a.mean() - values_b.mean()),
        low=float(np.quantile(drawn, tail)),
        high=float(np.quantile(drawn, 1 - tail)),
        p_value=_two_sided(drawn),
        runs_a=len(values_a),
        runs_b=len(values_b),
        lists=lists,
    )


def compare_runs(
    runs_a: Sequence[PerListResult],
    runs_b: Sequence[PerListResult],
    metric: str,
    policy: Policy = "skip",
    resamples: int = 2000,
    seed: int = 0,
) -> TwoLevelInterval:
    """Compares two kinds of models by several training runs of each: a minus b, over runs and lists.

    The lists of all runs are brought into one order before `two_level_bootstrap`.

    Raises:
        UserError: where the runs are not of the same lists and labels, or there are none.
    """
    if not runs_a or not runs_b:
        raise UserError("compare_runs needs at least one run on either side")
    values, _ = seed_matrix([*runs_a, *runs_b], metric, policy)
    return two_level_bootstrap(values[: len(runs_a)], values[len(runs_a) :], resamples, seed)
