"""The golden pair that travels with an export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tensorflow_serving.apis import input_pb2, predict_pb2

from tests.serving.models import SHOP
from tfr_moe._compat import tf
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.client.request import RequestEncoder, load_request
from tfr_moe.serving.export.export import write_golden


@pytest.fixture(scope="module", params=["plain", "mixture", "itemwise"])
def golden(models: Path, request) -> Path:
    return models / request.param / "1" / "assets.extra" / "golden"


def test_a_client_makes_the_golden_proto_of_the_golden_values(golden):
    request = load_request(golden / "list.json", SHOP)
    ours = RequestEncoder(SHOP).encode(request.context, request.items)
    assert input_pb2.ExampleListWithContext.FromString(
        ours
    ) == input_pb2.ExampleListWithContext.FromString((golden / "list.pb").read_bytes())


def test_the_model_answers_the_golden_request_by_the_golden_response(golden):
    request = predict_pb2.PredictRequest.FromString((golden / "request.pb").read_bytes())
    answer = predict_pb2.PredictResponse.FromString((golden / "response.pb").read_bytes())
    assert request.model_spec.signature_name == answer.model_spec.signature_name == "rank"
    assert request.model_spec.name == answer.model_spec.name == golden.parents[2].name
    assert answer.model_spec.version.value == 1
    loaded = tf.saved_model.load(str(golden.parents[1]))
    actual = loaded.signatures["rank"](
        inputs=tf.constant(tf.make_ndarray(request.inputs["inputs"]))
    )
    assert set(actual) == set(answer.outputs)
    for name, proto in answer.outputs.items():
        np.testing.assert_allclose(actual[name], tf.make_ndarray(proto), rtol=1e-5, err_msg=name)


def test_the_bodies_for_rest_say_the_same(golden):
    request = json.loads((golden / "request.json").read_text())
    serialized = (golden / "list.pb").read_bytes()
    decoded = tf.io.decode_base64(  # the web-safe alphabet is TensorFlow's
        request["inputs"]["inputs"][0]["b64"].replace("+", "-").replace("/", "_").rstrip("=")
    )
    assert (request["signature_name"], decoded.numpy()) == ("rank", serialized)
    answer = predict_pb2.PredictResponse.FromString((golden / "response.pb").read_bytes())
    outputs = json.loads((golden / "response.json").read_text())["outputs"]
    assert set(outputs) == set(answer.outputs)
    for name, values in outputs.items():
        np.testing.assert_array_equal(values, tf.make_ndarray(answer.outputs[name]).tolist())


def test_a_missing_number_is_null_in_json_of_any_language(tmp_path):
    price = {"name": "price", "scope": "example", "kind": "numeric"}
    schema = FeatureSchema(list_id="query", labels=["click"], features=[price])
    record = RequestEncoder(schema).encode({}, [{"price": 2}, {}])
    answer = lambda inputs: {"scores": tf.zeros([1, 2])}  # noqa: E731
    write_golden(tmp_path / "golden", "shop", 1, schema, [record], answer)
    text = (tmp_path / "golden" / "list.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["items"] == [{"price": 2.0}, {"price": None}]
    again = load_request(tmp_path / "golden" / "list.json", schema)
    assert RequestEncoder(schema).encode(again.context, again.items) == record
