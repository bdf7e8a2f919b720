"""Rows to bytes: the fast way against the plain one, and back to values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records import encode_list, typed_row
from tfr_moe.elwc.encoder import RowEncoder, scope_floats
from tfr_moe.elwc.values import RowError, decode_list
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import FeatureSchema

SCHEMA = {
    "list_id": "session",
    "time": "when",
    "position": "place",
    "weight": "importance",
    "labels": ["click", "buy"],
    "hierarchy": {"child": "sub", "parent": "top"},
    "features": [
        {"name": "top", "scope": "context", "kind": "categorical", "hash_buckets": 9},
        {"name": "sub", "scope": "context", "kind": "categorical", "default": "other"},
        {"name": "age", "scope": "context", "kind": "numeric", "default": 30},
        {"name": "history", "scope": "context", "kind": "categorical_list", "max_length": 3},
        {"name": "price", "scope": "example", "kind": "numeric"},
        {"name": "stock", "scope": "example", "kind": "numeric", "default": 0.5},
        {"name": "brand", "scope": "example", "kind": "categorical"},
        {"name": "tags", "scope": "example", "kind": "categorical_list", "max_length": 2},
    ],
}

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(width=32),
    st.text(max_size=6),
    st.sampled_from(
        ["", " ", "7", "7.0", "-0", "1_0", "inf", "nan", "a|b||c", "é", "\ud83d", "1e39"]
    ),
    st.lists(st.one_of(st.integers(0, 9), st.text(max_size=3)), max_size=4),
)
sound = {
    "session": st.sampled_from(["s", "t"]),
    "when": st.sampled_from(["1500", "2024-01-02", 7]),
    "place": st.integers(1, 9),
    "importance": st.sampled_from(["1", 0.5]),
    "click": st.sampled_from(["0", 1, 2.0, True]),
    "buy": st.sampled_from(["0", 1]),
    "top": st.sampled_from(["x", "y"]),
    "sub": st.sampled_from(["u", "", 1, True, 1.0]),
    "age": st.sampled_from(["", "41", 2]),
    "history": st.sampled_from(["a|b|c|d", "", ["a"]]),
    "price": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "stock": st.sampled_from(["", "2.5", None]),
    "brand": st.sampled_from(["b", " b ", 7, 7.0, True, "7"]),
    "tags": st.sampled_from(["t|u|v", "", ["t", 3]]),
}


@st.composite
def raw_rows(draw):
    rows = draw(st.lists(st.fixed_dictionaries(sound), min_size=1, max_size=5))
    for row in rows:
        for column in draw(st.lists(st.sampled_from(sorted(sound)), max_size=2)):
            row[column] = draw(anything)
        for column in draw(st.lists(st.sampled_from(sorted(sound)), max_size=1)):
            row.pop(column, None)
    return rows


def plainly(schema, row):
    """The same by `typed_row` and protobuf messages, one feature after the other."""
    from tensorflow_serving.apis import input_pb2

    parsed = typed_row(schema, row)
    message = input_pb2.ExampleListWithContext()
    _fill(message.context, schema, "context", parsed.context)
    message.context.features.feature["session"].bytes_list.value.append(parsed.list_id.encode())
    example = message.examples.add()
    _fill(example, schema, "example", parsed.example)
    for name in ("click", "buy", "place", "importance"):
        example.features.feature[name].float_list.value.append(parsed.example[name])
    record = message.SerializeToString()
    assert _canonical(record) == _canonical(
        encode_list(schema, parsed.list_id, parsed.context, [parsed.example])
    )
    return parsed.list_id, parsed.time, parsed.example["place"], record


def _fill(example, schema, scope, values):
    stored = example.features.feature
    for feature in schema.features:
        if feature.scope != scope:
            continue
        value = values[feature.name]
        if feature.kind == "numeric":
            name = f"{scope}_numeric" if schema.packed else feature.name
            stored[name].float_list.value.append(value)
        else:
            ids = [value] if feature.kind == "categorical" else value
            ids = ids + [""] * (feature.max_length - len(ids)) if ids is value else ids
            stored[feature.name].bytes_list.value.extend(text.encode() for text in ids)


@settings(max_examples=150, deadline=None)
@given(rows=raw_rows(), packed=st.booleans())
def test_the_fast_way_is_the_plain_way_row_for_row(rows, packed):
    schema = FeatureSchema.model_validate({**SCHEMA, "packed": packed})
    encode = RowEncoder(schema)
    for row, actual in zip(rows, encode(rows), strict=True):
        assert repr(encode([row])) == repr([actual])
        try:
            expected = plainly(schema, row)
        except RowError as error:
            assert (type(actual), str(actual)) == (RowError, str(error))
            continue
        context = actual.context[0] + ids_entry("session", [actual.list_id])
        record = list_record([actual.example[0]], context)
        assert (actual.list_id, actual.time, actual.position) == expected[:3]
        assert _canonical(record) == _canonical(expected[3])


def _canonical(record):
    from tensorflow_serving.apis import input_pb2

    return input_pb2.ExampleListWithContext.FromString(record).SerializeToString(deterministic=True)


float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(
    lambda text: text.strip() == text and "|" not in text
)
item = st.fixed_dictionaries(
    {
        "price": float32,
        "stock": float32,
        "brand": word,
        "tags": st.lists(word, max_size=2),
        "click": st.floats(0, 9, width=32),
        "buy": st.just(0),
        "place": st.integers(1, 99),
        "importance": st.just(1),
    }
)
shared = st.fixed_dictionaries(
    {
        "session": word,
        # Eight digits may be a date, which is rejected.
        "when": st.integers(0, 2**31).filter(lambda t: len(str(t)) != 8),
        "top": word,
        "sub": word,
        "age": float32,
        "history": st.lists(word, max_size=3),
    }
)


@settings(max_examples=60, deadline=None)
@given(context=shared, items=st.lists(item, min_size=1, max_size=40), packed=st.booleans())
def test_rows_to_records_to_values_are_the_rows(context, items, packed):
    schema = FeatureSchema.model_validate({**SCHEMA, "packed": packed})
    rows = RowEncoder(schema)([{**context, **one} for one in items])
    entry = ids_entry("session", [context["session"]])
    record = list_record([row.example[0] for row in rows], rows[0].context[0] + entry)
    found_context, found_items = decode_list(schema, record)
    assert found_context == {name: context[name] for name in ("top", "sub", "age", "history")}
    names = ("price", "stock", "brand", "tags")
    assert found_items == [{name: one[name] for name in names} for one in items]
    block = scope_floats(schema, "example")
    expected = [
        [float(one[n]) for n in ("price", "stock", "click", "buy", "place", "importance")]
        for one in items
    ]
    assert block.values([row.example[0] for row in rows]).tolist() == expected
    assert [row.example[1] for row in rows] == [(one["brand"], tuple(one["tags"])) for one in items]
