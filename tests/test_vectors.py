"""From a click model to PRM with its vectors: trained, exported, joined, trained again."""

import json

import numpy as np
import pytest

from tests.tiny import SMALL, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.beam.vectors import with_vectors
from tfr_moe.cli import main
from tfr_moe.config import make_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import vector_model
from tfr_moe.training import load_run, train
from tfr_moe.vectors import export_vectors, join_vectors, vector_width


def command(*arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 0


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("vectors")
    data = write_data_folder(root / "data", 60, 20, 20)
    settings = {**SMALL, "num_epochs": 1, "model": "click_model", "expert_hidden_dims": (8, 3)}
    train(data, root / "clicks", make_config(settings))
    models = root / "models" / "clicks"
    command("export-vectors", "--run", root / "clicks", "--out", models)
    command("join-vectors", "--model", models, "--data", data, "--out", root / "joined",
            "--name", "pv", "--batch-size", 7)  # fmt: skip
    return root


def batches(folder, split):
    return list(ElwcDatasetBuilder(DataFolder(folder), 16).build_evaluation_dataset(split))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_each_item_has_the_vector_that_the_click_model_gives_it(root, split):
    model = vector_model(load_run(root / "clicks").model)
    before, after = batches(root / "data", split), batches(root / "joined", split)
    assert len(before) == len(after)
    for (features, labels, extras), (joined, same_labels, same_extras) in zip(
        before, after, strict=True
    ):
        mask = features[MASK].numpy()
        numbers = joined["example_numeric"].numpy()[mask]
        # float32 in batches of another size
        np.testing.assert_allclose(
            numbers[:, 2:], model(features).numpy()[mask], rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(numbers[:, :2], features["example_numeric"].numpy()[mask])
        np.testing.assert_array_equal(joined[MASK], mask)
        np.testing.assert_array_equal(same_labels, labels)
        for name in extras:
            np.testing.assert_array_equal(same_extras[name], extras[name])
        for name in ("top", "sub", "brand", "clicked", "context_numeric"):
            np.testing.assert_array_equal(joined[name], features[name])


def test_the_statistics_of_the_vectors_are_those_of_the_training_split(root):
    vectors = np.concatenate(
        [
            features["example_numeric"].numpy()[features[MASK].numpy()][:, 2:]
            for features, *_ in batches(root / "joined", "train")
        ]
    ).astype(np.float64)
    folder = DataFolder(root / "joined")
    for place in range(3):
        found = folder.statistics["example"][f"pv[{place}]"]
        assert found["count"] == len(vectors)
        assert found["mean"] == pytest.approx(vectors[:, place].mean(), rel=1e-6)
        assert found["std"] == pytest.approx(vectors[:, place].std(), rel=1e-6)
    assert folder.schema.feature("pv").width == 3
    assert folder.manifest["joined"]["pv"]["width"] == 3
    assert folder.num_lists("train") == 60
    assert {p.name for p in (root / "joined").iterdir() if p.name.startswith(".")} == set()


def test_prm_reads_the_vectors_and_only_prm_personalized_does(root):
    for name, width in (("prm_personalized", 22), ("prm_base", 19)):
        settings = {**SMALL, "num_epochs": 1, "model": name, "personal_vector": "pv"}
        train(root / "joined", root / name, make_config(settings))
        trunk = load_run(root / name).model.get_layer("trunk")
        assert trunk.projection.kernel.shape[0] == width


def test_the_export_needs_nothing_but_tensorflow_and_an_empty_batch_is_no_trouble(root):
    folder = root / "models" / "clicks" / "1"
    assert vector_width(folder) == 3
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert signature(inputs=tf.constant([b""]))["vectors"].shape[-1] == 3
    schema = json.loads((folder / "assets.extra" / "schema.json").read_text())
    assert schema["list_id"] == "query_id"


def test_what_can_not_be_joined_is_refused(root, tmp_path):
    model, data = root / "models" / "clicks", root / "data"
    with pytest.raises(UserError, match="exists already; give another folder"):
        join_vectors(model, data, root / "joined", "pv")
    with pytest.raises(UserError, match="--name price: the data has a column of that name already"):
        join_vectors(model, data, tmp_path / "out", "price")
    with pytest.raises(UserError, match=r"--schema .*: feature 'pv' is not the model's"):
        join_vectors(model, root / "joined", tmp_path / "out", "again")
    with pytest.raises(UserError, match="model prm_base has no vectors; train one with --model"):
        export_vectors(root / "prm_base", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_none_is_refused(root):
    with pytest.raises(UserError, match="--name '1 2': must be letters, digits and _"):
        with_vectors(DataFolder(root / "data").schema, "1 2", 3)
