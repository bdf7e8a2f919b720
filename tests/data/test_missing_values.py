"""Missing numbers: stored as NaN, replaced by the model, alike in training and serving."""

import numpy as np
import pandas as pd
import pytest

from tests.beam import logs
from tfr_moe._compat import tf
from tfr_moe.baselines.rows import TabularEncoder
from tfr_moe.config.settings import FeatureSettings
from tfr_moe.data.frames import training_data
from tfr_moe.elwc.encoder import RowEncoder
from tfr_moe.elwc.statistics import ColumnStatistics, merge
from tfr_moe.layers.features import FeatureEncoder
from tfr_moe.schema import MASK, FeatureSchema, FeatureTables
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.export.parsing import RequestParser
from tfr_moe.utils.io import read_json

NAN = float("nan")
E = np.e


def schema_of(**changes):
    price = {"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p"}
    age = {"name": "age", "scope": "context", "kind": "numeric", "missing_indicator": True}
    return FeatureSchema(list_id="q", labels=["buy"], features=[age, {**price, **changes}])


STATISTICS = {
    "context": {"age": {"mean": 30.0, "std": 10.0}},
    "example": {"price": {"mean": 2.0, "std": 0.5, "median": E - 1}},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.0]),  # the mean
        ({"missing": "median"}, [(1.0 - 2.0) / 0.5]),  # log1p(e - 1) = 1
        ({"missing": E**2 - 1}, [0.0]),  # log1p(e^2 - 1) = 2, the mean
        ({"missing_indicator": True}, [0.0, 1.0]),
        ({"missing": E - 1, "missing_indicator": True}, [-2.0, 1.0]),
    ],
)
def test_a_served_request_reads_what_training_reads(changes, expected):
    schema = schema_of(**changes)
    encode = FeatureEncoder(schema, STATISTICS, {})

    def numbers(features):
        names = ("context_numeric",), ("example_numeric",)
        context, example = ({n: features[n] for n in part} for part in names)
        return encode(context, example, features[MASK]).items.numpy()

    # Training: the record of a row of the log without a price and an age.
    row = {"q": 7, "buy": 1, "price": "", "age": None}
    (of_log,) = RowEncoder(schema)([row])
    request = RequestEncoder(schema).encode({}, [{}, {"price": E - 1}])
    (unlabelled,) = RowEncoder(schema, labelled=False)([row])
    assert of_log.example[0].startswith(unlabelled.example[0])
    served = RequestParser(schema).lists(tf.constant([request]))
    stored = np.frombuffer(of_log.example[0], np.uint8)  # NaN or the number, as in the request
    value = served["example_numeric"].numpy()[0, 0, 0]
    assert np.float32(value).tobytes() in stored.tobytes() or np.isnan(value)
    absent = RequestParser(schema).lists(tf.constant([b"\n\x00\n\x00"]))
    wanted = [[*expected, 0.0, 1.0]]
    actual = numbers(served)
    np.testing.assert_allclose(actual[:, 0], wanted, atol=1e-6)
    np.testing.assert_allclose(actual[0, 1, 0], -2.0, atol=1e-6)
    assert not actual[0, 1, 1:-2].any()
    np.testing.assert_allclose(numbers(absent)[0, 0], wanted[0], atol=1e-6)
    rows = TabularEncoder(schema, FeatureTables(STATISTICS, {}), FeatureSettings())
    unscaled = [expected[0] * 0.5 + 2.0, *expected[1:], 30.0, 1.0]
    np.testing.assert_allclose(rows(served, served[MASK])[0], unscaled, rtol=1e-6)
    assert len(rows.columns) == len(unscaled)


def test_statistics_are_those_of_the_present_values_in_any_blocks():
    numbers = np.array([[1.0], [NAN], [7.0], [NAN], [3.0], [1000.3]], np.float32)
    statistics = ColumnStatistics(schema_of(missing="median", transform="none"), "example")
    whole = statistics.describe(statistics.of(numbers))["price"]
    present = numbers[[0, 2, 4, 5]].astype(np.float64)
    assert (whole["count"], whole["missing"], whole["median"]) == (4, 2, 3.0)
    assert whole["mean"] == pytest.approx(present.mean())
    assert whole["std"] == pytest.approx(present.std())
    assert (whole["min"], whole["max"]) == (1.0, pytest.approx(1000.3))
    parts = statistics.none()
    for cut in (numbers[:2], numbers[1:2][:0], numbers[2:4], numbers[4:]):
        parts = merge(parts, statistics.of(cut))
    assert statistics.describe(parts)["price"] == whole
    nothing = statistics.describe(statistics.of(numbers[[1, 3]]))["price"]
    assert nothing == dict.fromkeys(("count", "mean", "std", "min", "max", "median"), 0) | {
        "missing": 2
    }


def test_a_build_and_a_frame_agree(tmp_path):
    rows = logs.log_rows(24)
    for i, row in enumerate(rows):
        row["price"] = "" if i % 5 == 1 else row["price"]
        row["score"] = "" if i % 7 == 2 else row["score"]
        row["age"] = "" if row["session"] in ("s3", "s4") else row["age"]
    features = [dict(feature) for feature in logs.SCHEMA["features"]]
    by_name = {feature["name"]: feature for feature in features}
    del by_name["price"]["required"]
    by_name["price"]["missing"] = "median"
    by_name["score"]["missing"] = 2.5
    changes = {"features": features, "time": None}
    path = logs.write_csv(tmp_path / "log.csv", rows)
    manifest, folder = logs.run(tmp_path, path, schema=changes, test_fraction=0.0)
    assert manifest["rows"]["rejected"] == manifest["context_conflicts"] == 0
    schema = FeatureSchema.load(folder / "schema.json")
    frame = training_data(pd.read_csv(path), None, schema, tmp_path / "run")
    assert frame.tables().statistics == read_json(folder / "statistics.json")
    assert frame.tables().statistics["context"]["age"]["missing"] > 0
    stored = frame.splits["train"].example["example_numeric"].numpy()
    assert np.isnan(stored[:, 0]).any()
    assert (stored[:, 1] == 2.5).any()
