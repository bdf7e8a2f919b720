"""Recorded requests replayed: an equal export differs nowhere, and what differs is told by name."""

import json
import shutil

import pytest
from rich.console import Console
from tensorflow_serving.apis import input_pb2, predict_pb2, prediction_log_pb2

from tests.tiny import SCHEMA, SMALL, lists, small_config, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.errors import UserError
from tfr_moe.serving.client.request import RequestEncoder, predict_request
from tfr_moe.serving.export import export_run
from tfr_moe.serving.export.skew import measure_skew, unmatched
from tfr_moe.serving.model_store import ServedModel
from tfr_moe.training import train

QUIET = Console(quiet=True)
COUNT = 12
TEST_SEED = 3  # of the test lists of `write_data_folder`


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", 60, 20, COUNT)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(data, out, small_config({**SMALL, "model": "dnn", "num_epochs": 1}), QUIET)
    return out


@pytest.fixture(scope="module")
def version(data, run, tmp_path_factory):
    return export_run(run, tmp_path_factory.mktemp("models") / "shop", data, console=QUIET)


def write_log(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def record_requests(path, version, signature="", change=None, answered=True):
    """Writes the test lists as a log of TensorFlow Serving: without labels, items in reverse."""
    served, encoder, records = ServedModel(version), RequestEncoder(SCHEMA), []
    names = {feature.name for feature in SCHEMA.select("example")}
    for list_id, context, items in lists(COUNT, TEST_SEED):
        rows = [{k: v for k, v in item.items() if k in names} for item in reversed(items)]
        for row in rows:
            (change or (lambda _: None))(row)
        record = encoder.encode({**context, SCHEMA.list_id: list_id}, rows)
        sent = predict_request("shop", signature, [record]).SerializeToString()
        log = prediction_log_pb2.PredictionLog()
        log.predict_log.request.CopyFrom(predict_pb2.PredictRequest.FromString(sent))
        if answered:
            log.predict_log.response.CopyFrom(served.predict(log.predict_log.request))
        records.append(log.SerializeToString())
    return write_log(path, records)


def different(rows):
    return {row.name: row.different for row in rows if row.different}


@pytest.mark.parametrize(("signature", "answered"), [("", True), ("rank", True), ("", False)])
def test_an_equal_export_has_no_difference(data, run, version, tmp_path, signature, answered):
    log = record_requests(tmp_path / "log", version, signature, answered=answered)
    rows = measure_skew(version, log, run, data)
    assert different(rows) == {}
    compared = {row.name: row.compared for row in rows}
    assert compared == dict.fromkeys(["scores", *(f.name for f in SCHEMA.features)], COUNT)


def test_a_feature_in_another_unit_is_told_by_name(data, run, version, tmp_path):
    def in_cents(row):
        row["price"] *= 100

    log = record_requests(tmp_path / "log", version, change=in_cents)
    rows = measure_skew(version, log, run, data)
    # The export is that of the run, so it scores the wrong prices as the run does.
    assert different(rows) == {"price": COUNT}
    (row,) = (row for row in rows if row.different)
    first_id, _, items = next(lists(COUNT, TEST_SEED))
    last = items[-1]["price"]  # the requests have the items in reverse
    expected = f"list {first_id}: data {items[0]['price']:.6g}, request {100 * last:.6g}"
    assert row.example.startswith(expected)


def test_a_single_other_value_is_counted_once(data, run, version, tmp_path):
    brand = next(lists(COUNT, TEST_SEED))[2][0]["brand"]
    changed = []

    def once(row):
        if row["brand"] == brand and not changed:
            changed.append(row.update(brand="other"))

    log = record_requests(tmp_path / "log", version, change=once)
    assert different(measure_skew(version, log, run, data)) == {"brand": 1}


def test_an_export_with_another_vocabulary_scores_differently(data, run, version, tmp_path, capsys):
    # The same weights with the vocabulary of brands in another order.
    other = shutil.copytree(run, tmp_path / "run")
    words = (other / "vocabulary" / "brand.txt").read_text().split()
    (other / "vocabulary" / "brand.txt").write_text("\n".join([*words[1:], words[0]]) + "\n")
    manifest = json.loads((other / "manifest.json").read_text())
    del manifest["files"]
    (other / "manifest.json").write_text(json.dumps(manifest))
    log = record_requests(tmp_path / "log", version)
    assert different(measure_skew(version, log, other, data)).keys() == {"scores"}

    words = ["check", str(version), "--requests", str(log), "--run", str(other)]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--data", str(data)])
    assert ended.value.code == 3
    printed = capsys.readouterr().out
    assert f"of {COUNT} differ; request" in printed.splitlines()[-1]


def test_a_feature_that_a_request_leaves_out_is_its_default(data, run, version, tmp_path):
    log = record_requests(tmp_path / "log", version, answered=False)
    records = []
    for record in tf.data.TFRecordDataset(str(log)).as_numpy_iterator():
        entry = prediction_log_pb2.PredictionLog.FromString(record)
        tensor = entry.predict_log.request.inputs["inputs"]
        sent = input_pb2.ExampleListWithContext.FromString(tensor.string_val[0])
        for example in sent.examples:
            del example.features.feature["brand"]
        tensor.string_val[0] = sent.SerializeToString()
        records.append(entry.SerializeToString())
    rows = measure_skew(version, write_log(tmp_path / "short", records), run, data)
    assert different(rows) == {"brand": COUNT}  # the model reads its default in both


def test_errors_are_one_line(data, run, version, tmp_path, capsys):
    write_log(tmp_path / "empty", [])
    with pytest.raises(UserError, match=r"empty: has no lists for tensorflow/serving/predict"):
        measure_skew(version, tmp_path / "empty", run)
    log = record_requests(tmp_path / "log", version)
    served = tmp_path / "served" / "1"
    shutil.copytree(version, served)
    broken = predict_request("shop", "", [b"no list"]).SerializeToString()
    entry = prediction_log_pb2.PredictionLog()
    entry.predict_log.request.CopyFrom(predict_pb2.PredictRequest.FromString(broken))
    write_log(tmp_path / "broken", [entry.SerializeToString()])
    with pytest.raises(UserError, match=r"requests: served version 1 cannot answer one of them: "):
        measure_skew(served, tmp_path / "broken", run)
    with pytest.raises(UserError, match="is not that of an export; give MODELS/NAME/<version>"):
        measure_skew(version.parent, log, run)
    other = write_data_folder(tmp_path / "other", 2, 2, 2, lists=other_ids)
    with pytest.raises(UserError, match="has no list with the ID of a request"):
        measure_skew(version, log, run, other)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(version), "--requests", str(log)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: --run: is required with --requests\n"


def other_ids(count, seed):
    for list_id, context, items in lists(count, seed):
        yield f"other {list_id}", context, items


def test_values_are_matched_in_any_order_and_counted():
    assert unmatched([1.0, 2.0, 2.0], [2.0, 1.0]) == []
    assert unmatched([1.0, 2.0], [2.0, 2.0]) == [2.0]
    assert unmatched([1.00005, 3.0], [1.0]) == []  # within 1e-4
    assert unmatched([1.001], [1.0]) == [1.0]
    assert unmatched([["a", "b"]], [["b", "a"]]) == [["b", "a"]]  # a list of IDs has an order
