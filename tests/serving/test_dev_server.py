"""The development server over gRPC on the loopback interface."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.serving.conftest import (
    CONTEXT,
    SECONDS,
    elwc,
    plain_request,
    predict_request,
    rejected,
    shop_items,
)
from tests.serving.models import SHOP
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.client.ranking import to_array
from tfr_moe.serving.dev_server import DevServer

pytestmark = pytest.mark.smoke

Stub = prediction_service_pb2_grpc.PredictionServiceStub
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def test_predict_answers_as_the_saved_model_does(stub, signature):
    answer = stub.Predict(plain_request(), timeout=SECONDS)
    assert answer.model_spec.name == "plain"
    assert answer.model_spec.version.value == 1
    assert answer.model_spec.signature_name == "serving_default"
    expected = signature("plain", "serving_default")([elwc(shop_items(3)), elwc(shop_items(5))])
    np.testing.assert_allclose(to_array(answer.outputs["scores"]), expected["scores"], atol=1e-6)


def test_the_output_filter_is_honoured(stub):
    request = plain_request(signature_name="rank")
    request.output_filter.extend(["order"])
    assert list(stub.Predict(request, timeout=SECONDS).outputs) == ["order"]


def test_an_empty_batch_is_answered(stub):
    request = plain_request()
    request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([], tf.string, [0]))
    answer = stub.Predict(request, timeout=SECONDS)
    assert to_array(answer.outputs["scores"]).shape == (0, 0)


def test_an_unknown_signature_is_a_failed_precondition(stub):
    code, message = rejected(stub.Predict, plain_request(signature_name="nope"))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert message == 'Serving signature key "nope" not found.'


@pytest.mark.parametrize(
    ("changes", "which"),
    [({"name": "nope"}, "Latest(nope)"), ({"version": 9}, "Specific(plain, 9)")],
)
def test_an_unknown_model_or_version_is_not_found(stub, changes, which):
    code, message = rejected(stub.Predict, plain_request(**changes))
    assert code == grpc.StatusCode.NOT_FOUND
    assert message == f"Servable not found for request: {which}"


def test_garbage_is_data_loss(stub):
    request = predict_request("plain", "rank", [b"garbage"])
    assert rejected(stub.Predict, request)[0] == grpc.StatusCode.DATA_LOSS


def test_a_missing_required_feature_is_an_invalid_argument_with_its_name(stub):
    request = predict_request("plain", "", [b"\n\x00"])  # one empty item
    code, message = rejected(stub.Predict, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("assertion failed: [the request has no value for required")
    assert "price" in message


def test_bytes_that_are_not_a_message_are_internal_as_in_tensorflow_serving(channel):
    assert rejected(channel.unary_unary(PREDICT), b"\xff\xff")[0] == grpc.StatusCode.INTERNAL


def test_other_methods_are_unimplemented(channel):
    for method in ("Classify", "Regress", "MultiInference"):
        path = f"/tensorflow.serving.PredictionService/{method}"
        assert rejected(channel.unary_unary(path), b"")[0] == grpc.StatusCode.UNIMPLEMENTED


def wrong_inputs() -> list[tuple[str, Any]]:
    no_model = plain_request()
    no_model.ClearField("model_spec")
    no_input = predict_pb2.PredictRequest(model_spec=plain_request().model_spec)
    extra = plain_request()
    extra.inputs["more"].CopyFrom(extra.inputs["inputs"])
    floats = plain_request()
    floats.inputs["inputs"].CopyFrom(tf.make_tensor_proto([1.0]))
    scalar = plain_request()
    scalar.inputs["inputs"].CopyFrom(tf.make_tensor_proto(b"x"))
    untyped = plain_request()
    untyped.inputs["inputs"].dtype = 0
    output = plain_request()
    output.output_filter.append("prices")
    twice = plain_request()
    twice.output_filter.extend(["scores", "scores"])
    return [
        ("Missing ModelSpec", no_model),
        ("no name specified", plain_request(name="")),
        ("label: canary", plain_request(version_label="canary")),
        ("inputs must be ['inputs'], got []", no_input),
        ("got ['inputs', 'more']", extra),
        ("expects string of shape (None,), got float32", floats),
        ("of shape ()", scalar),
        ("tensor parsing error: inputs", untyped),
        ("output_filter must be different ones of ['scores'], got ['prices']", output),
        ("got ['scores', 'scores']", twice),
    ]


@pytest.mark.parametrize(("message", "request_"), wrong_inputs())
def test_wrong_inputs_are_an_invalid_argument(stub, message, request_):
    code, actual = rejected(stub.Predict, request_)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in actual


@pytest.mark.parametrize("sizes", [[10_000_000], [2**40], [2**20, 2**20], [0, 2**40], [-1]])
def test_a_shape_beyond_the_bytes_received_is_rejected_before_it_is_allocated(stub, sizes):
    """A TensorProto may give one value for any number of elements."""
    request = predict_request("plain", "", [b"x" * 280])
    tensor = request.inputs["inputs"]
    tensor.ClearField("tensor_shape")
    for size in sizes:
        tensor.tensor_shape.dim.add().size = size
    assert request.ByteSize() < 350
    tracemalloc.start()
    code, message = rejected(stub.Predict, request)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "tensor parsing error: inputs" in message
    assert peak < 8 * 10_000_000 / 4  # a quarter of the pointers to the fewest elements


def test_one_long_value_for_many_elements_is_rejected_before_it_is_allocated(stub):
    """The 100,000 elements are fewer than the bytes of the request, but take 20 GB."""
    request = predict_request("plain", "", [b"x" * 200_000])
    request.inputs["inputs"].tensor_shape.dim[0].size = 100_000
    code, message = rejected(stub.Predict, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "tensor parsing error: inputs (shape [100000] in" in message


def test_a_short_value_may_be_sent_once_for_several_elements(stub):
    request = predict_request("plain", "", [elwc(shop_items(3)), b""])
    request.inputs["inputs"].tensor_shape.dim[0].size = 5
    answer = stub.Predict(request, timeout=SECONDS)
    assert to_array(answer.outputs["scores"]).shape == (5, 3)


def test_metadata_has_the_signatures(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "mixture"
    request.metadata_field.append("signature_def")
    answer = stub.GetModelMetadata(request, timeout=SECONDS)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) >= {
        "rank",
        "schema",
        "serving_default",
        "tensorflow/serving/predict",
    }
    outputs = signatures.signature_def["rank"].outputs
    assert sorted(outputs) == ["expert_ids", "expert_weights", "order", "scores", "valid"]
    assert list(signatures.signature_def["serving_default"].inputs) == ["inputs"]


@pytest.mark.parametrize("fields", [[], ["costs"]])
def test_other_metadata_fields_are_rejected(stub, fields):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = "mixture"
    assert rejected(stub.GetModelMetadata, request)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_status_has_the_versions(channel):
    status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "plain"
    (entry,) = status(request, timeout=SECONDS).model_version_status
    assert (entry.version, entry.status.error_code) == (1, 0)
    assert entry.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    request.model_spec.version.value = 2
    assert rejected(status, request)[0] == grpc.StatusCode.NOT_FOUND
    request.model_spec.name = "nope"
    assert rejected(status, request)[0] == grpc.StatusCode.NOT_FOUND


def test_messages_beyond_grpcs_4_megabytes_are_accepted(server):
    with RankingClient(server.target, "plain", SHOP, timeout=SECONDS) as client:
        items = [{"price": float(i), "brand": "b" * 1000} for i in range(6000)]
        assert len(elwc(items)) > 6e6
        assert len(client.rank(CONTEXT, items).items) == 6000


def test_messages_beyond_the_limit_are_rejected_and_the_server_keeps_serving(server, stub):
    request = predict_request("plain", "", [b"\x00" * (65 * 2**20)])
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.target, options=options) as opened:
        assert rejected(Stub(opened).Predict, request)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stub.Predict(plain_request(), timeout=SECONDS).model_spec.version.value == 1


def test_health_ends_with_the_server(models: Path):
    running = DevServer(models, port=0).start()
    with grpc.insecure_channel(running.target) as opened:
        check = health_pb2_grpc.HealthStub(opened).Check
        for name in ("", "tensorflow.serving.PredictionService"):
            answer = check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        unknown = health_pb2.HealthCheckRequest(service="nope")
        assert rejected(check, unknown)[0] == grpc.StatusCode.NOT_FOUND
        running.stop()
        assert rejected(check, health_pb2.HealthCheckRequest())[0] == grpc.StatusCode.UNAVAILABLE


def test_folders_without_models_are_rejected(models: Path, tmp_path: Path):
    with pytest.raises(UserError, match="does not exist"):
        DevServer(tmp_path / "none", port=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: is a file, must be a folder"):
        DevServer(tmp_path / "file", port=0)
    with pytest.raises(UserError, match="has no model"):
        DevServer(tmp_path, port=0)
    with pytest.raises(UserError, match="the folder of one model"):
        DevServer(models / "plain", port=0)


def test_an_invalid_address_is_rejected(models: Path):
    with pytest.raises(UserError, match=r"port must be 0 to 65535. Received: port=70000"):
        DevServer(models, port=70000)
    with pytest.raises(UserError, match=r"cannot listen on nohost\.invalid:0"):
        DevServer(models, "nohost.invalid", 0)


def test_by_default_only_this_machine_reaches_it(server: DevServer):
    assert server.target.startswith("127.0.0.1:")
