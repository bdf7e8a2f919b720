from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records import TypedRow, encode_list, typed_row, typed_values
from tfr_moe._compat import tf, tfr
from tfr_moe.elwc.values import RowError, is_missing, to_id, to_number, to_time
from tfr_moe.schema import PACKED, FeatureSchema


def feature(name: str, scope: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "scope": scope, "kind": kind, **more}


def schema(packed: bool = True, **changes: Any) -> FeatureSchema:
    return FeatureSchema(
        **{
            "list_id": "session",
            "labels": ["click", "buy"],
            "position": "place",
            "weight": "importance",
            "time": "when",
            "hierarchy": {"child": "sub", "parent": "top"},
            "packed": packed,
            "features": [
                feature("top", "context", "categorical", required=True),
                feature("sub", "context", "categorical", default="other"),
                feature("age", "context", "numeric", default=30),
                feature("history", "context", "categorical_list", max_length=3),
                feature("price", "example", "numeric", required=True),
                feature("image", "example", "numeric", width=2, missing=0.5),
                feature("brand", "example", "categorical"),
            ],
            **changes,
        }
    )


RAW = {
    "session": "s1",
    "when": "2024-01-02T03:04:05Z",
    "click": "1",
    "buy": 0,
    "place": 3,
    "importance": "0.5",
    "top": " Garden ",
    "sub": "Tools",
    "age": "41",
    "history": "a|b|c|d",
    "price": "9.5",
    "image": [1, "2"],
    "brand": 77.0,
}


def row(**changes: Any) -> TypedRow:
    return typed_row(schema(), {**RAW, **changes})


# ------------------------------------------------------------------------------------ single values


@pytest.mark.parametrize("value", [None, "", "  ", "\t", float("nan"), np.float32("nan")])
def test_nothing_and_blanks_and_nan_are_missing(value: Any):
    assert is_missing(value)


@pytest.mark.parametrize("value", [0, "0", False, [], "nan?", 0.0, "-"])
def test_zero_and_marks_are_values(value: Any):
    assert not is_missing(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (7.5, "7.5"),
        (" x y ", "x y"),
        ("7.0", "7.0"),
        (b"caf\xc3\xa9", "café"),
        (True, "true"),
        (np.int64(7), "7"),
        (np.float64(7), "7"),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), "a"),
        (np.bool_(True), "true"),
        (10**20, "100000000000000000000"),
    ],
)
def test_an_id_is_text_and_whole_numbers_have_no_point(value: Any, text: str):
    assert to_id("c", value) == text


def test_text_without_utf8_is_rejected_by_column():
    half_a_pair = json.loads('"\\ud83d"')
    with pytest.raises(RowError, match="column 'brand': not valid Unicode text"):
        to_id("brand", half_a_pair)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, object(), np.array([1, 2]), np.array(["a"])])
def test_what_is_no_id_is_rejected_by_column(value: Any):
    with pytest.raises(RowError, match="column 'brand': expected an id"):
        to_id("brand", value)


@pytest.mark.parametrize("value", ["abc", None, [1], "1,5", {}])
def test_what_is_no_number_is_rejected_by_column(value: Any):
    with pytest.raises(RowError, match="column 'price': expected a number, got"):
        to_number("price", value)


@pytest.mark.parametrize(
    ("value", "number"),
    [("True", 1), ("false", 0), ("TRUE", 1), (" False ", 0), (True, 1), (np.bool_(False), 0)],
)
def test_booleans_and_their_texts_are_1_and_0(value: Any, number: float):
    assert to_number("in_stock", value) == number


@pytest.mark.parametrize("value", ["inf", "-inf", "1e39", float("inf"), 1e300, 10**400])
def test_what_does_not_fit_float32_is_rejected(value: Any):
    with pytest.raises(RowError, match="column 'price': expected a finite number"):
        to_number("price", value)


def test_a_number_with_underscores_is_none():
    with pytest.raises(RowError, match="column 'price': expected a number, got '1_000'"):
        to_number("price", "1_000")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float32_reads_back_as_it(number: float):
    assert to_number("c", repr(number)) == number


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        ("1500.5", 1500.5),
        ("1970-01-01", 0.0),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01 00:01:00 UTC", 60.0),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        (datetime(1970, 1, 1, 0, 1), 60.0),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0.0),
    ],
)
def test_times_are_unix_seconds_and_utc_where_no_zone_is_named(value: Any, seconds: float):
    assert to_time("when", value) == seconds


@pytest.mark.parametrize(
    "value", ["yesterday", "2024-13-01", "inf", [], 20240131, "20240131", 1706659200000]
)
def test_what_is_no_time_is_rejected_by_column(value: Any):
    with pytest.raises(RowError, match="column 'when': expected"):
        to_time("when", value)


@pytest.mark.parametrize("value", [None, " ", float("nan")])
def test_a_missing_time_is_rejected_by_column(value: Any):
    with pytest.raises(RowError, match="column 'when': a value is required"):
        to_time("when", value)


def test_different_bytes_never_become_one_id():
    assert to_id("item", b"caf\xc3\xa9") == "café"
    with pytest.raises(RowError, match=r"column 'item': not valid UTF-8: b'\\xffA'"):
        to_id("item", b"\xffA")


# -------------------------------------------------------------------------------------------- rows


def test_a_whole_row():
    assert row() == TypedRow(
        list_id="s1",
        time=1704164645.0,
        context={"top": "Garden", "sub": "Tools", "age": 41.0, "history": ["b", "c", "d"]},
        example={
            "price": 9.5,
            "image": [1.0, 2.0],
            "brand": "77",
            "click": 1.0,
            "buy": 0.0,
            "place": 3.0,
            "importance": 0.5,
        },
    )


def test_a_missing_value_becomes_the_default():
    parsed = row(sub="", age=None, history=None, image=float("nan"), brand=None)
    assert parsed.context == {"top": "Garden", "sub": "other", "age": 30.0, "history": []}
    assert parsed.example["image"] == [0.5, 0.5]
    assert parsed.example["brand"] == ""


def test_columns_that_the_schema_does_not_name_are_ignored():
    assert row(colour="red") == row()


def test_the_latest_entries_of_a_history_are_kept():
    assert row(history=[1, 2, 3, 4, 5]).context["history"] == ["3", "4", "5"]
    assert row(history=np.array(["x", "", "y"])).context["history"] == ["x", "y"]


def test_a_single_id_is_a_history_of_one():
    assert row(history=5).context["history"] == ["5"]


@pytest.mark.parametrize(
    "column", ["session", "when", "click", "buy", "place", "importance", "top", "price"]
)
def test_a_required_value_that_is_missing_is_named(column: str):
    with pytest.raises(RowError, match=f"column '{column}': a value is required"):
        row(**{column: ""})
    without = {name: value for name, value in RAW.items() if name != column}
    with pytest.raises(RowError, match=f"column '{column}': a value is required"):
        typed_row(schema(), without)


@pytest.mark.parametrize("column", ["click", "buy", "importance"])
def test_labels_and_weights_are_not_negative(column: str):
    with pytest.raises(RowError, match=f"column '{column}': must be >= 0, got -1"):
        row(**{column: "-1"})


def test_positions_start_at_one():
    with pytest.raises(RowError, match="column 'place': must be >= 1, got 0"):
        row(place="0")


@pytest.mark.parametrize("value", [[1], [1, 2, 3], "1|2|3", 4])
def test_a_wide_numeric_of_another_width_is_rejected(value: Any):
    with pytest.raises(RowError, match=r"column 'image': expected 2 numbers, got [13]"):
        row(image=value)


@pytest.mark.parametrize(
    ("column", "value"),
    [("price", "cheap"), ("age", "old"), ("image", "1|x"), ("brand", {}), ("history", [{}])],
)
def test_a_value_of_the_wrong_type_is_named(column: str, value: Any):
    with pytest.raises(RowError, match=f"column '{column}': expected"):
        row(**{column: value})


def test_a_request_needs_no_label():
    assert typed_values(schema(), "example", {"price": 1, "brand": "b"}) == {
        "price": 1.0,
        "image": [0.5, 0.5],
        "brand": "b",
    }


# ------------------------------------------------------------------------------------- round trips


def parse(s: FeatureSchema, record: bytes) -> dict[str, np.ndarray]:
    parsed = tfr.data.parse_from_example_list(
        [record],
        context_feature_spec={**s.feature_spec("context"), **s.role_spec("context")},
        example_feature_spec={
            **s.feature_spec("example"),
            **s.role_spec("example"),
        },
    )
    return {name: tensor.numpy()[0] for name, tensor in parsed.items()}


def texts(array: np.ndarray) -> list[str]:
    return [text.decode("utf-8") for text in array.ravel()]


float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
identifier = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip() == text
)
item = st.fixed_dictionaries(
    {
        "price": float32,
        "image": st.lists(float32, min_size=2, max_size=2),
        "brand": st.one_of(st.just(""), identifier),
        "click": st.floats(0, 5, width=32),
        "buy": st.sampled_from([0.0, 1.0]),
        "place": st.integers(1, 500),
        "importance": st.floats(0, 5, width=32),
    }
)
shared = st.fixed_dictionaries(
    {
        "session": identifier,
        # Eight digits may be a date, which is rejected.
        "when": st.integers(0, 2**31).filter(lambda t: len(str(t)) != 8),
        "top": identifier,
        "sub": identifier,
        "age": float32,
        "history": st.lists(identifier.filter(lambda t: "|" not in t), max_size=5),
    }
)


@pytest.mark.smoke
@settings(max_examples=60, deadline=None)
@given(context=shared, items=st.lists(item, min_size=1, max_size=4), packed=st.booleans())
def test_rows_encoded_and_parsed_by_tfr_are_the_same_values(context, items, packed):
    s = schema(packed)
    rows = [typed_row(s, {**context, **one}) for one in items]
    record = encode_list(s, rows[0].list_id, rows[0].context, [r.example for r in rows])
    parsed = parse(s, record)

    assert texts(parsed["session"]) == [context["session"]]
    assert texts(parsed["top"]) == [context["top"]]
    assert texts(parsed["sub"]) == [context["sub"]]
    latest = context["history"][-3:]
    assert texts(parsed["history"]) == latest + [""] * (3 - len(latest))
    assert texts(parsed["brand"]) == [one["brand"] for one in items]
    for name in ("click", "buy", "place", "importance"):
        assert parsed[name].ravel().tolist() == [one[name] for one in items]
    if packed:
        assert parsed[PACKED["context"]].tolist() == [context["age"]]
        assert parsed[PACKED["example"]].tolist() == [
            [one["price"], *one["image"]] for one in items
        ]
    else:
        assert parsed["age"].tolist() == [context["age"]]
        assert parsed["price"].tolist() == [[one["price"]] for one in items]
        assert parsed["image"].tolist() == [one["image"] for one in items]


def test_padded_items_read_defaults_and_the_padding_label():
    s = schema()
    one = row()
    records = [encode_list(s, "a", one.context, [one.example] * n) for n in (1, 2)]
    parsed = tfr.data.parse_from_example_list(
        records,
        context_feature_spec=s.feature_spec("context"),
        example_feature_spec={**s.feature_spec("example"), **s.role_spec("example")},
        mask_feature_name="example_list_mask",
    )
    assert parsed["example_list_mask"].numpy().tolist() == [[True, False], [True, True]]
    assert parsed["click"].numpy()[:, :, 0].tolist() == [[1.0, -1.0], [1.0, 1.0]]
    assert parsed[PACKED["example"]].numpy()[0, 1].tolist() == [0.0, 0.5, 0.5]


def test_a_request_without_labels_encodes():
    s = schema()
    values = {"price": 1.0, "image": [0.0, 0.0], "brand": "b"}
    record = encode_list(s, "q", row().context, [values])
    assert parse(s, record)["click"].ravel().tolist() == [-1.0]


def test_packing_makes_records_smaller():
    columns = [{"name": f"x{i}", "scope": "example", "kind": "numeric"} for i in range(30)]
    sizes = {}
    for packed in (True, False):
        s = FeatureSchema(list_id="q", labels=["click"], features=columns, packed=packed)
        values = {f"x{i}": float(i) for i in range(30)}
        sizes[packed] = len(encode_list(s, "q", {}, [values] * 10))
    # 30 floats are 120 bytes; the name and the tags of a scalar feature cost more than its value.
    assert sizes[True] * 3 < sizes[False]


def test_the_same_list_encodes_to_the_same_values_whatever_the_order_of_the_columns():
    s = schema()
    backwards = dict(reversed(RAW.items()))
    assert typed_row(s, backwards) == row()


def test_log1p_is_left_to_the_model():
    s = schema(
        hierarchy=None,
        features=[{"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p"}],
    )
    record = encode_list(s, "q", {}, [typed_row(s, RAW).example])
    assert parse(s, record)[PACKED["example"]].tolist() == [[9.5]]
    assert not math.isclose(9.5, math.log1p(9.5))


def test_the_record_is_an_example_list_with_context():
    from tensorflow_serving.apis import input_pb2

    one = row()
    record = encode_list(schema(), "s1", one.context, [one.example, one.example])
    proto = input_pb2.ExampleListWithContext.FromString(record)
    assert len(proto.examples) == 2
    assert proto.context.features.feature["session"].bytes_list.value[:] == [b"s1"]
    assert isinstance(proto.examples[0], tf.train.Example)
