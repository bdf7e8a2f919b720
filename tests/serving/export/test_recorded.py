"""Recorded requests as the current data of drift: equal to a data set of the same lists."""

import pytest
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from tests.tiny import SCHEMA, lists, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.analysis.drift import RecordedLists, measure_drift
from tfr_moe.cli import main
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.serving.client.request import RequestEncoder, predict_request
from tfr_moe.serving.export.skew import recorded_batches

COUNT, SEED = 700, 9
LISTS_OF_A_REQUEST = 3


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", 600, 20, 20)


def write_requests(path, change=None, signature=""):
    """Writes lists as a log of requests for three lists each, without answers."""
    encoder, sent = RequestEncoder(SCHEMA), []
    context_names, names = ({f.name for f in SCHEMA.select(s)} for s in ("context", "example"))
    for _, context, items in lists(COUNT, SEED):
        rows = [{k: v for k, v in item.items() if k in names} for item in items]
        for row in rows:
            (change or (lambda _: None))(row)
        sent.append(encoder.encode({k: context[k] for k in context_names if k in context}, rows))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for first in range(0, COUNT, LISTS_OF_A_REQUEST):
            request = predict_request("shop", signature, sent[first : first + LISTS_OF_A_REQUEST])
            log = prediction_log_pb2.PredictionLog()
            serialized = request.SerializeToString()
            log.predict_log.request.CopyFrom(predict_pb2.PredictRequest.FromString(serialized))
            writer.write(log.SerializeToString())
    return path


def numbers(rows):
    """What was measured, by column and category; labels are in the data alone."""
    return {
        (row.column, row.category): (row.current_lists, row.psi, row.mean, row.missing)
        for row in rows
        if row.column not in SCHEMA.labels
    }


def test_the_same_lists_as_requests_and_as_data_have_the_same_numbers(reference, tmp_path):
    def same(count, seed):
        return lists(COUNT if count else 0, SEED)

    today = write_data_folder(tmp_path / "day", COUNT, 0, 0, lists=same)
    log = write_requests(tmp_path / "log")
    folder = DataFolder(reference)
    actual = measure_drift(folder, RecordedLists("requests", recorded_batches(log, folder)))
    assert not {row.column for row in actual} & set(SCHEMA.labels)
    assert numbers(actual) == numbers(measure_drift(reference, today))


def test_prices_in_cents_are_told_by_the_command(reference, tmp_path, capsys):
    def in_cents(row):
        row["price"] *= 100

    logs = {
        0: write_requests(tmp_path / "same"),
        3: write_requests(tmp_path / "c", in_cents, "rank"),
    }
    for code, log in logs.items():
        with pytest.raises(SystemExit) as ended:
            main(["drift", "--reference", str(reference), "--current", str(log)])
        assert ended.value.code == code
    exceeded = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "psi," in line]
    assert set(exceeded) == {"price"}


def test_requests_of_another_schema_are_one_line(reference, tmp_path):
    log = tmp_path / "log"
    with tf.io.TFRecordWriter(str(log)) as writer:
        entry = prediction_log_pb2.PredictionLog()
        sent = predict_request("shop", "", [b"\xff no list"]).SerializeToString()
        entry.predict_log.request.CopyFrom(predict_pb2.PredictRequest.FromString(sent))
        writer.write(entry.SerializeToString())
    folder = DataFolder(reference)
    recorded = RecordedLists(f"requests {log}", recorded_batches(log, folder))
    with pytest.raises(UserError, match=f"requests {log}: a list does not fit the schema: "):
        measure_drift(folder, recorded)


def test_a_log_without_lists_is_named(reference, tmp_path):
    log = tmp_path / "log"
    tf.io.TFRecordWriter(str(log)).close()
    folder = DataFolder(reference)
    with pytest.raises(UserError, match="requests of today: has no lists"):
        measure_drift(folder, RecordedLists("requests of today", recorded_batches(log, folder)))
