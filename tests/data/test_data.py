"""Data-set folders and the dataset builder."""

import json

import numpy as np
import pytest

from tests.tiny import SCHEMA, lists, write_data_folder
from tfr_moe.data import DataFolder, ElwcDatasetBuilder, cached
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(write_data_folder(tmp_path_factory.mktemp("data") / "set", train=50))


def read(dataset):
    return {
        str(extras["query_id"][b, 0].numpy(), "utf-8"): (features, labels, extras, b)
        for features, labels, extras in dataset
        for b in range(labels.shape[0])
    }


def test_every_list_comes_out_once_with_its_values(folder):
    builder = ElwcDatasetBuilder(folder, batch_size=7)
    actual = read(builder.build_evaluation_dataset("validation"))
    expected = {list_id: (context, items) for list_id, context, items in lists(60, seed=2)}
    assert actual.keys() == expected.keys()
    for list_id, (context, items) in expected.items():
        features, labels, extras, b = actual[list_id]
        size = len(items)
        np.testing.assert_array_equal(
            features[MASK][b], np.arange(labels.shape[1]) < size, err_msg=list_id
        )
        np.testing.assert_allclose(labels[b, :size], [item["purchase"] for item in items])
        assert (labels[b, size:].numpy() == -1).all()
        np.testing.assert_allclose(
            features["example_numeric"][b, :size],
            [[item["price"], item["sales"]] for item in items],
            rtol=1e-6,
        )
        assert features["sub"][b, 0].numpy().decode() == context["sub"]
        clicked = [v.decode() for v in features["clicked"][b].numpy()]
        assert clicked == context["clicked"] + [""] * (3 - len(context["clicked"]))
        np.testing.assert_allclose(
            extras["position"][b, :size, 0], [item["position"] for item in items]
        )


def test_training_data_is_shuffled_anew_each_epoch_and_complete(folder):
    builder = ElwcDatasetBuilder(folder, batch_size=50, seed=1)
    dataset = builder.build_train_dataset()
    epochs = [
        np.concatenate([f["context_numeric"].numpy()[:, 0] for f, _ in dataset]) for _ in range(2)
    ]
    np.testing.assert_array_equal(np.sort(epochs[0]), np.sort(epochs[1]))
    assert (epochs[0] != epochs[1]).any()


def test_list_size_cuts_training_lists_only(folder):
    builder = ElwcDatasetBuilder(folder, batch_size=50, list_size=3)
    assert next(iter(builder.build_train_dataset()))[1].shape[1] == 3
    assert next(iter(builder.build_valid_dataset()))[1].shape[1] > 3


def test_batches_have_the_static_shape_of_their_settings_whatever_was_read_before(folder):
    ends = ElwcDatasetBuilder(folder, batch_size=7, list_size=3)
    endless = ElwcDatasetBuilder(folder, batch_size=7, list_size=3, repeat=True)
    shapes = [
        dataset.element_spec[1].shape.as_list()
        for dataset in (
            ends.build_train_dataset(),
            ends.build_valid_dataset(),
            endless.build_train_dataset(),
            ElwcDatasetBuilder(folder, batch_size=9, repeat=True).build_train_dataset(),
        )
    ]
    assert shapes == [[None, 3], [None, None], [7, 3], [9, None]]


def test_a_weight_column_becomes_a_third_element(tmp_path):
    schema = SCHEMA.model_copy(update={"weight": "weight"})
    folder = DataFolder(write_data_folder(tmp_path / "set", train=8, schema=schema))
    _, labels, weights = next(iter(ElwcDatasetBuilder(folder).build_train_dataset()))
    assert weights.shape == labels.shape
    np.testing.assert_array_equal(weights, np.ones(labels.shape))  # the default of absent weights


def test_serialized_lists_are_the_records(folder):
    records = ElwcDatasetBuilder(folder).serialized_lists("test")
    assert sum(1 for _ in records) == 60


def test_what_is_missing_is_named(tmp_path, folder):
    with pytest.raises(UserError, match="no such folder"):
        DataFolder(tmp_path / "none")
    with pytest.raises(UserError, match=r"schema\.json is missing; build the data set"):
        DataFolder(tmp_path)
    with pytest.raises(UserError, match="split 'dev' is unknown; allowed: train, validation, test"):
        folder.files("dev")
    other = write_data_folder(tmp_path / "set", train=4, validation=1, test=1)
    (other / "vocabulary" / "brand.txt").unlink()
    with pytest.raises(UserError, match="vocabulary of feature 'brand' is missing"):
        DataFolder(other).tables()
    for file in other.glob("test-*"):
        file.unlink()
    with pytest.raises(UserError, match=r"no test-\*\.tfrecord\.gz files"):
        DataFolder(other).files("test")


def test_the_number_of_batches_is_known_from_the_manifest_or_not_at_all(folder):
    builder = ElwcDatasetBuilder(folder, batch_size=7)
    assert int(builder.build_train_dataset().cardinality()) == 8  # 50 lists: 7 of 7 and one of 1
    assert int(builder.build_valid_dataset().cardinality()) == 9  # 60 lists
    endless = ElwcDatasetBuilder(folder, batch_size=7, repeat=True).build_train_dataset()
    assert int(endless.cardinality()) < 0


def test_a_folder_without_manifest_is_read_whole(tmp_path):
    path = write_data_folder(tmp_path / "set", train=50)
    (path / "manifest.json").unlink()
    builder = ElwcDatasetBuilder(DataFolder(path), batch_size=7)
    assert int(builder.build_train_dataset().cardinality()) < 0
    assert sum(labels.shape[0] for _, labels in builder.build_train_dataset()) == 50


def test_another_format_is_rejected_with_the_version_that_wrote_it(tmp_path):
    path = write_data_folder(tmp_path / "set", train=5)
    manifest = {"format": 2, "versions": {"tfr_moe": "9.0.0"}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    match = r"manifest.json: has format 2, written by tfr_moe 9\.0\.0; tfr_moe .* reads format 1$"
    with pytest.raises(UserError, match=match):
        DataFolder(path)


@pytest.mark.parametrize("open_folder", [lambda folder: folder, lambda f: cached(f, "memory")])
def test_no_data_set_is_tuned_while_it_is_read(folder, open_folder):
    """TensorFlow's thread for it can miss its iterator's end, which then waits for the thread."""
    builder = ElwcDatasetBuilder(open_folder(folder))
    for dataset in (
        builder.build_train_dataset(),
        builder.build_valid_dataset(),
        builder.build_evaluation_dataset("test"),
        builder.build_parsed_dataset("test").take(1),
        builder.serialized_lists("test").batch(2),
    ):
        assert dataset.options().autotune.enabled is False


def test_features_with_one_value_are_named(tmp_path):
    path = write_data_folder(tmp_path / "set", train=20)
    statistics = json.loads((path / "statistics.json").read_text())
    statistics["example"]["price"] |= {"min": 3.0, "max": 3.0}
    statistics["example"]["sales"] |= {"min": 3.0, "max": 3.5}
    (path / "statistics.json").write_text(json.dumps(statistics))
    (path / "vocabulary" / "top.txt").write_text("shoes\n")
    assert DataFolder(path).constant_features() == ["top", "price"]
    schema = json.loads((path / "schema.json").read_text())
    features = {feature["name"]: feature for feature in schema["features"]}
    features["price"] |= {"required": False, "missing_indicator": True}
    features["top"]["min_count"] = 2
    (path / "schema.json").write_text(json.dumps(schema))
    assert DataFolder(path).constant_features() == []
