"""Categories of a data set, and the gain by their size."""

from collections import Counter

import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tests.tiny import lists, write_data_folder
from tfr_moe.data import DataFolder
from tfr_moe.evaluation.breakdown import categories_of, gain_by_size, training_sizes
from tfr_moe.evaluation.results import evaluate_lists
from tfr_moe.evaluation.significance import compare


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(write_data_folder(tmp_path_factory.mktemp("sizes") / "data", 50, 10, 12))


def test_training_lists_are_counted_by_category(folder):
    written = [context for _, context, _ in lists(50, 1)]
    found = training_sizes(folder)
    assert found["top"] == Counter(context["top"] for context in written)
    assert found["sub"] == Counter(f"{c['top']} > {c['sub']}" for c in written)


def test_categories_stand_in_the_order_of_the_lists(folder):
    # Shards hold the even and the odd lists.
    written = [context["top"] for _, context, _ in lists(12, 3)]
    found = categories_of(folder, "test")
    assert found.top.tolist() == written[::2] + written[1::2]


def test_a_bucket_holds_its_lists_whatever_their_order():
    rng = np.random.default_rng(3)
    batch = random_batch(rng, lists=90)
    order = rng.permutation(90)
    better = {**vars(batch), "scores": batch.scores + batch.labels}
    shuffled = {n: None if v is None else v[order] for n, v in better.items()}
    results = {
        "base": evaluate_lists([batch], ["ndcg"]),
        "better": evaluate_lists([type(batch)(**shuffled)], ["ndcg"]),
    }
    sizes = {"books": 5, "shoes": 7, "tools": 90}
    found = gain_by_size(results, "ndcg", sizes, "base", num_buckets=2)
    assert [row.name for row in found["better"]] == ["1: 5 to 7", "2: 90 to 90"]
    assert [row.categories for row in found["better"]] == [2, 1]
    assert [row.difference for row in found["base"]] == [None, None]
    overall = compare(results["better"], results["base"], "ndcg")
    evaluated = [row.evaluated for row in found["better"]]
    gains = [row.difference for row in found["better"]]
    assert np.average(gains, weights=evaluated) == pytest.approx(overall.difference)
    tools = batch.categories == "tools"
    values = results["base"].values["ndcg"][tools]
    assert found["base"][1].mean == pytest.approx(np.nanmean(values))
    for row in found["better"]:
        assert row.low <= row.difference <= row.high
