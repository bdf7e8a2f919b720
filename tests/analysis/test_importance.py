"""Importance of features for hand-made scores, of which it is known what they use."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import ndcg_score
from statsmodels.stats.oneway import anova_oneway

from tests.tiny import SCHEMA, TASKS, lists, write_data_folder
from tfr_moe.analysis.importance import (
    Importance,
    ImportanceRow,
    _Sample,
    brown_forsythe,
    feature_groups,
    feature_importance,
)
from tfr_moe.baselines import BaselineRun
from tfr_moe.baselines.rows import TabularEncoder
from tfr_moe.config import make_config
from tfr_moe.config.settings import FeatureSettings
from tfr_moe.data import DataFolder
from tfr_moe.evaluation.evaluate import split_metric
from tfr_moe.report.html import environment

COUNT, SEED = 120, 2  # of the validation lists


class HandMade:
    """Scores rows by a function of the columns by name."""

    def __init__(self, function, columns):
        self.function, self.names = function, [column.name for column in columns]

    def predict(self, values):
        return self.function(dict(zip(self.names, values.T, strict=True)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(write_data_folder(tmp_path_factory.mktemp("data") / "set", 2, COUNT, 2))


@pytest.fixture(scope="module")
def run_of(folder):
    """A run whose score is a function of the columns."""
    encoder = TabularEncoder(folder.schema, folder.tables(), FeatureSettings())
    config = make_config({"model": "svm_rank"})

    def make(function):
        ranker = HandMade(function, encoder.columns)
        return BaselineRun(folder.path, config, folder.schema, {}, ranker, encoder)

    return make


def test_an_unused_feature_has_none_and_the_only_one_all(run_of, folder):
    actual = feature_importance(run_of(lambda c: c["sales"]), folder, repeats=4, batch_size=50)
    by_name = {row.feature: row for row in actual.of()}
    assert set(by_name) == {"top + sub", "age", "clicked", "brand", "price", "sales"}
    assert actual.rows[0].feature == "sales"
    for name, drop in by_name.items():
        assert drop.lists == COUNT
        if name != "sales":
            assert (drop.drop, drop.low, drop.high) == (0.0, 0.0, 0.0)
    # One item of n is relevant: in random order its discount is the mean of those of all ranks.
    sizes = [len(items) for _, _, items in lists(COUNT, SEED)]
    random = np.mean([np.mean(1 / np.log2(2 + np.arange(size))) for size in sizes])
    error = 0.25 / np.sqrt(COUNT * 4)
    assert actual.mean - by_name["sales"].drop == pytest.approx(random, abs=4 * error)
    assert by_name["sales"].low < by_name["sales"].drop < by_name["sales"].high


def test_importance_differs_between_categories_whose_weights_differ(run_of, folder):
    # Index 1 of the vocabulary is category a, where the cheapest item sells.
    of_category = run_of(lambda c: np.where(c["top"] == 1, -c["price"], c["sales"]))
    actual = feature_importance(of_category, folder, repeats=2)
    rows = {(row.feature, row.category): row for row in actual.rows}
    for name, used, other in (("price", "a", "b"), ("sales", "b", "a")):
        assert (rows[name, other].drop, rows[name, other].high) == (0.0, 0.0)
        assert rows[name, used].low > 0.05
        assert rows[name, ""].differs and rows[name, ""].p_value < 1e-6
    counts = [rows["price", category].lists for category in actual.categories]
    assert sum(counts) == COUNT and counts == sorted(counts, reverse=True)
    assert not rows["brand", ""].differs and rows["brand", ""].p_value == 1.0
    assert [row.category for row in actual.rows] == [
        category for category in ("", *actual.categories) for _ in range(6)
    ]
    matters, differs = actual.findings()
    assert "3 of 6 features have a significant importance" in matters
    assert "price (b +0.0000 to a" in differs and "the reason for a gate" in differs


def without_category(count, seed):
    for number, (list_id, context, items) in enumerate(lists(count, seed)):
        yield list_id, context if number % 4 else {**context, "top": "", "sub": ""}, items


def test_lists_without_a_category_are_a_group_beside_all_lists(run_of, tmp_path):
    folder = DataFolder(write_data_folder(tmp_path, 2, 120, 2, lists=without_category))
    actual = feature_importance(run_of(lambda c: c["sales"]), folder, repeats=1)
    rows = {row.category: row.lists for row in actual.rows}
    assert rows.pop("") == 120 and rows.pop("(none)") == 30
    assert set(rows) == {"a", "b"} and sum(rows.values()) == 90


def test_one_shuffle_is_that_of_loops_over_lists(run_of, folder):
    sample = _Sample(run_of(lambda c: c["price"] + c["age"]), folder, "validation", "ndcg", 75, 32)
    whole = read(folder)[:75]
    assert len(sample.values) == 75
    rows = sample._permutation("example", ["price"], np.random.default_rng(5))
    items = [(context, item) for context, of_list in whole for item in of_list]
    assert sorted(rows) == list(range(len(items)))
    assert all(items[i][0]["top"] == items[j][0]["top"] for i, j in enumerate(rows))
    expected, start = [], 0
    for context, of_list in whole:
        taken = [items[rows[start + i]][1]["price"] for i in range(len(of_list))]
        start += len(of_list)
        labels = [item["purchase"] for item in of_list]
        scores = [np.log1p(price) + context["age"] for price in taken]
        expected.append(ndcg_score([labels], [scores], ignore_ties=True))
    actual = sample.shuffled(["price"], np.random.default_rng(5))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def read(folder):
    """The lists of the validation split in the order of its two files."""
    every = [(context, items) for _, context, items in lists(COUNT, SEED)]
    return [*every[::2], *every[1::2]]


def test_features_of_the_tree_are_shuffled_together(run_of, folder):
    assert feature_groups(SCHEMA)[0] == ("top", "sub")
    known = {"a > x", "a > y", "b > x", "b > z"}
    seen = []
    words = Path(folder.tables().vocabularies["sub"]).read_text().splitlines()
    names = ["unknown", *words]

    def score(columns):
        seen.extend(names[int(i)] for i in columns["sub"])
        return columns["sales"]

    feature_importance(run_of(score), folder, max_lists=40, repeats=1)
    assert set(seen) == known


def test_the_f_test_is_that_of_statsmodels():
    rng = np.random.default_rng(0)
    groups = [rng.normal(mean, std, n) for mean, std, n in ((0, 1, 10), (1, 2, 20), (0, 0.5, 15))]
    expected = anova_oneway(groups, use_var="bf").pvalue2  # without Mehrotra's correction
    assert brown_forsythe(groups) == pytest.approx(expected, rel=1e-12)
    assert brown_forsythe([np.zeros(5), np.zeros(9)]) == 1.0
    assert brown_forsythe([np.zeros(5), np.ones(9)]) == 0.0


def test_a_metric_names_its_task():
    tasks = TASKS.labels
    assert split_metric("ndcg_10", ()) == ("", "ndcg_10")
    assert split_metric("ndcg_10", tasks) == ("purchase", "ndcg_10")
    assert split_metric("click_mrr", tasks) == ("click", "mrr")
    assert split_metric("click_7d_mrr", ("click", "click_7d")) == ("click_7d", "mrr")


def test_the_page_shows_intervals_and_categories():
    nan = float("nan")
    price = ImportanceRow("price", "", 0.03, 0.01, 0.05, 90, 0.001)
    age = ImportanceRow("age", "", 0.0, nan, nan, 1, nan)
    of_category = [
        dataclasses.replace(row, category=name, drop=drop)
        for name, drop in (("<b>shoes", 0.03), ("books", -0.002))
        for row in (price, age)
    ]
    importance = Importance("ndcg_10", 0.6, 100, 90, 3, [price, age, *of_category])
    page = environment().get_template("importance.html").render(importance=importance)
    assert "price matters most" in page and "0.6000" in page
    assert "price (books -0.0020 to &lt;b&gt;shoes +0.0300)" in page
    assert "+0.0100 to +0.0500" in page and "&lt;b&gt;shoes" in page and "<b>" not in page
    assert "nan" not in page
    nothing = dataclasses.replace(importance, rows=[age])
    assert nothing.findings() == ["No feature has a significant importance."]
