"""The parsed splits: the same batches as from the records, each list once an epoch, no test split."""

import numpy as np
import pytest

from tests.tiny import SCHEMA, write_data_folder
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.tuning.cache import CachedDatasetBuilder, load_split, write_cache


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_data_folder(tmp_path_factory.mktemp("cache") / "data", train=50, validation=20)
    for file in path.glob("test-*"):
        file.unlink()
    return DataFolder(path)


@pytest.fixture(scope="module")
def splits(folder):
    cache = write_cache(folder, folder.path.parent / "cache")
    return {name: load_split(cache, folder.schema, name) for name in ("train", "validation")}


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


def test_validation_batches_are_those_of_the_records(folder, splits):
    expected = ElwcDatasetBuilder(folder, 8).build_valid_dataset()
    found = CachedDatasetBuilder(splits, folder, 8).build_valid_dataset()
    assert_same(flat(found), flat(expected))


def test_every_training_list_comes_once_an_epoch_in_another_order_each_time(folder, splits):
    builder = CachedDatasetBuilder(splits, folder, 50, seed=3)
    dataset = builder.build_train_dataset()
    epochs = [flat(dataset)[0] for _ in range(2)]
    again = flat(CachedDatasetBuilder(splits, folder, 50, seed=3).build_train_dataset())[0]
    np.testing.assert_array_equal(again[1], epochs[0][1])
    assert not np.array_equal(epochs[0][1], epochs[1][1])
    whole = next(ElwcDatasetBuilder(folder, 50).build_parsed_dataset("train").as_numpy_iterator())
    prices = np.sort(whole["example_numeric"][..., 0][whole["example_list_mask"]])
    for features, _ in epochs:
        seen = features["example_numeric"][..., 0][features["example_list_mask"]]
        np.testing.assert_array_equal(np.sort(seen), prices)


def test_long_lists_are_cut_and_short_ones_padded_like_those_of_the_records(folder, splits):
    for list_size in (3, 12):
        expected = ElwcDatasetBuilder(folder, 50, list_size).build_train_dataset()
        found = CachedDatasetBuilder(splits, folder, 50, list_size).build_train_dataset()
        (one, labels), (other, expected_labels) = flat(found)[0], flat(expected)[0]
        assert labels.shape == expected_labels.shape == (50, list_size)
        assert one["example_list_mask"].sum() == other["example_list_mask"].sum()
        assert (labels[~one["example_list_mask"]] == -1).all()
        np.testing.assert_allclose(np.sort(labels.ravel()), np.sort(expected_labels.ravel()))


def test_training_data_repeats_on_request(folder, splits):
    builder = CachedDatasetBuilder(splits, folder, 50, repeat=True)
    assert sum(1 for _ in builder.build_train_dataset().take(5)) == 5


def test_a_cache_is_written_once_and_anew_when_the_data_is_another(folder, tmp_path):
    cache = write_cache(folder, tmp_path / "cache")
    before = (cache / "index.json").stat().st_mtime_ns
    write_cache(folder, tmp_path / "cache")
    assert (cache / "index.json").stat().st_mtime_ns == before
    other = DataFolder(write_data_folder(tmp_path / "data", train=10, validation=5))
    write_cache(other, tmp_path / "cache")
    assert load_split(cache, SCHEMA, "train").row_splits.shape == (11,)
