"""Categories of a data set."""

from collections import Counter

import pytest

from tests.tiny import lists, write_data_folder
from tfr_moe.data import DataFolder
from tfr_moe.evaluation.breakdown import categories_of, training_sizes


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
