"""Parsed splits: the batches of the records, each list once an epoch, no test split."""

import numpy as np
import pytest

from tests.tiny import SCHEMA, write_data_folder
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.cache import (
    SPLITS,
    cached,
    in_memory,
    map_split,
    parse_split,
    write_parsed,
)
from tfr_moe.errors import UserError
from tfr_moe.training.run import make_builder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_data_folder(tmp_path_factory.mktemp("cache") / "data", train=50, validation=20)
    for file in path.glob("test-*"):
        file.unlink()
    return DataFolder(path)


@pytest.fixture(scope="module", params=["memory", "disk", "disk into memory"])
def splits(folder, request):
    if request.param == "memory":
        return {name: in_memory(parse_split(folder, name)) for name in SPLITS}
    parsed = write_parsed(folder, folder.path.parent / "cache")
    mapped = {name: map_split(parsed, folder.schema, name) for name in SPLITS}
    if request.param == "disk":
        return mapped
    return {name: in_memory(split) for name, split in mapped.items()}


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
    found = ElwcDatasetBuilder(folder.with_splits(splits), 8).build_valid_dataset()
    assert_same(flat(found), flat(expected))


def test_every_training_list_comes_once_an_epoch_in_another_order_each_time(folder, splits):
    parsed = folder.with_splits(splits)
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


def test_long_lists_are_cut_and_short_ones_padded_like_those_of_the_records(folder, splits):
    for list_size in (3, 12):
        expected = ElwcDatasetBuilder(folder, 50, list_size).build_train_dataset()
        found = ElwcDatasetBuilder(folder.with_splits(splits), 50, list_size).build_train_dataset()
        (one, labels), (other, expected_labels) = flat(found)[0], flat(expected)[0]
        assert labels.shape == expected_labels.shape == (50, list_size)
        assert one["example_list_mask"].sum() == other["example_list_mask"].sum()
        assert (labels[~one["example_list_mask"]] == -1).all()
        np.testing.assert_allclose(np.sort(labels.ravel()), np.sort(expected_labels.ravel()))


def test_training_data_repeats_on_request(folder, splits):
    builder = ElwcDatasetBuilder(folder.with_splits(splits), 50, repeat=True)
    assert sum(1 for _ in builder.build_train_dataset().take(5)) == 5


def test_a_cache_is_written_once_and_anew_when_the_data_is_another(folder, tmp_path):
    cache = write_parsed(folder, tmp_path / "cache")
    before = (cache / "index.json").stat().st_mtime_ns
    write_parsed(folder, tmp_path / "cache")
    assert (cache / "index.json").stat().st_mtime_ns == before
    other = DataFolder(write_data_folder(tmp_path / "data", train=10, validation=5))
    write_parsed(other, tmp_path / "cache")
    assert map_split(cache, SCHEMA, "train").row_splits.shape == (11,)


def change_a_column(cache):
    path = max(cache.rglob("*.npy"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        change_a_column,
        lambda cache: (cache / "train" / "0.npy").unlink(),
        lambda cache: (cache / "index.json").write_text("{"),
    ],
    ids=["changed", "missing", "index"],
)
def test_a_broken_cache_is_written_again(folder, tmp_path, spoil):
    cache = write_parsed(folder, tmp_path / "cache")
    spoil(cache)
    mapped = map_split(write_parsed(folder, cache), SCHEMA, "train")
    whole = parse_split(folder, "train")
    for name, values in (whole.context | whole.example).items():
        np.testing.assert_array_equal((mapped.context | mapped.example)[name], values)


def test_ids_that_get_longer_from_chunk_to_chunk_are_kept_whole(folder, tmp_path, monkeypatch):
    """Query ids have 3 bytes in the first parts, then 4."""
    monkeypatch.setattr("tfr_moe.data.cache._BATCH", 4)
    mapped = map_split(write_parsed(folder, tmp_path / "parsed"), SCHEMA, "train")
    whole = parse_split(folder, "train")
    assert {len(i) for i in whole.context["query_id"].ravel()} == {3, 4}
    for name, values in whole.context.items():
        np.testing.assert_array_equal(mapped.context[name], values, err_msg=name)
    for name, values in whole.example.items():
        np.testing.assert_array_equal(mapped.example[name], values, err_msg=name)


def test_the_records_are_parsed_once_for_all_runs_of_a_data_set(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", 10, 5, 5))
    config = load_config(overrides=["cache=disk", "batch_size=10"])
    first = flat(make_builder(folder, config).build_train_dataset())
    written = (folder.path / "parsed" / "index.json").stat().st_mtime_ns
    again = flat(make_builder(folder, config).build_train_dataset())
    assert (folder.path / "parsed" / "index.json").stat().st_mtime_ns == written
    assert_same(first, again)


def test_a_split_that_is_not_cached_comes_from_the_records(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", 10, 5, 5))
    builder = ElwcDatasetBuilder(cached(folder, "memory"), 5)
    [(features, labels, extras)] = builder.build_evaluation_dataset("test")
    assert labels.shape[0] == features["sub"].shape[0] == extras["query_id"].shape[0] == 5


def test_a_cache_in_a_folder_that_is_none_is_rejected(tmp_path):
    folder = DataFolder(write_data_folder(tmp_path / "data", 10, 5, 5))
    (folder.path / "parsed").write_text("no folder")
    with pytest.raises(UserError, match=r"parsed: is a file"):
        cached(folder, "disk")
