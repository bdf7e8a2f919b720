"""Parsing of requests in the graph, on protos built by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import input_pb2

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.serving.export.parsing import RequestParser

NAN = float("nan")
PLAIN: dict[str, Any] = {
    "list_id": "session",
    "labels": ["bought"],
    "features": [
        {"name": "age", "scope": "context", "kind": "numeric", "required": True},
        {"name": "country", "scope": "context", "kind": "categorical", "default": "xx"},
        {"name": "price", "scope": "example", "kind": "numeric", "required": True},
        {"name": "vector", "scope": "example", "kind": "numeric", "width": 2, "required": True},
        {"name": "stars", "scope": "example", "kind": "numeric", "default": 3.0},
        {"name": "brand", "scope": "example", "kind": "categorical", "required": True},
        {"name": "tags", "scope": "example", "kind": "categorical_list", "max_length": 2},
        {
            "name": "seen",
            "scope": "example",
            "kind": "categorical_list",
            "max_length": 2,
            "required": True,
        },
    ],
}
PACKED = FeatureSchema.model_validate(PLAIN)
SCALAR = FeatureSchema.model_validate({**PLAIN, "packed": False})

Values = dict[str, list[Any]]
CONTEXT: Values = {"context_numeric": [30.0], "country": [b"at"]}
ITEM: Values = {
    "example_numeric": [9.5, 1.0, 2.0, 4.0],
    "brand": [b"acme"],
    "tags": [b"new", b""],
    "seen": [b"", b""],
}


def fill(example: Any, values: Values) -> Any:
    for name, parts in values.items():
        feature = example.features.feature[name]
        kind = feature.bytes_list if isinstance(parts[0], bytes) else feature.float_list
        kind.value.extend(parts)
    return example


def elwc(context: Values, *items: Values) -> bytes:
    proto = input_pb2.ExampleListWithContext()
    fill(proto.context, context)
    for item in items:
        fill(proto.examples.add(), item)
    return proto.SerializeToString()


def without(values: Values, *names: str) -> Values:
    return {name: parts for name, parts in values.items() if name not in names}


def parse(*lists: bytes, schema: FeatureSchema = PACKED) -> dict[str, np.ndarray]:
    features = RequestParser(schema).lists(tf.constant(lists, tf.string, shape=[len(lists)]))
    return {name: value.numpy() for name, value in features.items()}


def refusal(*lists: bytes, schema: FeatureSchema = PACKED) -> str:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        parse(*lists, schema=schema)
    return str(caught.value)


def test_values_come_through_unchanged():
    features = parse(elwc(CONTEXT, ITEM))
    assert features["context_numeric"].tolist() == [[30.0]]
    assert features["country"].tolist() == [[b"at"]]
    assert features["example_numeric"].tolist() == [[[9.5, 1.0, 2.0, 4.0]]]
    assert features["tags"].tolist() == [[[b"new", b""]]]
    assert features[MASK].tolist() == [[True]]


def test_shapes_are_those_of_the_schema():
    features = parse(elwc(CONTEXT, ITEM, ITEM), elwc(CONTEXT, ITEM))
    for name, spec in PACKED.feature_spec("context").items():
        assert features[name].shape == (2, *spec.shape)
    for name, spec in PACKED.feature_spec("example").items():
        assert features[name].shape == (2, 2, *spec.shape)


def test_missing_optional_values_take_the_default():
    item = {**without(ITEM, "tags"), "example_numeric": [9.5, 1.0, 2.0, NAN]}
    features = parse(elwc({"context_numeric": [30.0]}, item))
    assert features["country"].tolist() == [[b"xx"]]
    assert features["example_numeric"].tolist() == [[[9.5, 1.0, 2.0, 3.0]]]
    assert features["tags"].tolist() == [[[b"", b""]]]


def test_an_empty_id_is_a_missing_one():
    features = parse(elwc({**CONTEXT, "country": [b""]}, ITEM))
    assert features["country"].tolist() == [[b"xx"]]


def test_a_missing_required_number_fails_with_its_name():
    message = refusal(elwc(CONTEXT, ITEM, {**ITEM, "example_numeric": [NAN, 1.0, 2.0, 4.0]}))
    assert "required feature(s)" in message
    assert "price" in message
    assert "vector" not in message


def test_all_missing_required_features_are_named_once():
    message = refusal(elwc({"country": [b"at"]}, {"tags": [b"new", b""]}))
    for name in ("age", "price", "vector", "brand", "seen"):
        assert message.count(name) == 1, name
    assert "stars" not in message


@pytest.mark.parametrize("brand", [{}, {"brand": [b""]}])
def test_a_missing_required_id_fails_with_its_name(brand):
    assert "brand" in refusal(elwc(CONTEXT, {**without(ITEM, "brand"), **brand}))


def test_an_absent_required_list_of_ids_fails_and_an_empty_one_does_not():
    assert "seen" in refusal(elwc(CONTEXT, without(ITEM, "seen")))
    assert parse(elwc(CONTEXT, ITEM))["seen"].tolist() == [[[b"", b""]]]


def test_padding_has_no_missing_values():
    features = parse(elwc(CONTEXT, ITEM, ITEM, ITEM), elwc(CONTEXT, ITEM))
    assert features[MASK].tolist() == [[True, True, True], [True, False, False]]
    assert features["example_numeric"][1, 1:].tolist() == [[0.0, 0.0, 0.0, 3.0]] * 2
    assert features["seen"][1, 2].tolist() == [b"", b""]
    assert all(np.isfinite(value).all() for value in features.values() if value.dtype == np.float32)


def test_a_list_without_items_needs_no_context():
    features = parse(b"", elwc(CONTEXT, ITEM))
    assert features[MASK].tolist() == [[False], [True]]
    assert features["context_numeric"].tolist() == [[0.0], [30.0]]


@pytest.mark.parametrize("lists", [[], [b""], [elwc(CONTEXT), b""]])
def test_empty_lists_are_padded_to_one_item(lists):
    features = parse(*lists)
    assert not features[MASK].any()
    assert features[MASK].shape == (max(len(lists), 1), 1)
    assert features["example_numeric"].shape[1] == 1


def test_a_wrong_number_of_packed_values_is_rejected():
    assert "example_numeric" in refusal(elwc(CONTEXT, {**ITEM, "example_numeric": [1.0]}))


def test_garbage_is_data_loss():
    with pytest.raises(tf.errors.DataLossError):
        parse(b"no proto at all")


def test_scalar_numerics_are_checked_feature_by_feature():
    context = {"age": [30.0], "country": [b"at"]}
    item = {**without(ITEM, "example_numeric"), "price": [9.5], "vector": [1.0, 2.0]}
    features = parse(elwc(context, item), schema=SCALAR)
    assert features["stars"].tolist() == [[[3.0]]]
    assert features["vector"].tolist() == [[[1.0, 2.0]]]
    assert "vector" in refusal(elwc(context, without(item, "vector")), schema=SCALAR)
    assert "age" in refusal(elwc(without(context, "age"), item), schema=SCALAR)
