import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.evaluation.lists import one_list, random_batch
from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import evaluate_lists, summarize, t_interval
from tfr_moe.metrics.per_list import ListBatch

FIELDS = ("scores", "labels", "mask", "list_ids", "positions", "categories")


def part(batch, rows) -> ListBatch:
    """Some lists of a batch, cut to the columns that they use."""
    used = np.flatnonzero(batch.mask[rows].any(axis=0))
    stop = used[-1] + 1
    arrays = {name: getattr(batch, name)[rows] for name in FIELDS}
    cut = {n: a[:, :stop] if a.ndim == 2 else a for n, a in arrays.items()}
    return ListBatch(**cut)


def four_lists(metric="mrr"):
    """AUC 1, 0, none (nothing relevant), none (all relevant); MRR 1, 1/2, none, 1."""
    batch = ListBatch(
        scores=np.tile([2.0, 1.0], (4, 1)),
        labels=np.array([[1, 0], [0, 1], [0, 0], [1, 1]]),
        mask=np.ones((4, 2), bool),
        list_ids=np.array(["a", "b", "c", "d"]),
    )
    return evaluate_lists([batch], [metric])


@pytest.mark.smoke
def test_the_same_lists_in_other_batches_give_the_same_numbers():
    rng = np.random.default_rng(1)
    batch = random_batch(rng, lists=80, tied=True)
    whole = evaluate_lists([batch])
    order = rng.permutation(80)
    cuts = [0, 1, 2, 9, 50, 80]
    stream = (part(batch, order[i:j]) for i, j in itertools.pairwise(cuts))
    regrouped = evaluate_lists(stream)
    assert regrouped.list_ids.tolist() == batch.list_ids[order].tolist()
    np.testing.assert_array_equal(regrouped.categories, batch.categories[order])
    np.testing.assert_array_equal(regrouped.num_relevant, whole.num_relevant[order])
    for name, summary in summarize(whole).items():
        # Sums over other lengths round differently: a few units in the last place.
        np.testing.assert_allclose(regrouped.values[name], whole.values[name][order], rtol=1e-13)
        other = summarize(regrouped)[name]
        assert other.evaluated == summary.evaluated
        assert other.mean == pytest.approx(summary.mean, rel=1e-13)
        assert other.high == pytest.approx(summary.high, rel=1e-13)


def test_policies_give_lists_with_nothing_relevant_nothing_zero_or_one():
    result = four_lists("mrr")
    for policy, mean, evaluated in [
        ("skip", 2.5 / 3, 3),
        ("zero", 2.5 / 4, 4),
        ("one", 3.5 / 4, 4),
    ]:
        summary = summarize(result, policy)["mrr"]
        assert summary.mean == pytest.approx(mean, rel=1e-15)
        assert (summary.evaluated, summary.skipped) == (evaluated, 4 - evaluated)
        assert (summary.nothing_relevant, summary.policy) == (1, policy)


def test_a_list_with_nothing_irrelevant_has_no_auc_under_any_policy():
    result = four_lists("session_auc")
    for policy, mean, evaluated in [("skip", 1 / 2, 2), ("zero", 1 / 3, 3), ("one", 2 / 3, 3)]:
        summary = summarize(result, policy)["session_auc"]
        assert summary.mean == pytest.approx(mean, rel=1e-15)
        assert (summary.evaluated, summary.skipped, summary.nothing_relevant) == (
            evaluated,
            4 - evaluated,
            1,
        )


def test_nothing_relevant_is_told_among_the_evaluated_items_only():
    result = evaluate_lists([one_list([1, 2, 3], [0, 0, 1], [1, 2, 3])], ["ndcg", "ndcg_shown_2"])
    assert not result.nothing_relevant["ndcg"][0]
    assert result.nothing_relevant["ndcg_shown_2"][0]


def test_t_interval_equals_scipy():
    values = np.random.default_rng(2).random(12)
    mean, error, low, high = t_interval(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(stats.sem(values))
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_t_interval_worked_out_by_hand():
    # Deviation 0.02, standard error 0.02 / sqrt(3), t(0.975; 2) = 4.302653.
    reach = 4.302653 * 0.02 / np.sqrt(3)
    assert t_interval(np.array([0.70, 0.72, 0.74])) == pytest.approx(
        (0.72, 0.02 / np.sqrt(3), 0.72 - reach, 0.72 + reach), rel=1e-6
    )


def test_below_two_evaluated_lists_there_is_no_interval():
    one = summarize(evaluate_lists([one_list([2, 1], [0, 1])], ["mrr"]))["mrr"]
    assert one.mean == 0.5 and np.isnan([one.standard_error, one.low, one.high]).all()
    none = summarize(evaluate_lists([one_list([2, 1], [0, 0])], ["mrr"]))["mrr"]
    assert none.evaluated == 0 and np.isnan([none.mean, none.low]).all()


def test_items_and_relevant_items_are_counted_without_padding():
    batch = random_batch(np.random.default_rng(3), lists=5, length=6)
    result = evaluate_lists([batch], ["mrr"])
    for i in range(5):
        assert result.num_items[i] == sum(batch.mask[i])
        assert result.num_relevant[i] == sum(batch.labels[i, batch.mask[i]] > 0)


def test_a_stream_without_categories_has_none():
    batch = dataclasses.replace(random_batch(np.random.default_rng(4)), categories=None)
    assert evaluate_lists([batch], ["mrr"]).categories is None


def test_a_list_that_comes_twice_is_refused():
    batch = random_batch(np.random.default_rng(5), lists=3)
    with pytest.raises(UserError, match=r"list 'q0' occurs more than once \(3 such lists\)"):
        evaluate_lists([batch, batch])


def test_lists_without_an_id_are_let_through():
    batch = random_batch(np.random.default_rng(6), lists=3)
    batch = dataclasses.replace(batch, list_ids=np.array(["", "", "x"], dtype=object))
    assert len(evaluate_lists([batch], ["mrr"])) == 3


def test_the_example_of_the_guide_prints_what_it_says(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", guide, re.S) if "ListBatch(" in c)
    exec(code, {})
    printed = float(capsys.readouterr().out)
    assert printed == float(code.rsplit("= ", 1)[1]) == 0.75


def test_bad_input_is_refused():
    with pytest.raises(UserError, match="there are no lists to evaluate"):
        evaluate_lists([])
    with pytest.raises(UserError, match="'accuracy' is unknown"):
        evaluate_lists([one_list([1], [1])], ["accuracy"])
    with pytest.raises(UserError, match="item 2: score nan"):
        evaluate_lists([one_list([1, np.nan], [1, 0])])
    result = four_lists()
    with pytest.raises(UserError, match="policy 'drop' is unknown; allowed: skip, zero, one"):
        summarize(result, "drop")
    with pytest.raises(UserError, match="metric 'ndcg' was not computed; computed: mrr"):
        result.with_policy("ndcg", "skip")
