"""Claims over seeds and lists: numbers worked out by hand, and families corrected together."""

import warnings

import numpy as np
import pytest

from tfr_moe.errors import UserError
from tfr_moe.evaluation.claim_tables import (
    HEADINGS,
    by_metric,
    claim_cells,
    claim_markdown,
    claim_table,
    difference_table,
)
from tfr_moe.evaluation.claims import claims, hedges_g, holm, rank_biserial, welch, wilcoxon
from tfr_moe.evaluation.result import PerListResult
from tfr_moe.evaluation.storage import load_result, save_result


def result(*columns, ids=None):
    names = ("mrr", "ndcg")[: len(columns)]
    values = {name: np.asarray(column, float) for name, column in zip(names, columns, strict=True)}
    count = len(columns[0])
    return PerListResult(
        list_ids=np.array(ids or [f"q{i}" for i in range(count)], dtype=object),
        values=values,
        nothing_relevant={name: np.isnan(v) for name, v in values.items()},
        num_items=np.full(count, 5),
        num_relevant=np.ones(count, int),
        categories=np.array(["shoes"] * count, dtype=object),
    )


def test_hedges_g_by_hand():
    # Means 4 and 2, both variances 2, four values: 2 / sqrt(2) * (1 - 3 / (4 * 2 - 1)).
    assert hedges_g([3, 5], [1, 3]) == pytest.approx(np.sqrt(2) * 4 / 7)
    assert np.isnan(hedges_g([1.0], [1.0, 2.0]))
    assert hedges_g([1, 1], [1, 1]) == 0
    assert hedges_g([1, 1], [2, 2]) == -np.inf


def test_rank_biserial_by_hand():
    # Ranks of 1, 2, 4, 4 are 1, 2, 3.5, 3.5; the 2 is negative.
    assert rank_biserial([1, -2, 4, 4, 0]) == pytest.approx((1 - 2 + 7) / 10)
    assert rank_biserial([0, 0]) == 0
    assert rank_biserial([0.1, 0.2]) == 1


def test_welch_by_hand():
    # t = -2 / sqrt(1 + 1/4) at 1.4706 degrees of freedom, by the t distribution's tail.
    from scipy import stats

    a, b = [0.0, 2.0], [2.5, 3.5]
    freedom = 1.25**2 / (1.0**2 + 0.25**2)
    assert welch(a, b) == pytest.approx(2 * stats.t.cdf(-2 / np.sqrt(1.25), freedom))
    assert welch([1, 1], [1, 1]) == 1
    assert welch([1, 1], [2, 2]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Means 3 and 1, squared error 1/3 of the first alone: t = 2 / sqrt(1/3) with two degrees of freedom.
        assert welch([2, 3, 4], [1, 1, 1]) == pytest.approx(2 * stats.t.cdf(-2 * np.sqrt(3), 2))
    assert np.isnan(welch([1.0], [1.0, 2.0]))


def test_wilcoxon_by_hand():
    # Of the 16 signs of four ranks, W- <= 1 in two: p = 2 * 2 / 16.
    assert wilcoxon([-1, 2, 3, 4]) == pytest.approx(0.25)
    assert wilcoxon([0, 0]) == 1
    assert np.isnan(wilcoxon([]))


def test_holm_by_hand():
    # 3 * 0.01, then max(0.03, 2 * 0.02), then max(0.04, 0.03): the order of falling p stays.
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.7]) == [1, 1]
    np.testing.assert_array_equal(np.isnan(holm([np.nan, 0.5])), [True, False])


def runs_of(base, count, noise, seed=0):
    rng = np.random.default_rng(seed)
    return [result(base + noise * rng.normal()) for _ in range(count)]


def test_a_difference_within_the_seeds_spread_is_no_claim_though_every_list_agrees():
    """The case that a test over lists alone gets wrong: seeds move all lists together."""
    base = np.linspace(0.3, 0.9, 400)
    a, b = runs_of(base, 5, 0.01, 3), runs_of(base, 5, 0.01, 2)
    (found,) = claims({"a": a, "b": b}, [("a", "b")])
    assert found.p_lists < 1e-60
    assert found.p_seeds > 0.05
    assert found.p_both > 0.05
    assert found.low < 0 < found.high
    assert abs(found.effect_lists) == 1


def test_a_difference_beyond_both_spreads_is_a_claim_and_counts_its_lists():
    rng = np.random.default_rng(0)
    base = rng.random(300)
    base[:50] = np.nan
    a, b = runs_of(base + 0.1, 4, 0.001), runs_of(base, 4, 0.001, 1)
    (found,) = claims({"a": a, "b": b}, [("a", "b")])
    assert found.difference == pytest.approx(0.1, abs=0.002)
    assert found.low > 0.09
    assert max(found.holm_both, found.holm_seeds, found.holm_lists) < 0.01
    assert (found.judged, found.lists, found.runs, found.reference_runs) == (250, 300, 4, 4)


def test_lists_in_another_order_give_the_same_claim():
    rng = np.random.default_rng(3)
    values = rng.random((2, 2, 40))
    order = rng.permutation(40)
    ids = [f"q{i}" for i in range(40)]
    straight = {n: [result(v) for v in runs] for n, runs in zip("ab", values, strict=True)}
    shuffled = {
        "a": straight["a"],
        "b": [result(v[order], ids=[ids[i] for i in order]) for v in values[1]],
    }
    assert claims(straight, [("a", "b")]) == claims(shuffled, [("a", "b")])


def test_a_familys_p_values_are_corrected_together_and_metrics_apart():
    rng = np.random.default_rng(5)
    results = {
        name: [result(rng.random(60) + shift, rng.random(60)) for _ in range(3)]
        for name, shift in {"a": 0.0, "b": 0.1, "c": 0.2}.items()
    }
    found = claims(results, [("b", "a"), ("c", "a")])
    assert [(c.metric, c.model) for c in found] == [
        ("mrr", "b"),
        ("mrr", "c"),
        ("ndcg", "b"),
        ("ndcg", "c"),
    ]
    for family in by_metric(found).values():
        assert [c.holm_lists for c in family] == holm([c.p_lists for c in family])
        assert [c.holm_seeds for c in family] == holm([c.p_seeds for c in family])


def test_one_run_leaves_the_seeds_untested():
    rng = np.random.default_rng(5)
    (found,) = claims({"a": [result(rng.random(30))], "b": [result(rng.random(30))]}, [("a", "b")])
    assert np.isnan([found.p_seeds, found.holm_seeds, found.effect_seeds]).all()
    assert claim_cells(found)[4] == "-"


def test_bad_input_is_refused():
    runs = [result([0.1, 0.2])]
    with pytest.raises(UserError, match="'moe' has no run to compare; there are dnn"):
        claims({"dnn": runs}, [("moe", "dnn")])
    nothing = [result([np.nan, np.nan])]
    with pytest.raises(UserError, match="can judge none"):
        claims({"a": nothing, "b": nothing}, [("a", "b")])
    assert claims({"a": runs}, []) == []


def test_tables_have_a_cell_for_each_heading():
    rng = np.random.default_rng(5)
    found = claims(
        {name: [result(rng.random(30)) for _ in range(2)] for name in "ab"}, [("a", "b")]
    )
    assert len(claim_cells(found[0])) == len(HEADINGS)
    lines = claim_markdown(found)
    assert lines[0].startswith("mrr: 30 of 30 lists judged.")
    assert lines[-1].count("|") == lines[2].count("|") == len(HEADINGS) + 1
    assert claim_table(found).row_count == 1


def test_the_table_of_many_models_has_a_column_for_each_reference_and_stars_what_holds():
    """b is 0.1 above a on each list, c is b: two differences hold, that of b and c is nothing."""
    base = np.linspace(0.2, 0.8, 40)
    runs = {"a": [result(base)] * 2, "b": [result(base + 0.1)] * 2, "c": [result(base + 0.1)] * 2}
    table = difference_table(claims(runs, [("b", "a"), ("c", "a"), ("c", "b")]))
    assert [column.header for column in table.columns] == ["model", "minus a", "minus b"]
    model, minus_a, minus_b = (list(column.cells) for column in table.columns)
    assert model == ["b", "c"]
    assert minus_a == ["+0.1000 [+0.1000, +0.1000] *"] * 2
    assert minus_b == ["", "+0.0000 [+0.0000, +0.0000]"]


def test_a_stored_result_comes_back(tmp_path):
    before = result([0.5, np.nan], [0.25, 1.0])
    save_result(before, tmp_path / "lists.npz")
    after = load_result(tmp_path / "lists.npz")
    np.testing.assert_array_equal(after.list_ids, before.list_ids)
    np.testing.assert_array_equal(after.categories, before.categories)
    for name, values in before.values.items():
        np.testing.assert_array_equal(after.values[name], values)
        np.testing.assert_array_equal(after.nothing_relevant[name], before.nothing_relevant[name])
    assert [path.name for path in tmp_path.iterdir()] == ["lists.npz"]
    (tmp_path / "lists.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="holds no per-list result"):
        load_result(tmp_path / "lists.npz")
