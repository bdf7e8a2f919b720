"""Parsed splits: the batches of the records, each list once an epoch, no test split."""

import numpy as np
import pytest

from tests.tiny import write_data_folder
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder, builder, cached


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_data_folder(tmp_path_factory.mktemp("cache") / "data", train=50, validation=20)
    for file in path.glob("test-*"):
        file.unlink()
    return DataFolder(path)


@pytest.fixture(scope="module")
def parsed(folder):
    return cached(folder, "memory")


def flat(dataset):
    return [
        (dict(features), labels) if not rest else (dict(features), labels, rest)
        for features, labels, *rest in dataset.as_numpy_iterator()
    ]


def assert_same(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert set(one[0]) == set(other[0])
        for name in one[0]:
            np.testing.assert_array_equal(one[0][name], other[0][name], err_msg=name)
        np.testing.assert_array_equal(one[1], other[1])


def test_validation_batches_are_those_of_the_records(folder, parsed):
    expected = ElwcDatasetBuilder(folder, 8).build_valid_dataset()
    actual = ElwcDatasetBuilder(parsed, 8).build_valid_dataset()
    assert_same(flat(actual), flat(expected))


def test_every_training_list_comes_once_an_epoch_in_another_order_each_time(folder, parsed):
    dataset = ElwcDatasetBuilder(parsed, 50, seed=3).build_train_dataset()
    epochs = [flat(dataset)[0] for _ in range(2)]
    again = flat(ElwcDatasetBuilder(parsed, 50, seed=3).build_train_dataset())[0]
    np.testing.assert_array_equal(again[1], epochs[0][1])
    assert not np.array_equal(epochs[0][1], epochs[1][1])
    whole = next(ElwcDatasetBuilder(folder, 50).build_parsed_dataset("train").as_numpy_iterator())
    prices = np.sort(whole["example_numeric"][..., 0][whole["example_list_mask"]])
    for features, _ in epochs:
        seen = features["example_numeric"][..., 0][features["example_list_mask"]]
        np.testing.assert_array_equal(np.sort(seen), prices)


def test_long_lists_are_cut_and_short_ones_padded_like_those_of_the_records(folder, parsed):
    for list_size in (3, 12):
        expected = ElwcDatasetBuilder(folder, 50, list_size).build_train_dataset()
        actual = ElwcDatasetBuilder(parsed, 50, list_size).build_train_dataset()
        (one, labels), (other, expected_labels) = flat(actual)[0], flat(expected)[0]
        assert labels.shape == expected_labels.shape == (50, list_size)
        assert one["example_list_mask"].sum() == other["example_list_mask"].sum()
        assert (labels[~one["example_list_mask"]] == -1).all()
        np.testing.assert_allclose(np.sort(labels.ravel()), np.sort(expected_labels.ravel()))


def test_training_data_repeats_on_request(folder, parsed):
    builder = ElwcDatasetBuilder(parsed, 50, repeat=True)
    assert sum(1 for _ in builder.build_train_dataset().take(5)) == 5


def test_the_cache_on_disk_of_older_configurations_is_read_as_memory():
    assert load_config(overrides=["cache=disk"]).data.cache == "memory"


@pytest.mark.parametrize(
    ("train", "limit", "is_cached"),
    [
        # 70 lists of 1 number and 6 IDs, 400 items of 4 numbers and 1 ID.
        ({"lists": 50, "items": 300}, 70 * (4 + 6 * 40) + 400 * (4 * 4 + 40), True),
        ({"lists": 50, "items": 300}, 70 * (4 + 6 * 40) + 400 * (4 * 4 + 40) - 1, False),
        ({"lists": 50}, 2**40, False),
    ],
)
def test_auto_keeps_splits_of_a_known_size_up_to_a_limit(
    folder, monkeypatch, train, limit, is_cached
):
    splits = {"train": train, "validation": {"lists": 20, "items": 100}}
    monkeypatch.setitem(folder.manifest, "splits", splits)
    monkeypatch.setattr(builder, "AUTO_CACHE_BYTES", limit)
    assert bool(cached(folder, "auto").splits) == is_cached


def test_a_split_that_is_not_cached_comes_from_the_records(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", 10, 5, 5))
    builder = ElwcDatasetBuilder(cached(folder, "memory"), 5)
    [(features, labels, extras)] = builder.build_evaluation_dataset("test")
    assert labels.shape[0] == features["sub"].shape[0] == extras["query_id"].shape[0] == 5
