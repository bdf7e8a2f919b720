"""What a model reads of a numeric: quantiles, buckets and ratios in the graph."""

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.baselines.rows import TabularEncoder
from tfr_moe.config.settings import FeatureSettings
from tfr_moe.elwc.statistics import ColumnStatistics, transformed
from tfr_moe.errors import UserError
from tfr_moe.layers.features import FeatureEncoder
from tfr_moe.layers.numerics import complete_numbers, raw_numbers
from tfr_moe.schema import MASK, Feature, FeatureSchema, FeatureTables

NAN = float("nan")


def number(name="x", **settings):
    return {"name": name, "scope": "example", "kind": "numeric", **settings}


def completed(value, column=None, **settings):
    feature = Feature(**number(**settings))
    columns = [column or {"mean": 0.0}] * feature.width
    return complete_numbers(feature, columns, tf.constant(value, tf.float32)).numpy()


STARS = {"mean": 0.5, "std": 1.0, "quantiles": [1.0, 2.0, 5.0], "positions": [0.3, 0.7, 0.9]}


def test_a_number_becomes_its_position_in_the_training_split():
    values = [[[1.0], [1.5], [3.5]], [[-1e38], [1e38], [NAN]]]
    actual = completed(values, STARS, transform="quantile")
    np.testing.assert_allclose(actual[..., 0], [[0.3, 0.5, 0.8], [0.3, 0.9, 0.5]], rtol=1e-6)
    filled = completed([[NAN]], STARS, transform="quantile", missing=3.5, missing_indicator=True)
    np.testing.assert_allclose(filled, [[0.8, 1.0]], rtol=1e-6)


@pytest.mark.parametrize("quantiles", [[7.0], [0.0], [-3e38, 3e38]])
def test_positions_are_finite_for_constants_and_for_extreme_quantiles(quantiles):
    positions = np.linspace(0.25, 0.75, len(quantiles)).tolist()
    column = {**STARS, "quantiles": quantiles, "positions": positions}
    actual = completed([[7.0], [-3.4e38], [3.4e38], [0.0]], column, transform="quantile")[:, 0]
    expected = [0.25] * 4 if len(quantiles) == 1 else [0.5, 0.25, 0.75, 0.5]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_each_column_of_a_wide_numeric_has_its_own_quantiles():
    feature = Feature(**number(width=2, transform="quantile"))
    columns = [STARS, {**STARS, "quantiles": [10.0, 20.0, 50.0]}]
    actual = complete_numbers(feature, columns, tf.constant([[1.5, 35.0]]))
    np.testing.assert_allclose(actual, [[0.5, 0.8]], rtol=1e-6)


def test_the_graph_and_the_statistics_have_the_same_positions():
    rows = np.random.default_rng(1).lognormal(3.0, 2.0, [500, 1]).astype(np.float32)
    feature = number(transform="quantile", clip=[2, 400])
    schema = FeatureSchema(list_id="q", labels=["y"], features=[feature])
    statistics = ColumnStatistics(schema, "example")
    column = statistics.describe(statistics.of(rows))["x"]
    other = np.random.default_rng(2).lognormal(3.0, 2.0, [500, 1]).astype(np.float32)
    expected = transformed(schema.features[0], column, other.astype(np.float64))
    actual = completed(other, column, transform="quantile", clip=[2, 400])
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert len(np.unique(actual)) > 300


def test_buckets_begin_at_their_bound_and_a_missing_number_is_in_none():
    actual = completed([[9.0], [10.0], [19.0], [20.0], [NAN]], bucketize=[10, 20])
    np.testing.assert_array_equal(actual, [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    filled = completed([[NAN]], bucketize=[10, 20], missing=10.0, missing_indicator=True)
    np.testing.assert_array_equal(filled, [[0, 1, 0, 1]])
    wide = completed([[[9.0, 25.0]], [[15.0, 1.0]]], bucketize=[10, 20], width=2)
    np.testing.assert_array_equal(wide, [[[1, 0, 0, 0, 0, 1]], [[0, 1, 0, 1, 0, 0]]])


@pytest.mark.parametrize("packed", [True, False])
def test_a_model_and_trees_read_ratios_and_buckets(packed):
    features = [
        number("price", ratio="usual"),
        number("usual", bucketize=[2]),
        number("stock"),
    ]
    schema = FeatureSchema(list_id="q", labels=["y"], features=features, packed=packed)
    plain = {"mean": 1.0, "std": 0.5}
    statistics = {"context": {}, "example": dict.fromkeys(("price", "usual", "stock"), plain)}
    # 3 / 2 is 1.5; 3 / 0 is missing, the mean.
    values = np.array([[[3.0, 2.0, 1.0], [3.0, 0.0, 2.0]]], np.float32)
    names = ("price", "usual", "stock")
    stored = {name: values[..., i : i + 1] for i, name in enumerate(names)}
    inputs = {"example_numeric": values} if packed else stored
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    mask = tf.constant([[True, True]])
    encoder = FeatureEncoder(schema, statistics, {}, list_relative=True)
    items = encoder({}, tensors, mask).items.numpy()[0]
    # price, two buckets, stock; then the ranks of price and stock: buckets have none.
    np.testing.assert_allclose(items[:, :4], [[1.0, 0, 1, 0.0], [0.0, 1, 0, 2.0]])
    np.testing.assert_allclose(items[:, 4:], [[1.0, 0.0], [0.0, 1.0]])
    assert items.shape[1] == 6
    rows = TabularEncoder(
        schema, FeatureTables(statistics, {}), FeatureSettings(list_relative=True)
    )
    actual = rows({**tensors, MASK: mask}, mask)
    np.testing.assert_allclose(actual[:, :4], [[1.5, 0, 1, 1.0], [1.0, 1, 0, 2.0]])
    assert [column.name for column in rows.columns] == [
        "price",
        "usual (below 2)",
        "usual (from 2)",
        "stock",
        "price (rank)",
        "stock (rank)",
    ]


SETTINGS = [
    {"clip": (-1.0, 1.0)},
    {"clip": (-1.0, 1.0)},
    {},
    {"transform": "log1p"},
    {"transform": "log1p", "width": 2},
    {"transform": "log1p", "missing": 2.0},
    {"missing": "median"},
    {"missing": "median", "width": 2},
    {"missing": "median", "missing_indicator": True},
    {"required": True},
    {"bucketize": (0.0, 1.0)},
    {"transform": "quantile"},
    {"transform": "quantile"},
    {"ratio": "a0"},
    {},
    {},
]


@pytest.mark.parametrize("left_out", [(), ("a4", "a14")])
@pytest.mark.parametrize("packed", [True, False])
def test_numbers_that_are_treated_alike_become_what_each_is_alone(packed, left_out):
    random = np.random.default_rng(3)
    features = [number(f"a{i}", **settings) for i, settings in enumerate(SETTINGS)]
    schema = FeatureSchema(list_id="q", labels=["y"], features=features, packed=packed)
    of_columns = {
        column: {
            "mean": i / 7,
            "std": 1 + i / 5,
            "median": i / 3,
            "quantiles": [-1.0, i / 9, 2.0],
            "positions": [0.2, 0.5, 0.9],
        }
        for i, column in enumerate(schema.packed_columns("example"))
    }
    raw = {
        f.name: np.where(random.random([2, 3, f.width]) < 0.2, np.nan, random.normal(size=f.width))
        for f in schema.features
    }
    raw["a9"] = np.nan_to_num(raw["a9"])

    def items(schema, values, **settings):
        encoder = FeatureEncoder(schema, {"example": of_columns, "context": {}}, {}, **settings)
        tensors = {name: tf.constant(value, tf.float32) for name, value in values.items()}
        return encoder({}, tensors, tf.ones([2, 3], tf.bool)).items.numpy()

    together = {"example_numeric": np.concatenate(list(raw.values()), axis=-1)}
    inputs, names = together if packed else raw, list(raw)
    actual = items(schema, inputs, left_out=left_out, list_relative=True)
    alone = [
        items(schema, inputs, left_out=[other for other in names if other != name])
        for name in names
        if name not in left_out
    ]
    expected = np.concatenate(alone, axis=-1)
    # log1p of a vector and of the numbers that remain of one differ in the last bit.
    np.testing.assert_allclose(actual[..., : expected.shape[-1]], expected, rtol=2e-7)


def test_the_graph_does_not_grow_with_numbers_that_are_treated_alike():
    def operations(count):
        features = [number(f"a{i}") for i in range(count)]
        schema = FeatureSchema(list_id="q", labels=["y"], features=features)
        of_columns = {f.name: {"mean": 0.0, "std": 1.0} for f in schema.features}
        encoder = FeatureEncoder(schema, {"example": of_columns, "context": {}}, {})

        @tf.function(autograph=False)
        def encode(values):
            return encoder({}, {"example_numeric": values}, tf.ones([2, 3], tf.bool)).items

        return len(encode.get_concrete_function(tf.ones([2, 3, count])).graph.get_operations())

    assert operations(2) == operations(20)


def test_a_ratio_of_integers_that_a_caller_sends_is_a_float():
    numbers = [number("a", ratio="b"), number("b")]
    schema = FeatureSchema(list_id="q", labels=["y"], features=numbers)
    actual = raw_numbers(schema, "a", {"example_numeric": tf.constant([[3, 2], [1, 0]])}).numpy()
    np.testing.assert_array_equal(actual, [[1.5], [NAN]])


def test_missing_quantiles_are_named():
    schema = FeatureSchema(list_id="q", labels=["y"], features=[number("a", transform="quantile")])
    plain = {"mean": 0.0, "std": 1.0}
    with pytest.raises(UserError, match="statistics: no quantiles of example column 'a'"):
        FeatureEncoder(schema, {"context": {}, "example": {"a": plain}}, {})


@pytest.mark.parametrize("ratio", ["age", "a", "vector", "brand"])
def test_a_ratio_to_anything_but_a_number_of_the_same_scope_is_rejected(tmp_path, ratio):
    features = [
        number("a", ratio=ratio),
        number("b"),
        number("vector", width=2),
        {"name": "brand", "scope": "example", "kind": "categorical"},
        {"name": "age", "scope": "context", "kind": "numeric"},
    ]
    path = tmp_path / "s.yaml"
    path.write_text(str({"list_id": "q", "labels": ["y"], "features": features}))
    message = f"feature 'a': ratio must be another example numeric.*got '{ratio}'; allowed: b$"
    with pytest.raises(match=message):
        FeatureSchema.load(path)


def test_a_constant_for_missing_values_replaces_the_ratio():
    numbers = [number("a", ratio="b", missing=7.0), number("b")]
    schema = FeatureSchema(list_id="q", labels=["y"], features=numbers)
    # A row without `a` has NaN in its record, not 7, which would be divided.
    stored = schema.feature_spec("example")["example_numeric"].default_value
    assert np.isnan(stored).all()
    ratios = raw_numbers(schema, "a", {"example_numeric": tf.constant([[NAN, 2.0], [3.0, 0.0]])})
    actual = complete_numbers(schema.feature("a"), [{}], ratios)
    np.testing.assert_array_equal(actual, [[7.0], [7.0]])
