import dataclasses
import warnings

import numpy as np
import pytest
from scipy import stats

from tests.evaluation.lists import random_batch
from tfr_moe.errors import UserError
from tfr_moe.evaluation import significance
from tfr_moe.evaluation.result import PerListResult, evaluate_lists
from tfr_moe.evaluation.significance import (
    compare,
    compare_runs,
    paired,
    rank_interval,
    seed_interval,
    seed_matrix,
    two_level_bootstrap,
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
    found = compare(result([0.5, 0.9, 0.4]), result([0.4, 0.6, 0.2]), "mrr")
    assert found.difference == pytest.approx(0.2)
    assert (found.mean_a, found.mean_b) == pytest.approx((0.6, 0.4))
    assert found.p_value == pytest.approx(0.0742, abs=1e-4)
    assert found.judged == 3


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


def test_p_value_equals_scipy_on_the_judged_lists():
    a, b = two_results()
    for metric in a.values:
        judged = ~np.isnan(a.values[metric])
        expected = stats.ttest_rel(a.values[metric][judged], b.values[metric][judged]).pvalue
        found = compare(a, b, metric)
        assert found.p_value == pytest.approx(expected, rel=1e-9)
        assert found.judged == judged.sum() < len(a)


def test_interval_covers_the_difference_and_is_near_the_t_interval():
    a, b = two_results(lists=600)
    found = compare(a, b, "ndcg")
    values = paired(a, b, "ndcg")
    expected = stats.ttest_rel(*values).confidence_interval(0.95)
    assert found.low < found.difference < found.high
    # 600 lists: the two intervals differ by sampling of 2,000 resamples, a few % of their width.
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.high == pytest.approx(expected.high, abs=0.1 * width)


def test_interval_is_that_of_resampled_pairs():
    a, b = two_results(lists=300)
    found = compare(a, b, "mrr", resamples=4000)
    expected = stats.bootstrap(
        paired(a, b, "mrr"),
        lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis),
        paired=True,
        n_resamples=4000,
        method="percentile",
        vectorized=True,
    ).confidence_interval
    width = found.high - found.low
    assert found.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.high == pytest.approx(expected.high, abs=0.1 * width)


def test_the_same_seed_gives_the_same_interval_in_any_chunks(monkeypatch):
    a, b = two_results()
    first = compare(a, b, "mrr", seed=3)
    assert compare(a, b, "mrr", seed=3) == first
    assert compare(a, b, "mrr", seed=4).low != first.low
    monkeypatch.setattr(significance, "_CHUNK", 10_000)
    assert compare(a, b, "mrr", seed=3).low == pytest.approx(first.low, rel=1e-12)


def test_identical_results_differ_by_nothing_with_p_one_and_no_warning():
    a, _ = two_results()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(a, a, "mrr")
    assert (found.difference, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_constant_difference_has_p_zero_and_no_warning():
    # 0.9 - 0.8 and 0.3 - 0.2 differ in the last place only.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(result([0.9, 0.3, 0.5]), result([0.8, 0.2, 0.4]), "mrr")
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert found.p_value == 0.0


@pytest.mark.parametrize(("values", "judged"), [([0.5], 1), ([np.nan, np.nan], 0)])
def test_below_two_lists_there_is_neither_interval_nor_p(values, judged):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(result(values), result(values), "mrr")
    assert found.judged == judged
    assert np.isnan([found.low, found.high, found.p_value]).all()


def test_the_policy_decides_which_lists_are_compared():
    a, b = result([1.0, 0.5, np.nan]), result([0.5, 0.5, np.nan])
    assert compare(a, b, "mrr").difference == pytest.approx(0.25)
    zero = compare(a, b, "mrr", policy="zero")
    assert (zero.judged, zero.difference) == (3, pytest.approx(0.5 / 3))


def test_results_of_other_lists_are_refused():
    a = result([1.0, 0.5], ["x", "y"])
    with pytest.raises(UserError, match="1 only in the first, 1 only in the second, such as 'y'"):
        compare(a, result([1.0, 0.5], ["x", "z"]), "mrr")
    with pytest.raises(UserError, match="1 only in the first, 0 only in the second, such as 'y'"):
        compare(a, result([1.0], ["x"]), "mrr")
    with pytest.raises(UserError, match="lists without an id can't be paired"):
        compare(result([1.0], [""]), result([1.0], [""]), "mrr")
    with pytest.raises(UserError, match="list 'y' has another mrr judgement"):
        compare(a, result([1.0, np.nan], ["x", "y"]), "mrr")


def test_seed_interval_of_three_runs():
    found = seed_interval([0.70, 0.72, 0.74])
    assert found.mean == pytest.approx(0.72)
    assert found.standard_deviation == pytest.approx(0.02)
    assert found.high - found.mean == pytest.approx(4.302653 * 0.02 / np.sqrt(3), rel=1e-6)
    assert found.runs == 3


def test_seed_interval_of_one_run_has_a_mean_only():
    found = seed_interval([0.7])
    assert found.mean == 0.7 and np.isnan([found.low, found.high]).all()


def test_seed_matrix_aligns_the_runs():
    matrix, ids = seed_matrix(
        [result([0.1, np.nan, 0.3], ["x", "y", "z"]), result([np.nan, 0.5, 0.4], ["y", "z", "x"])],
        "mrr",
    )
    assert ids.tolist() == ["x", "z"]
    assert matrix.tolist() == [[0.1, 0.3], [0.4, 0.5]]


def test_two_level_bootstrap_without_spread_of_runs_is_the_one_over_lists():
    a, b = two_results(lists=400)
    values_a, values_b = paired(a, b, "ndcg")
    found = two_level_bootstrap(np.tile(values_a, (3, 1)), np.tile(values_b, (2, 1)))
    over_lists = compare(a, b, "ndcg")
    width = over_lists.high - over_lists.low
    assert found.difference == pytest.approx(over_lists.difference, rel=1e-12)
    assert found.low == pytest.approx(over_lists.low, abs=0.1 * width)
    assert found.high == pytest.approx(over_lists.high, abs=0.1 * width)
    assert (found.runs_a, found.runs_b, found.lists) == (3, 2, len(values_a))


def test_two_level_bootstrap_widens_with_the_spread_of_runs():
    rng = np.random.default_rng(1)
    lists = rng.random(300)
    steady = lists + np.zeros((5, 1))
    # Deviation of a run's mean 0.1 divided by sqrt(5) runs, both sides: about 0.06 in all.
    restless = lists + rng.normal(0, 0.1, (5, 1))
    found = two_level_bootstrap(restless, restless[::-1] + 0.05)
    assert found.high - found.low > 0.1
    still = two_level_bootstrap(steady + 0.05, steady)
    assert (still.low, still.high) == pytest.approx((0.05, 0.05))


def test_two_level_bootstrap_equals_a_loop_over_resamples():
    rng = np.random.default_rng(2)
    a, b = rng.random((4, 30)) + 0.1, rng.random((3, 30))
    found = two_level_bootstrap(a, b, resamples=4000, seed=5)
    drawn = []
    for _ in range(4000):
        lists = rng.integers(30, size=30)
        mean_a = a[rng.integers(4, size=4)][:, lists].mean()
        mean_b = b[rng.integers(3, size=3)][:, lists].mean()
        drawn.append(mean_a - mean_b)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_two_level_bootstrap_refuses_what_it_cannot_use():
    with pytest.raises(UserError, match=r"got shapes \(1, 2\) and \(1, 3\)"):
        two_level_bootstrap(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(UserError, match="values without NaN"):
        two_level_bootstrap(np.full((1, 2), np.nan), np.zeros((1, 2)))


def test_compare_runs_aligns_the_lists_of_both_sides():
    runs_a = [
        result([0.9, 0.7, np.nan], ["x", "y", "z"]),
        result([np.nan, 0.7, 0.9], ["z", "y", "x"]),
    ]
    runs_b = [result([0.2, np.nan, 0.4], ["y", "z", "x"])]
    found = compare_runs(runs_a, runs_b, "mrr")
    # On list x 0.9 - 0.4 and on y 0.7 - 0.2 in every run: 0.5 whatever is drawn.
    assert (found.difference, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (found.runs_a, found.runs_b, found.lists) == (2, 1, 2)
    with pytest.raises(UserError, match="at least one run"):
        compare_runs(runs_a, [], "mrr")


@pytest.mark.parametrize("count", [6, 11, 40])
def test_the_rank_interval_holds_0_where_the_signed_rank_test_does_not_refuse_it(count):
    rng = np.random.default_rng(count)
    refused = []
    for _ in range(60):
        values = rng.normal(0.35, 1.0, size=count)
        found = rank_interval(values)
        p = stats.wilcoxon(values, method="exact").pvalue
        assert (found.low > 0 or found.high < 0) == (p <= 0.05)
        assert found.low <= found.centre <= found.high
        refused.append(p <= 0.05)
    assert 0 < sum(refused) < 60


def test_five_values_are_too_few_for_a_rank_interval():
    # All signs alike have probability 2 / 2^5 > 0.05.
    found = rank_interval([1.0, 2.0, 4.0, 8.0, 16.0])
    assert found.centre == 5.0  # of 1, 1.5, 2, 2.5, 3, 4, 4.5, 5, 6, 8, 8.5, 9, 10, 12, 16
    assert np.isnan(found.low)
    assert np.isnan(found.high)
