import dataclasses
import warnings

import numpy as np
import pytest
from scipy import stats

from tests.evaluation.lists import random_batch
from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import PerListResult, evaluate_lists
from tfr_moe.evaluation.significance import (
    aligned_values,
    compare,
    difference_interval,
    seed_interval,
)


def result(values, ids=None) -> PerListResult:
    values = np.asarray(values, float)
    ids = [f"q{i}" for i in range(len(values))] if ids is None else ids
    return PerListResult(
        list_ids=np.array(ids, dtype=object),
        values={"mrr": values},
        nothing_relevant={"mrr": np.isnan(values)},
        num_items=np.full(len(values), 5),
        num_relevant=np.where(np.isnan(values), 0, 1),
    )


def two_results(seed=0, lists=200):
    batch = random_batch(np.random.default_rng(seed), lists=lists)
    better = dataclasses.replace(batch, scores=batch.scores + 0.2 * batch.labels)
    return evaluate_lists([better]), evaluate_lists([batch])


def test_worked_out_by_hand():
    # Differences 0.1, 0.3, 0.2: mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641, 2 d.f.
    actual = compare(result([0.5, 0.9, 0.4]), result([0.4, 0.6, 0.2]), "mrr")
    assert actual.difference == pytest.approx(0.2)
    assert (actual.mean_a, actual.mean_b) == pytest.approx((0.6, 0.4))
    assert actual.p_value == pytest.approx(0.0742, abs=1e-4)
    assert actual.evaluated == 3


def test_one_model_that_does_not_vary_worked_out_by_hand():
    # Differences of the means over runs 0.2, 0.5, -0.1: mean 0.2, V_l = 0.09 / 3 = 0.03. Means of
    # the runs of b 0.3 and 0.5: V_b = 0.02 / 2 = 0.01. t is 4.302653 for two degrees of freedom and
    # 12.706205 for one, 0.25^1.8 = 0.0824692: 0.04 (18.51282 + 142.93482 * 0.0824692) = 1.212022.
    a = np.array([[0.5, 0.9, 0.4]] * 2)
    b = np.array([[0.2, 0.3, 0.4], [0.4, 0.5, 0.6]])
    actual = difference_interval(a, b)
    assert actual.includes_seeds
    assert (actual.low, actual.high) == pytest.approx((0.2 - 1.100919, 0.2 + 1.100919), abs=1e-6)
    mirrored = difference_interval(b, a)
    assert (mirrored.low, mirrored.high) == pytest.approx((-actual.high, -actual.low))
    assert mirrored.p_value == actual.p_value


def test_lists_are_paired_by_id_whatever_their_order():
    a, b = two_results()
    order = np.random.default_rng(1).permutation(len(b))
    shuffled = dataclasses.replace(
        b,
        list_ids=b.list_ids[order],
        values={n: v[order] for n, v in b.values.items()},
        nothing_relevant={n: v[order] for n, v in b.nothing_relevant.items()},
    )
    for metric in a.values:
        assert compare(a, shuffled, metric) == compare(a, b, metric)


def test_two_results_give_scipys_paired_t_test_on_the_evaluated_lists():
    a, b = two_results()
    for metric in a.values:
        evaluated = ~np.isnan(a.values[metric])
        expected = stats.ttest_rel(a.values[metric][evaluated], b.values[metric][evaluated])
        actual = compare(a, b, metric)
        assert actual.p_value == pytest.approx(expected.pvalue, rel=1e-9)
        interval = expected.confidence_interval(0.95)
        assert (actual.low, actual.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
        assert actual.evaluated == evaluated.sum() < len(a)
        assert not actual.includes_seeds


def test_identical_results_differ_by_nothing_with_p_one_and_no_warning():
    a, _ = two_results()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = compare(a, a, "mrr")
    assert (actual.difference, actual.low, actual.high, actual.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_constant_difference_has_p_zero_and_no_warning():
    # 0.9 - 0.8 and 0.3 - 0.2 differ in the last place only.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = compare(result([0.9, 0.3, 0.5]), result([0.8, 0.2, 0.4]), "mrr")
    assert (actual.low, actual.high) == pytest.approx((0.1, 0.1))
    assert actual.p_value == 0.0


@pytest.mark.parametrize(("values", "evaluated"), [([0.5], 1), ([np.nan, np.nan], 0)])
def test_below_two_lists_there_is_neither_interval_nor_p(values, evaluated):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = compare(result(values), result(values), "mrr")
    assert actual.evaluated == evaluated
    assert np.isnan([actual.low, actual.high, actual.p_value]).all()


def test_the_policy_decides_which_lists_are_compared():
    a, b = result([1.0, 0.5, np.nan]), result([0.5, 0.5, np.nan])
    assert compare(a, b, "mrr").difference == pytest.approx(0.25)
    zero = compare(a, b, "mrr", policy="zero")
    assert (zero.evaluated, zero.difference) == (3, pytest.approx(0.5 / 3))


def test_results_of_other_lists_are_refused():
    a = result([1.0, 0.5], ["x", "y"])
    with pytest.raises(UserError, match="1 only in the first, 1 only in the second, such as 'y'"):
        compare(a, result([1.0, 0.5], ["x", "z"]), "mrr")
    with pytest.raises(UserError, match="1 only in the first, 0 only in the second, such as 'y'"):
        compare(a, result([1.0], ["x"]), "mrr")
    with pytest.raises(UserError, match="lists without an ID cannot be paired"):
        compare(result([1.0], [""]), result([1.0], [""]), "mrr")
    with pytest.raises(UserError, match="list 'y': mrr is defined in one of the two results only"):
        compare(a, result([1.0, np.nan], ["x", "y"]), "mrr")


def test_seed_interval_of_three_runs():
    actual = seed_interval([0.70, 0.72, 0.74])
    assert actual.mean == pytest.approx(0.72)
    assert actual.standard_deviation == pytest.approx(0.02)
    assert actual.high - actual.mean == pytest.approx(4.302653 * 0.02 / np.sqrt(3), rel=1e-6)
    assert actual.runs == 3


def test_seed_interval_of_one_run_has_a_mean_only():
    actual = seed_interval([0.7])
    assert actual.mean == 0.7 and np.isnan([actual.low, actual.high]).all()


def test_values_of_runs_are_aligned_by_list():
    values = aligned_values(
        [result([0.1, np.nan, 0.3], ["x", "y", "z"]), result([np.nan, 0.5, 0.4], ["y", "z", "x"])],
        "mrr",
    )
    assert values.tolist() == [[0.1, 0.3], [0.4, 0.5]]


def test_rounding_errors_are_no_difference():
    # Sums in another order differ by a unit in the last place, all in one direction.
    values = np.linspace(0.3, 0.6, 9)
    actual = compare(result(values), result(values - 1e-16), "mrr")
    assert actual.p_value == 1.0
    assert (actual.low, actual.high) == pytest.approx((0.0, 0.0), abs=1e-12)


def test_an_interval_over_seeds_and_lists_by_hand():
    a, b = np.array([[1.0, 3.0], [3.0, 5.0]]), np.array([[0.0, 1.0], [2.0, 1.0]])
    # Run means 2, 4 and 1/2, 3/2: V_a = 2 / 2, V_b = 1/2 / 2. Differences over lists 1, 3: 2 / 2,
    # less the residuals of b, four of +-1/2: 1 / (2 * 2). V = 1 + 1/4 + 3/4, D = 2.
    freedom = 2**2 / (1.0**2 + 0.25**2 + 0.75**2)
    half_width = stats.t.ppf(0.975, freedom) * np.sqrt(2)
    actual = difference_interval(a, b)
    assert (actual.low, actual.high) == pytest.approx((2 - half_width, 2 + half_width))
    assert actual.p_value == pytest.approx(2 * stats.t.sf(np.sqrt(2), freedom))
    assert actual.includes_seeds


def test_an_interval_where_one_model_does_not_vary_by_seed_by_hand():
    a, b = np.array([[1.0, 3.0], [3.0, 5.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    # V_a = 2 / 2 and V_l = 2 / 2 - 1 / (2 * 2), each with one degree of freedom; D = 5/2.
    actual = difference_interval(a, b)
    half_width = stats.t.ppf(0.975, 1) * np.sqrt(1.75)
    assert (actual.low, actual.high) == pytest.approx((2.5 - half_width, 2.5 + half_width))
    assert actual.p_value == pytest.approx(2 * stats.t.sf(2.5 / np.sqrt(1.75), 1))
    assert difference_interval(a + 1e17, b).p_value == 0.0


def test_one_run_on_either_side_gives_an_interval_over_lists_only():
    rng = np.random.default_rng(2)
    runs, single = rng.random((4, 30)), rng.random((1, 30))
    actual = difference_interval(runs, single)
    expected = stats.ttest_rel(runs.mean(axis=0), single[0])
    assert actual.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert not actual.includes_seeds
    assert not difference_interval(single, runs).includes_seeds


def test_runs_without_spread_give_the_interval_over_lists():
    a, b = two_results(lists=400)
    repeated = compare([a, a, a], [b, b], "ndcg")
    single = compare(a, b, "ndcg")
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high), rel=1e-9)
    assert (repeated.runs_a, repeated.runs_b, repeated.includes_seeds) == (3, 2, True)


def test_a_difference_within_seed_variance_is_not_significant_though_every_list_agrees():
    """The case that a test over lists alone gets wrong: seeds move all lists together."""
    lists = np.linspace(0.3, 0.9, 400)
    a, b = (
        [result(lists + 0.01 * shift) for shift in np.random.default_rng(seed).normal(size=5)]
        for seed in (3, 2)
    )
    actual = compare(a, b, "mrr")
    assert actual.p_value > 0.05
    assert actual.low < 0 < actual.high
    assert compare(a[0], b[0], "mrr").p_value < 1e-60


def test_compare_aligns_the_lists_of_several_runs():
    runs_a = [
        result([0.9, 0.7, np.nan], ["x", "y", "z"]),
        result([np.nan, 0.7, 0.9], ["z", "y", "x"]),
    ]
    runs_b = [result([0.2, np.nan, 0.4], ["y", "z", "x"])] * 2
    actual = compare(runs_a, runs_b, "mrr")
    # On list x 0.9 - 0.4 and on y 0.7 - 0.2 in every run.
    assert (actual.difference, actual.low, actual.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (actual.runs_a, actual.runs_b, actual.evaluated) == (2, 2, 2)
    with pytest.raises(UserError, match="at least one result"):
        compare(runs_a, [], "mrr")
