from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tfr_moe.errors import UserError, describe
from tfr_moe.schema import (
    MASK,
    PACKED,
    Feature,
    FeatureSchema,
    shard_file,
    vocabulary_file,
)

FEATURES: list[dict[str, Any]] = [
    {"name": "top", "scope": "context", "kind": "categorical"},
    {"name": "sub", "scope": "context", "kind": "categorical"},
    {"name": "age", "scope": "context", "kind": "numeric", "default": 30},
    {"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p"},
    {"name": "image", "scope": "example", "kind": "numeric", "width": 3},
    {"name": "brand", "scope": "example", "kind": "categorical", "default": "none"},
    {"name": "tags", "scope": "example", "kind": "categorical_list", "max_length": 2},
]


def schema_data(**changes: Any) -> dict[str, Any]:
    whole = {
        "list_id": "session",
        "labels": ["click", "buy"],
        "position": "place",
        "weight": "importance",
        "time": "when",
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": FEATURES,
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def schema(**changes: Any) -> FeatureSchema:
    return FeatureSchema.model_validate(schema_data(**changes))


def refusal(**changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        schema(**changes)
    message = describe(caught.value, schema_data(**changes))
    assert "\n" not in message
    return message


def with_feature(**feature: Any) -> list[dict[str, Any]]:
    return [*FEATURES, {"name": "extra", "scope": "example", **feature}]


# ------------------------------------------------------------------------------------- what it says


def test_the_first_label_is_the_primary_one():
    assert schema().label == "click"


def test_packed_columns_follow_the_schemas_order_and_number_wide_features():
    assert schema().packed_columns("example") == ["price", "image[0]", "image[1]", "image[2]"]
    assert schema().packed_columns("context") == ["age"]


def test_select_keeps_the_order_and_filters_by_scope_and_kind():
    names = [f.name for f in schema().select("example", "categorical", "categorical_list")]
    assert names == ["brand", "tags"]
    assert [f.name for f in schema().select("context")] == ["top", "sub", "age"]


def test_the_childs_key_is_the_pair_and_every_other_key_the_id_itself():
    s = schema()
    values = {"top": "Garden", "sub": "Tools", "brand": "Acme"}
    assert s.lookup_key(s.feature("sub"), values) == "Garden > Tools"
    assert s.lookup_key(s.feature("top"), values) == "Garden"
    assert s.lookup_key(s.feature("brand"), values) == "Acme"


def test_without_a_hierarchy_the_childs_key_is_the_id_itself():
    s = schema(hierarchy=None)
    assert s.lookup_key(s.feature("sub"), {"top": "Garden", "sub": "Tools"}) == "Tools"


@pytest.mark.parametrize(
    ("feature", "number"),
    [
        ({}, math.nan),
        ({"missing": "median"}, math.nan),
        ({"missing": 2}, 2.0),
        ({"default": 2}, 2.0),  # of earlier versions
        ({"default": None}, math.nan),
        ({"missing": 2, "missing_indicator": True}, math.nan),
    ],
)
def test_the_model_replaces_nan_and_constants_are_stored(feature: dict, number: float):
    made = Feature(name="x", scope="example", kind="numeric", **feature)
    np.testing.assert_equal(made.missing_number, number)
    assert not made.required


@pytest.mark.parametrize(
    ("feature", "has_vocabulary"),
    [
        ({"kind": "numeric"}, False),
        ({"kind": "categorical"}, True),
        ({"kind": "categorical_list"}, True),
        ({"kind": "categorical", "hash_buckets": 10}, False),
    ],
)
def test_ids_have_a_vocabulary_unless_hashed(feature: dict, has_vocabulary: bool):
    assert Feature(name="x", scope="example", **feature).has_vocabulary is has_vocabulary


def test_role_columns_leave_out_what_is_not_set():
    assert schema().role_columns() == ["session", "click", "buy", "place", "importance"]
    assert schema(position=None, weight=None).role_columns() == ["session", "click", "buy"]


def test_a_missing_features_error_lists_those_there_are():
    with pytest.raises(match="feature 'colour' is not in the schema; allowed: top, sub"):
        schema().feature("colour")


def test_files_of_a_data_set_have_their_names():
    assert vocabulary_file("brand") == "vocabulary/brand.txt"
    assert shard_file("train", 3, 12) == "train-00003-of-00012.tfrecord.gz"


# ------------------------------------------------------------------------------------ parsing specs


def shapes(spec: dict[str, Any]) -> dict[str, tuple]:
    return {name: (f.dtype.name, list(f.shape), f.default_value) for name, f in spec.items()}


def test_packed_specs():
    s = schema()
    assert shapes(s.feature_spec("context")) == {
        PACKED["context"]: ("float32", [1], [30.0]),
        "top": ("string", [1], [""]),
        "sub": ("string", [1], [""]),
    }
    assert shapes(s.feature_spec("example")) == {
        PACKED["example"]: ("float32", [4], [pytest.approx(math.nan, nan_ok=True)] * 4),
        "brand": ("string", [1], ["none"]),
        "tags": ("string", [2], ["", ""]),
    }


def test_unpacked_specs_name_each_numeric():
    spec = shapes(schema(packed=False).feature_spec("example"))
    assert spec["price"] == ("float32", [1], [pytest.approx(math.nan, nan_ok=True)])
    assert spec["image"] == ("float32", [3], [pytest.approx(math.nan, nan_ok=True)] * 3)
    assert PACKED["example"] not in spec


def test_a_scope_without_numerics_has_no_packed_feature():
    ids = [f for f in FEATURES if f["kind"] != "numeric"]
    assert PACKED["example"] not in schema(features=ids).feature_spec("example")


def test_roles_have_specs_and_labels_read_as_padding_where_there_is_no_item():
    assert shapes(schema().role_spec("context")) == {"session": ("string", [1], [""])}
    assert shapes(schema().role_spec("example")) == {
        "click": ("float32", [1], [-1.0]),
        "buy": ("float32", [1], [-1.0]),
        "place": ("float32", [1], [0.0]),
        "importance": ("float32", [1], [1.0]),
    }


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("feature", "says"),
    [
        ({"kind": "numerical"}, "kind: Input should be 'numeric', 'categorical' or"),
        ({"kind": "numeric", "scope": "item"}, "scope: Input should be 'context' or 'example'"),
        ({"kind": "numeric", "hash_buckets": 5}, "hash_buckets does not apply to kind 'numeric'"),
        ({"kind": "categorical", "width": 2}, "width does not apply to kind 'categorical'"),
        ({"kind": "categorical", "max_length": 2}, "max_length does not apply"),
        ({"kind": "categorical", "transform": "log1p"}, "transform does not apply"),
        ({"kind": "categorical", "clip": [0, 1]}, "clip does not apply"),
        ({"kind": "numeric", "clip": [1, 0]}, "clip must be [low, high] with low < high"),
        ({"kind": "numeric", "clip": [0]}, "clip"),
        ({"kind": "numeric", "bucketize": [1, 1]}, "bucketize must be ascending, got [1.0, 1.0]"),
        (
            {"kind": "numeric", "bucketize": [1], "transform": "quantile"},
            "cannot be combined with transform",
        ),
        ({"kind": "numeric", "transform": "rank"}, "'none', 'log1p' or 'quantile'"),
        ({"kind": "numeric", "ratio": "price", "required": True}, "missing_indicator and ratio"),
        ({"kind": "categorical", "bucketize": [1]}, "bucketize does not apply to kind"),
        ({"kind": "categorical", "ratio": "price"}, "ratio does not apply to kind"),
        ({"kind": "numeric", "width": 0}, "width: Input should be greater than or equal to 1"),
        ({"kind": "numeric", "default": "a"}, "missing must be mean, median or a number, got 'a'"),
        ({"kind": "categorical", "default": 1.5}, "default: Input should be a valid string"),
        (
            {"kind": "numeric", "default": 1, "required": True},
            "required cannot be combined with default",
        ),
        ({"kind": "numeric", "default": "x", "missing": 1}, "default does not apply to kind"),
        ({"kind": "categorical", "missing": "mean"}, "missing does not apply to kind"),
        (
            {"kind": "categorical", "hash_buckets": 5, "min_count": 2},
            "hash_buckets cannot be combined",
        ),
        ({"kind": "numeric", "vocab": 5}, "vocab: unknown key"),
    ],
)
def test_a_wrong_feature_is_rejected_by_name(feature: dict, says: str):
    message = refusal(features=with_feature(**feature))
    assert "feature 'extra'" in message
    assert says in message


@pytest.mark.parametrize("default", [float("nan"), float("inf")])
def test_a_default_that_is_no_finite_number_is_rejected(default: float):
    assert "feature 'extra'" in refusal(features=with_feature(kind="numeric", default=default))


@pytest.mark.parametrize("name", ["9lives", "a b", "", "a-b", "käse"])
def test_a_name_that_is_no_identifier_is_rejected(name: str):
    feature = {"name": name, "scope": "example", "kind": "numeric"}
    assert "name: String should match pattern" in refusal(features=[*FEATURES, feature])


@pytest.mark.parametrize("name", ["price", MASK, "context_numeric", "example_numeric"])
def test_a_duplicate_or_reserved_name_is_rejected(name: str):
    feature = {"name": name, "scope": "example", "kind": "numeric"}
    message = refusal(features=[*FEATURES, feature])
    assert f"feature {name!r}: the name is used twice or reserved" in message


@pytest.mark.parametrize("role", ["list_id", "position", "weight"])
def test_a_role_that_is_also_a_feature_is_rejected(role: str):
    assert "'price'" in refusal(**{role: "price"})


@pytest.mark.parametrize("changes", [{"labels": ["click", "click"]}, {"weight": "place"}])
def test_one_column_in_two_roles_is_rejected(changes: dict):
    assert repr(next(iter(changes.values()))[0]) in refusal(**changes) or "'place'" in refusal(
        **changes
    )


@pytest.mark.parametrize("child", ["price", "brand", "age", "colour"])
def test_a_hierarchy_of_anything_but_categorical_context_is_rejected(child: str):
    message = refusal(hierarchy={"child": child, "parent": "top"})
    assert f"hierarchy.child must be a categorical context feature, got {child!r}" in message
    assert "allowed: top, sub" in message


def test_a_category_that_is_its_own_parent_is_rejected():
    assert "hierarchy" in refusal(hierarchy={"child": "top", "parent": "top"})


@pytest.mark.parametrize("key", ["list_id", "labels", "features"])
def test_what_must_be_there_is_named_when_it_is_not(key: str):
    assert key in refusal(**{key: None})


@pytest.mark.parametrize("key", ["labels", "features"])
def test_an_empty_list_is_rejected(key: str):
    assert key in refusal(**{key: []})


def test_an_unknown_key_is_rejected():
    assert refusal(label="click") == "label: unknown key"


# -------------------------------------------------------------------------------------------- files


def test_json_and_yaml_say_the_same(tmp_path: Path):
    (tmp_path / "s.json").write_text(json.dumps(schema_data()))
    (tmp_path / "s.yaml").write_text(
        "list_id: q\nlabels: [click]\nfeatures:\n- {name: price, scope: example, kind: numeric}\n"
    )
    assert FeatureSchema.load(tmp_path / "s.json") == schema()
    assert FeatureSchema.load(tmp_path / "s.yaml").packed_columns("example") == ["price"]


def test_a_saved_schema_loads_equal(tmp_path: Path):
    schema().save(tmp_path / "schema.json")
    assert FeatureSchema.load(tmp_path / "schema.json") == schema()
    assert [p.name for p in tmp_path.iterdir()] == ["schema.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read (No such file"),
        ("", "list_id: Field required"),
        ("- a\n- b\n", "mapping"),
        ("a: [1\n", "YAML"),
        ("list_id: q\nlist_id: r\nlabels: [c]\n", "key 'list_id' occurs twice, again in line 2"),
        ("a: &a [1, *a]\n", "an alias is part of the value"),
        (
            "list_id: q\nlabels: [c]\n"
            "features: [{name: p, scope: example, kind: numeric, width: 1000000000000}]",
            "width: Input should be less than or equal to 65536",
        ),
        (
            "list_id: q\nlabels: [c]\nfeatures: [{name: p, scope: x, kind: numeric}]",
            "feature 'p': scope",
        ),
    ],
)
def test_a_file_that_is_no_schema_is_rejected_in_one_line_that_names_it(
    tmp_path: Path, text: str | None, says: str
):
    path = tmp_path / "schema.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as caught:
        FeatureSchema.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert says.lower() in message.lower()
    assert "\n" not in message


def test_bytes_that_are_no_text_are_rejected(tmp_path: Path):
    path = tmp_path / "schema.yaml"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(match=r"schema\.yaml"):
        FeatureSchema.load(path)


def test_a_folder_in_place_of_a_schema_is_rejected(tmp_path: Path):
    with pytest.raises(match=tmp_path.name):
        FeatureSchema.load(tmp_path)
