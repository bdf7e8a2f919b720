import dataclasses

import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tfr_moe.evaluation.breakdown import per_category
from tfr_moe.evaluation.results import PerListResult, evaluate_lists


def result(values, categories) -> PerListResult:
    values = np.asarray(values, float)
    return PerListResult(
        list_ids=np.array([f"q{i}" for i in range(len(values))], dtype=object),
        values={"mrr": values},
        nothing_relevant={"mrr": np.isnan(values)},
        num_items=np.full(len(values), 9),
        num_relevant=np.where(np.isnan(values), 0, 2),
        categories=None if categories is None else np.array(categories, dtype=object),
    )


CATEGORIES = ["shoes", "books", "shoes", "shoes", "tools"]
A = result([0.2, 0.5, 0.4, np.nan, np.nan], CATEGORIES)
B = result([0.4, 0.4, 0.6, np.nan, np.nan], CATEGORIES)


def test_rows_worked_out_by_hand():
    shoes, books, tools = per_category({"dnn": A, "moe": B}, "mrr", baseline="dnn")
    assert (shoes.category, shoes.lists, shoes.positives, shoes.evaluated) == ("shoes", 3, 4, 2)
    assert shoes.means == pytest.approx({"dnn": 0.3, "moe": 0.5})
    assert shoes.differences == pytest.approx({"moe": 0.2})
    assert (books.category, books.lists, books.positives, books.evaluated) == ("books", 1, 2, 1)
    assert books.differences == pytest.approx({"moe": -0.1})
    assert (tools.category, tools.lists, tools.evaluated) == ("tools", 1, 0)
    assert np.isnan([*tools.means.values(), *tools.differences.values()]).all()


def test_intervals_and_significance_by_category():
    # tools: +0.1, +0.2, +0.3 and shoes: -0.1, +0.1; t(0.975, 2) = 4.3027, error 0.1 / sqrt(3).
    names = ["tools", "tools", "tools", "shoes", "shoes"]
    a = result([0.5] * 5, names)
    b = result([0.6, 0.7, 0.8, 0.4, 0.6], names)
    tools, shoes = per_category({"dnn": a, "moe": b}, "mrr", baseline="dnn")
    assert tools.intervals["moe"] == pytest.approx((0.2 - 0.24841, 0.2 + 0.24841), abs=1e-4)
    assert shoes.significant == tools.significant == ()
    # p of tools is 0.0742; with a smaller spread it is below 0.05 / 2.
    b = result([0.69, 0.7, 0.71, 0.4, 0.6], names)
    tools, shoes = per_category({"dnn": a, "moe": b}, "mrr", baseline="dnn")
    assert (tools.significant, shoes.significant) == (("moe",), ())


def test_policy_zero_judges_lists_with_nothing_relevant():
    shoes = per_category({"dnn": A}, "mrr", policy="zero")[0]
    assert (shoes.evaluated, shoes.means["dnn"]) == (3, pytest.approx(0.6 / 3))
    assert shoes.differences == {}


def test_means_weighted_by_judged_lists_give_the_overall_mean():
    actual = evaluate_lists([random_batch(np.random.default_rng(1), lists=200)])
    for metric, values in actual.values.items():
        rows = per_category({"m": actual}, metric)
        assert sum(row.lists for row in rows) == 200
        total = sum(row.evaluated * row.means["m"] for row in rows)
        assert total / sum(row.evaluated for row in rows) == pytest.approx(np.nanmean(values))


def test_models_are_aligned_by_list_id():
    reverse = dataclasses.replace(
        B,
        list_ids=B.list_ids[::-1],
        values={"mrr": B.values["mrr"][::-1]},
        nothing_relevant={"mrr": B.nothing_relevant["mrr"][::-1]},
        categories=B.categories[::-1],
    )
    expected = per_category({"dnn": A, "moe": B}, "mrr", "dnn")[0]
    assert per_category({"dnn": A, "moe": reverse}, "mrr", "dnn")[0] == expected


def test_without_categories_there_are_no_rows():
    assert per_category({"dnn": result([0.5], None)}, "mrr") == []
