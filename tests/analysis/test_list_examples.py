"""Single lists: which are chosen, and what is shown of them."""

import numpy as np
import pytest

from tests.tiny import SCHEMA, lists, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.analysis.list_examples import extremes, fetch, show_list
from tfr_moe.data import DataFolder, ElwcDatasetBuilder


def test_the_worst_and_the_best_are_apart_and_of_equals_the_longest_come_first():
    values = np.array([0.5, 0.0, np.nan, 1.0, 1.0, 0.0])
    sizes = np.array([3, 4, 9, 3, 8, 5])
    assert extremes(values, sizes, 2) == ([5, 1], [4, 3])
    # Three judged lists at most on one side leave the others for the other one.
    assert extremes(values[:3], sizes[:3], 2) == ([1, 0], [])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = DataFolder(write_data_folder(tmp_path_factory.mktemp("lists") / "data", 20, 5, 11))
    return ElwcDatasetBuilder(folder, 4).build_evaluation_dataset("test")


def test_lists_are_fetched_by_number(dataset):
    written = [list_id for list_id, _, _ in lists(11, 3)]
    in_files = written[::2] + written[1::2]
    actual = {
        number: element[2]["query_id"].numpy()[0, 0].decode()
        for number, element in fetch(dataset, [9, 0, 5, 4, 5])
    }
    assert actual == {number: in_files[number] for number in (0, 4, 5, 9)}


def test_a_list_is_shown_as_it_was_logged_and_ranked(dataset):
    list_id, context, items = next(iter(lists(11, 3)))
    ((_, element),) = fetch(dataset, [0])

    def by_sales(features):
        return features["example_numeric"][..., 1]

    displayed = show_list(element, by_sales, SCHEMA, "", {"m": 0.5}, most_items=1)
    assert (displayed.list_id, displayed.values, displayed.num_items) == (
        list_id,
        {"m": 0.5},
        len(items),
    )
    assert displayed.context["top"] == context["top"]
    assert displayed.context["age"] == pytest.approx(context["age"])
    best = max(items, key=lambda item: item["sales"])
    assert displayed.items[0].features["brand"] == best["brand"]
    assert displayed.items[0].features["price"] == pytest.approx(best["price"], rel=1e-5)
    assert displayed.items[0].score == pytest.approx(best["sales"], rel=1e-6)
    assert displayed.items[0].position == best["position"]
    # Beyond the first one only what is relevant.
    assert all(item.label > 0 for item in displayed.items[1:])
    assert sum(item.label for item in displayed.items) == 1
    assert isinstance(element[0]["top"], tf.Tensor)
