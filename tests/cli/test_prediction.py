"""From a click model to PRM with its vectors: trained, predicted, joined, trained."""

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tests.beam import logs
from tests.tiny import SMALL, small_config
from tfr_moe.cli import main, prediction
from tfr_moe.cli.prediction import predict
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import vector_model
from tfr_moe.training import load_run, train
from tfr_moe.training.run import make_scorer

JOINED = [
    *logs.SCHEMA["features"],
    {"name": "pv", "scope": "example", "kind": "numeric", "width": 3},
]


def command(*arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 0


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("vectors")
    log = logs.write_csv(root / "log.csv", logs.log_rows(sessions=60, items=4))
    logs.run(root, log)
    settings = {**SMALL, "num_epochs": 1, "model": "click_model", "expert_hidden_dims": (8, 3)}
    train(root / "data", root / "clicks", small_config(settings))
    vectors = root / "vectors.parquet"
    command("predict", "--run", root / "clicks", "--input", log, "--out", vectors,
            "--vectors", "pv", "--item-id", "item", "--batch-size", 7)  # fmt: skip
    settings = (f"join={vectors}", "join_by=session:list_id,item:item_id")
    logs.run(root, log, "joined", schema={"features": JOINED}, settings=settings)
    return root


def batches(folder, split):
    return list(ElwcDatasetBuilder(DataFolder(folder), 16).build_evaluation_dataset(split))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_each_item_has_the_vector_of_the_click_model(root, split):
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
        for name in ("top", "sub", "item", "history", "context_numeric"):
            np.testing.assert_array_equal(joined[name], features[name])


def test_the_statistics_of_the_vectors_are_those_of_the_training_split(root):
    vectors = np.concatenate(
        [
            features["example_numeric"].numpy()[features[MASK].numpy()][:, 2:]
            for features, *_ in batches(root / "joined", "train")
        ]
    ).astype(np.float64)
    statistics = DataFolder(root / "joined").statistics["example"]
    for index in range(3):
        actual = statistics[f"pv[{index}]"]
        assert actual["count"] == len(vectors)
        assert actual["mean"] == pytest.approx(vectors[:, index].mean(), rel=1e-6)
        assert actual["std"] == pytest.approx(vectors[:, index].std(), rel=1e-6)


def test_every_format_has_the_same_vectors(root, tmp_path):
    stored = parquet.read_table(root / "vectors.parquet").to_pylist()
    assert {tuple(row) for row in stored} == {("list_id", "item_id", "pv")}
    run, log = root / "clicks", str(root / "log.csv")
    predict(run, None, log, tmp_path / "v.csv", item_id="item", batch_size=7, vectors="pv")
    header, *lines = [line.split(",") for line in (tmp_path / "v.csv").read_text().splitlines()]
    assert header == ["list_id", "item_id", "pv"]
    for line, expected in zip(lines, stored, strict=True):
        assert line[:2] == list(expected.values())[:2]
        assert np.float32(line[2].split("|")).tolist() == expected["pv"]


def test_prm_reads_the_vectors_and_only_prm_personalized_does(root):
    def width(model):
        return model.get_layer("trunk").projection.kernel.shape[0]

    settings = {**SMALL, "num_epochs": 1, "personal_vector": "pv", "attention_blocks": 1}
    train(root / "joined", root / "prm", small_config(settings, model="prm_personalized"))
    base = make_scorer(DataFolder(root / "joined"), small_config(settings, model="prm_base"))
    assert width(load_run(root / "prm").model) == width(base.build_model()) + 3


def test_a_model_without_vectors_is_rejected(root, tmp_path):
    settings = {**SMALL, "num_epochs": 1, "model": "dnn"}
    train(root / "data", tmp_path / "dnn", small_config(settings))
    log, out = str(root / "log.csv"), tmp_path / "v.csv"
    with pytest.raises(UserError, match=r"--vectors: model dnn of \S+ has none; train one with"):
        predict(tmp_path / "dnn", None, log, out, item_id="item", vectors="pv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dnn"]


def test_the_item_id_is_by_default_a_column_that_need_not_be_a_feature(root, tmp_path):
    log = pd.read_csv(root / "log.csv", dtype=str).head(8)
    named = log.assign(product_id=[f"p{i}" for i in range(8)])
    named.to_csv(tmp_path / "named.csv", index=False)
    predict(root / "clicks", None, str(tmp_path / "named.csv"), tmp_path / "s.csv")
    written = pd.read_csv(tmp_path / "s.csv").item_id
    assert sorted(written) == [f"p{i}" for i in range(8)]

    renamed = tmp_path / "renamed.csv"
    log.assign(gtin=log.item).rename(columns={"item": "thing"}).to_csv(renamed, index=False)
    with pytest.raises(UserError, match=r"--item-id is required: .*product\) is among .*, gtin, "):
        predict(root / "clicks", None, str(renamed), tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("lost", "text"),
    [({}, ""), ({"cut": 2}, "; 2 cut"), ({"rejected": 1}, "; 1 rows rejected (see {rejects})")],
)
def test_rejects_are_named_where_there_are_some(lost, text, tmp_path, monkeypatch, capsys):
    rows = {"read": 9, "written": 6, "lists": 2, "rejects": {}, "rejected": 0, "cut": 0, **lost}
    monkeypatch.setattr(prediction, "predict", lambda *_, **__: rows)
    out = tmp_path / "s.csv"
    command("predict", "--run", "run", "--input", "log.csv", "--out", out)
    last = capsys.readouterr().err.splitlines()[-1]
    text = text.format(rejects=f"{out}.rejects.jsonl")
    assert last == f"wrote {out}: 6 of 9 rows in 2 lists{text}"
