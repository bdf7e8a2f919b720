"""What the local server answers over real gRPC on the loopback interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    input_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tests.serving.conftest import CONTEXT, SECONDS, asking, elwc, refused, shop_items
from tests.serving.models import SHOP
from tfr_moe._compat import tf
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.server import RankingServer
from tfr_moe.serving.tensors import predict_request, to_array

pytestmark = pytest.mark.smoke

Stub = prediction_service_pb2_grpc.PredictionServiceStub


def test_predict_answers_as_the_saved_model_does(stub, signature):
    answer = stub.Predict(asking(), timeout=SECONDS)
    assert answer.model_spec.name == "plain"
    assert answer.model_spec.version.value == 1
    assert answer.model_spec.signature_name == "serving_default"
    expected = signature("plain", "serving_default")([elwc(shop_items(3)), elwc(shop_items(5))])
    np.testing.assert_allclose(to_array(answer.outputs["scores"]), expected["scores"], atol=1e-6)


def test_answers_are_tensors_for_tensorflow_too(stub):
    scores = stub.Predict(asking(), timeout=SECONDS).outputs["scores"]
    np.testing.assert_array_equal(tf.make_ndarray(scores), to_array(scores))


def test_the_output_filter_is_honoured(stub):
    request = asking(signature_name="rank")
    request.output_filter.extend(["order"])
    assert list(stub.Predict(request, timeout=SECONDS).outputs) == ["order"]


def test_an_unknown_signature_is_a_failed_precondition(stub):
    code, message = refused(stub.Predict, asking(signature_name="nope"))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert message == 'Serving signature key "nope" not found.'


@pytest.mark.parametrize(
    ("changes", "which"),
    [({"name": "nope"}, "Latest(nope)"), ({"version": 9}, "Specific(plain, 9)")],
)
def test_an_unknown_model_or_version_is_not_found(stub, changes, which):
    code, message = refused(stub.Predict, asking(**changes))
    assert code == grpc.StatusCode.NOT_FOUND
    assert message == f"Servable not found for request: {which}"


def test_garbage_is_data_loss(stub):
    request = predict_request("plain", "rank", [b"garbage"])
    assert refused(stub.Predict, request)[0] == grpc.StatusCode.DATA_LOSS


def test_a_missing_required_feature_is_an_invalid_argument_with_its_name(stub):
    request = predict_request("plain", "", [b"\n\x00"])  # one empty item
    code, message = refused(stub.Predict, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith("assertion failed: [the request has no value for required")
    assert "price" in message


def test_bytes_that_are_no_message_are_refused_without_a_traceback_in_the_log(channel, caplog):
    ask = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    code, message = refused(ask, b"\xff\xff")
    assert code == grpc.StatusCode.INTERNAL
    assert message.endswith("/tensorflow.serving.PredictionService/Predict (2 bytes)")
    assert not caplog.records


def wrong_inputs() -> list[tuple[str, Any]]:
    no_model = asking()
    no_model.ClearField("model_spec")
    no_input = predict_pb2.PredictRequest(model_spec=asking().model_spec)
    extra = asking()
    extra.inputs["more"].CopyFrom(extra.inputs["inputs"])
    floats = asking()
    floats.inputs["inputs"].CopyFrom(tf.make_tensor_proto([1.0]))
    scalar = asking()
    scalar.inputs["inputs"].CopyFrom(tf.make_tensor_proto(b"x"))
    untyped = asking()
    untyped.inputs["inputs"].dtype = 0
    output = asking()
    output.output_filter.append("prices")
    twice = asking()
    twice.output_filter.extend(["scores", "scores"])
    return [
        ("Missing ModelSpec", no_model),
        ("no name specified", asking(name="")),
        ("label: canary", asking(version_label="canary")),
        ("Missing but required: {inputs}", no_input),
        ("Sent extra: {more}", extra),
        ("expects string of shape (None,), got float32", floats),
        ("of shape ()", scalar),
        ("tensor parsing error: inputs", untyped),
        ("not found in signature: prices", output),
        ("duplicate output", twice),
    ]


@pytest.mark.parametrize(("message", "request_"), wrong_inputs())
def test_wrong_inputs_are_an_invalid_argument(stub, message, request_):
    code, found = refused(stub.Predict, request_)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in found


def items_input(as_list: bool) -> Any:
    """Three items with their context, in both forms that Regress takes."""
    proto = input_pb2.ExampleListWithContext.FromString(elwc(shop_items(3)))
    if not as_list:
        return input_pb2.Input(example_list_with_context=proto)
    merged = []
    for example in proto.examples:
        example.MergeFrom(proto.context)
        merged.append(example)
    return input_pb2.Input(example_list=input_pb2.ExampleList(examples=merged))


@pytest.mark.parametrize("as_list", [True, False])
def test_regress_scores_items_one_by_one(stub, signature, as_list):
    request = regression_pb2.RegressionRequest(input=items_input(as_list))
    request.model_spec.name = "plain"
    request.model_spec.signature_name = "tensorflow/serving/regress"
    answer = stub.Regress(request, timeout=SECONDS)
    assert answer.model_spec.version.value == 1
    alone = signature("plain", "serving_default")([elwc([item]) for item in shop_items(3)])
    values = [regression.value for regression in answer.result.regressions]
    np.testing.assert_allclose(values, alone["scores"][:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("nope", grpc.StatusCode.INVALID_ARGUMENT, "No signature was found with the name: nope"),
        ("rank", grpc.StatusCode.INVALID_ARGUMENT, "Expected one output Tensor."),
        ("", grpc.StatusCode.FAILED_PRECONDITION, "No regression outputs found"),
    ],
)
def test_regress_refuses_signatures_that_are_no_regression(stub, name, code, message):
    request = regression_pb2.RegressionRequest(input=items_input(True))
    request.model_spec.name = "plain"
    request.model_spec.signature_name = name
    found, details = refused(stub.Regress, request)
    assert found == code
    assert message in details


def test_regress_refuses_an_empty_input(stub):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "plain"
    request.model_spec.signature_name = "tensorflow/serving/regress"
    assert refused(stub.Regress, request) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Input is empty.",
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nope", grpc.StatusCode.INVALID_ARGUMENT),
        ("rank", grpc.StatusCode.INVALID_ARGUMENT),
        ("tensorflow/serving/regress", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
def test_classify_refuses_signatures_that_are_no_classification(stub, name, code):
    request = classification_pb2.ClassificationRequest(input=items_input(True))
    request.model_spec.name = "plain"
    request.model_spec.signature_name = name
    assert refused(stub.Classify, request)[0] == code


def test_classify_answers_for_a_model_with_classes(tmp_path: Path):
    """A model that is not ours: two classes for each example, by the length of its bytes."""
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def classify(inputs):
        length = tf.cast(tf.strings.length(inputs), tf.float32)
        classes = tf.tile([["long", "short"]], [tf.size(inputs), 1])
        return {"classes": classes, "scores": tf.stack([length, -length], axis=1)}

    module.classify = classify
    tf.saved_model.save(module, str(tmp_path / "words" / "3"), {"serving_default": classify})
    request = classification_pb2.ClassificationRequest(input=items_input(True))
    request.model_spec.name = "words"
    with (
        RankingServer(tmp_path, port=0) as running,
        grpc.insecure_channel(running.target) as opened,
    ):
        answer = Stub(opened).Classify(request, timeout=SECONDS)
    sizes = [e.ByteSize() for e in request.input.example_list.examples]
    found = [[(c.label, c.score) for c in row.classes] for row in answer.result.classifications]
    assert found == [[("long", size), ("short", -size)] for size in sizes]


def test_metadata_tells_the_signatures(stub):
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
        "tensorflow/serving/regress",
    }
    outputs = signatures.signature_def["rank"].outputs
    assert sorted(outputs) == ["expert_ids", "expert_weights", "order", "scores", "valid"]
    assert list(signatures.signature_def["serving_default"].inputs) == ["inputs"]


@pytest.mark.parametrize("fields", [[], ["costs"]])
def test_metadata_refuses_other_fields(stub, fields):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = "mixture"
    assert refused(stub.GetModelMetadata, request)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_status_tells_the_versions(channel):
    status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "plain"
    (entry,) = status(request, timeout=SECONDS).model_version_status
    assert (entry.version, entry.status.error_code) == (1, 0)
    assert entry.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    request.model_spec.version.value = 2
    assert refused(status, request)[0] == grpc.StatusCode.NOT_FOUND
    request.model_spec.name = "nope"
    assert refused(status, request)[0] == grpc.StatusCode.NOT_FOUND


def test_messages_beyond_grpcs_4_megabytes_are_taken(server, stub):
    with RankingClient(server.target, "plain", SHOP, timeout=SECONDS) as client:
        items = [{"price": float(i), "brand": "b" * 1000} for i in range(6000)]
        assert len(elwc(items)) > 6e6
        assert [item.index for item in client.rank(CONTEXT, items).items] != []
