"""Requests: encoding and request files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tensorflow_serving.apis import input_pb2

from tests.serving.conftest import CONTEXT, elwc, shop_items
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.client.request import RequestEncoder, load_request

GOOD = {"context": CONTEXT, "items": shop_items(2)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "request.json"


def test_a_request_is_encoded_as_the_pipeline_encodes_rows():
    encoded = RequestEncoder(SHOP).encode({**CONTEXT, "session": "q"}, shop_items(3))
    proto = input_pb2.ExampleListWithContext
    assert proto.FromString(encoded) == proto.FromString(elwc(shop_items(3)))


def test_all_unknown_features_are_named():
    with pytest.raises(
        UserError, match=r"^items\[0\]: unknown features 'a', 'z'; allowed: price, "
    ):
        RequestEncoder(SHOP).encode(CONTEXT, [{"z": 1, "a": 2, "price": 3}])


@pytest.mark.parametrize(
    ("context", "items", "message"),
    [
        (CONTEXT, None, "items: must be a list of mappings, got NoneType"),
        (CONTEXT, "ball", "items: must be a list of mappings, got str"),
        (CONTEXT, [{"price": 1}, None], "items[1]: must map features to values, got NoneType"),
        (None, [], "context: must map features to values, got NoneType"),
    ],
)
def test_what_is_not_a_list_of_mappings_is_rejected(context, items, message):
    with pytest.raises(UserError) as caught:
        RequestEncoder(SHOP).encode(context, items)
    assert str(caught.value) == message


def test_a_file_is_read_back(file: Path):
    file.write_text(json.dumps(GOOD))
    request = load_request(file, SHOP)
    assert (request.context, request.items) == (CONTEXT, shop_items(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"context": {}', "not valid JSON: Expecting ',' delimiter: line 1"),
        ("[" * 100_000, "not valid JSON: maximum recursion depth exceeded"),
        ('{"context": {"n": ' + "9" * 5000 + "}}", "not valid JSON: Exceeds the limit"),
        ("[]", "must be a mapping of names to values. Received: []"),
        ('{"context": {}}', "items: Field required"),
        ('{"context": {}, "items": [], "model": 1}', "model: unknown key"),
        ('{"context": [], "items": []}', "context: must map features to values, got list"),
        ('{"context": {}, "items": {}}', "items: must be a list of mappings, got dict"),
        ('{"context": {}, "items": [{}, 3]}', "items[1]: must map features to values, got int"),
        (
            '{"context": {}, "items": [{"cost": 3}]}',
            "items[0]: unknown feature 'cost'; allowed: price",
        ),
    ],
)
def test_an_invalid_file_is_rejected_in_one_line(file: Path, text: str, message: str):
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_request(file, SHOP)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(file: Path):
    with pytest.raises(UserError, match=r"request\.json: no such file"):
        load_request(file)


def test_a_file_that_is_no_text_is_named(file: Path):
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid JSON: 'utf-8' codec"):
        load_request(file)
