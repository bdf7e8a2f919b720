"""Arbitrary bytes, tensors and values: each is rejected clearly, and the server keeps serving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import input_pb2, predict_pb2, prediction_service_pb2_grpc

from tests.serving.conftest import CONTEXT, elwc, predict_request, shop_items
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.dev_server import DevServer

SECONDS = 20.0
PREDICT = "/tensorflow.serving.PredictionService/Predict"
FUZZED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
VALID = elwc(shop_items(3))


@pytest.fixture(scope="module")
def channel(server: DevServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as opened:
        yield opened
        # Whatever came before, the server answers as ever.
        stub = prediction_service_pb2_grpc.PredictionServiceStub(opened)
        stub.Predict(predict_request("plain", "rank", [VALID]), timeout=SECONDS)


def status(channel: grpc.Channel, request: Any) -> str:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    try:
        stub.Predict(request, timeout=SECONDS)
    except grpc.RpcError as error:
        assert error.details()
        return error.code().name
    return "OK"


@FUZZED
@given(serialized=st.binary(max_size=300))
def test_arbitrary_bytes_as_a_list_are_rejected_or_a_list(channel, serialized):
    """What does not parse is DATA_LOSS, as in TensorFlow Serving."""
    actual = status(channel, predict_request("plain", "rank", [serialized]))
    try:
        input_pb2.ExampleListWithContext.FromString(serialized)
    except Exception:
        assert actual in ("DATA_LOSS", "INVALID_ARGUMENT")
    else:
        assert actual in ("OK", "DATA_LOSS", "INVALID_ARGUMENT")


@FUZZED
@given(
    at=st.integers(0, len(VALID) - 1),
    length=st.integers(0, 8),
    other=st.binary(max_size=8),
    good_first=st.booleans(),
)
def test_corrupted_lists_are_rejected_or_a_list(channel, at, length, other, good_first):
    tampered = VALID[:at] + other + VALID[at + length :]
    lists = [VALID, tampered] if good_first else [tampered]
    actual = status(channel, predict_request("mixture", "rank", lists))
    assert actual in ("OK", "DATA_LOSS", "INVALID_ARGUMENT")


TENSORS = st.fixed_dictionaries(
    {
        "dtype": st.integers(0, 30),
        "sizes": st.lists(st.integers(-2, 2**40), max_size=3),
        "content": st.binary(max_size=16),
        "float_val": st.lists(st.floats(width=32), max_size=3),
        "string_val": st.lists(st.binary(max_size=8), max_size=3),
    }
)


@FUZZED
@given(
    model=st.sampled_from(["plain", "itemwise", "", "nope", "\x00"]),
    signature=st.sampled_from(["", "rank", "schema", "nope"]),
    inputs=st.dictionaries(st.sampled_from(["inputs", "more", ""]), TENSORS, max_size=2),
    outputs=st.lists(st.sampled_from(["scores", "order", "nope"]), max_size=2),
)
def test_arbitrary_requests_are_rejected_with_a_status_of_tensorflow_serving(
    channel, model, signature, inputs, outputs
):
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        proto = request.inputs[name]
        proto.dtype = tensor["dtype"]
        for size in tensor["sizes"]:
            proto.tensor_shape.dim.add().size = size
        proto.tensor_content = tensor["content"]
        proto.float_val.extend(tensor["float_val"])
        proto.string_val.extend(tensor["string_val"])
    assert status(channel, request) in (
        "OK",
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "NOT_FOUND",
        "DATA_LOSS",
    )


@FUZZED
@given(message=st.binary(max_size=100))
def test_bytes_that_are_not_a_message_are_rejected(channel, message):
    try:
        channel.unary_unary(PREDICT)(message, timeout=SECONDS)
    except grpc.RpcError as error:
        code = error.code().name
    try:
        predict_pb2.PredictRequest.FromString(message)
    except Exception:
        assert code == "INTERNAL"  # as gRPC in C++ answers what it can't deserialize
    else:
        assert code in ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(["top", "sub", "age", "price", "stars", "brand", "tags", "session", "x"])
ROWS = st.dictionaries(NAMES, ANYTHING, max_size=4)


@settings(FUZZED, max_examples=300)
@given(context=ROWS, items=st.lists(ROWS, max_size=3))
def test_arbitrary_values_are_rejected_with_a_name_or_encoded(context, items):
    try:
        serialized = RequestEncoder(SHOP).encode(context, items)
    except UserError as error:
        assert "\n" not in str(error)
        assert str(error).startswith(("context: ", "items["))
    else:
        assert len(input_pb2.ExampleListWithContext.FromString(serialized).examples) == len(items)


PLAIN = st.text(max_size=5) | st.integers(-5, 5)
ITEMS = st.fixed_dictionaries(
    {"price": st.floats(-1e30, 1e30)},
    optional={
        "stars": st.none() | st.floats(width=32, allow_infinity=False),
        "brand": PLAIN,
        "tags": st.lists(PLAIN, max_size=5),
    },
)


@FUZZED
@given(items=st.lists(ITEMS, max_size=4), age=st.none() | st.integers(0, 99))
def test_the_server_answers_every_request_that_the_client_sends(server, items, age):
    with RankingClient(server.target, "plain", SHOP, timeout=SECONDS) as client:
        answer = client.rank({**CONTEXT, "age": age}, items)
    assert sorted(item.index for item in answer.items) == list(range(len(items)))
