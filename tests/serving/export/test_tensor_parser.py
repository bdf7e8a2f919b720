"""Requests of plain tensors: the same answers as protos, and errors that name the input."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2

from tests.serving.conftest import CONTEXT, SECONDS, elwc, plain_request, rejected, shop_items
from tests.serving.models import SHOP, scorer
from tfr_moe._compat import tf
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export.parsing import RequestParser, TensorParser
from tfr_moe.serving.export.signatures import build

LOWEST = float(np.finfo(np.float32).min)
NAN = float("nan")


def inputs(sizes: list[int], places: int, **changes: Any) -> dict[str, Any]:
    """Lists of the first items of the shop; what stands behind them repeats the first one."""
    items = shop_items(places)
    rows = [[items[i if i < size else 0] for i in range(places)] for size in sizes]
    tags = [[(item["tags"] + ["", ""])[:2] for item in row] for row in rows]
    given = {
        "top": [CONTEXT["top"]] * len(sizes),
        "sub": [CONTEXT["sub"]] * len(sizes),
        "age": [float(CONTEXT["age"])] * len(sizes),
        "price": [[item["price"] for item in row] for row in rows],
        "stars": [[float(item["stars"]) for item in row] for row in rows],
        "brand": [[item["brand"] for item in row] for row in rows],
        "tags": tags,
        "list_size": sizes,
        **changes,
    }
    return {name: tf.constant(value) for name, value in given.items()}


@pytest.fixture(scope="module")
def signatures():
    return build(scorer(), SHOP).signatures


@pytest.fixture(scope="module")
def tensors(signatures):
    return lambda given: signatures["tensors"](**given)["scores"].numpy()


def test_the_parsed_features_are_those_of_the_protos():
    found = TensorParser(SHOP).lists(inputs([3, 2], 3))
    expected = RequestParser(SHOP).lists(tf.constant([elwc(shop_items(3)), elwc(shop_items(2))]))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_scores_are_those_of_predict_whatever_the_padding(signatures, tensors):
    found = tensors(inputs([5, 2], 7))
    lists = tf.constant([elwc(shop_items(5)), elwc(shop_items(2))])
    expected = signatures["serving_default"](inputs=lists)["scores"].numpy()
    np.testing.assert_allclose(found[:, :5], expected, rtol=1e-6)
    assert (found[:, 5:] == LOWEST).all()


def over_the_wire(given: dict[str, Any]) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "plain", "tensors"
    for name, value in given.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def test_a_server_answers_tensors_as_it_answers_protos(stub):
    answer = stub.Predict(over_the_wire(inputs([3, 5], 6)), timeout=SECONDS)
    expected = stub.Predict(plain_request(), timeout=SECONDS)  # the same two lists
    found, wanted = (tf.make_ndarray(each.outputs["scores"]) for each in (answer, expected))
    np.testing.assert_allclose(found[:, :5], wanted, rtol=1e-5)
    assert (found[:, 5:] == LOWEST).all()


def test_a_server_rejects_tensors_by_name(stub):
    given = over_the_wire(inputs([3], 3, price=[[1.0, NAN, 2.0]]))
    code, details = rejected(stub.Predict, given)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "price" in details


def test_missing_values_take_the_default(tensors):
    bare = tensors(inputs([2], 2, stars=[[NAN, 1.0]], age=[NAN], brand=[["", "bolt"]]))
    full = tensors(inputs([2], 2, stars=[[3.0, 1.0]], age=[40.0], brand=[["", "bolt"]]))
    np.testing.assert_array_equal(bare, full)


def test_no_lists_and_lists_without_places_are_answered(tensors):
    assert tensors({k: v[:0] for k, v in inputs([2], 2).items()}).shape == (0, 2)
    none = inputs([0], 2)
    narrow = {k: v[:, :0] if v.shape.rank > 1 else v for k, v in none.items()}
    assert tensors(narrow).shape == (1, 0)
    assert (tensors(none) == LOWEST).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"list_size": [4]}, "list_size must be from 0 to"),
        ({"list_size": [-1]}, "list_size must be from 0 to"),
        ({"price": [[1.0, NAN, 2.0]]}, "required.*price"),
        ({"brand": [["acme"]]}, "input brand must have the sizes"),
        ({"age": [1.0, 2.0]}, "input age must have the sizes"),
        ({"tags": [[["new"] * 4] * 3]}, "input tags.*with 3 values each"),
    ],
)
def test_invalid_tensors_are_rejected_by_name(tensors, changes, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tensors(inputs([3], 3, **changes))


def test_wide_and_scalar_features_have_a_tensor_each():
    schema = FeatureSchema.model_validate(
        {
            "list_id": "query",
            "labels": ["click"],
            "packed": False,
            "features": [
                {"name": "vector", "scope": "example", "kind": "numeric", "width": 2, "missing": 0},
                {"name": "user", "scope": "context", "kind": "numeric", "width": 3},
            ],
        }
    )
    parser = TensorParser(schema)
    assert {name: spec.shape.rank for name, spec in parser.inputs().items()} == {
        "list_size": 1,
        "vector": 3,
        "user": 2,
    }
    given = {
        "list_size": tf.constant([1]),
        "vector": tf.constant([[[1.0, 2.0], [3.0, 4.0]]]),
        "user": tf.constant([[5.0, 6.0, 7.0]]),
    }
    found = parser.lists(given)
    assert found["vector"].numpy().tolist() == [[[1.0, 2.0], [0.0, 0.0]]]
    assert found["user"].numpy().tolist() == [[5.0, 6.0, 7.0]]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)input vector.*with 2 values each"
    ):
        parser.lists({**given, "vector": tf.constant([[[1.0], [3.0]]])})
