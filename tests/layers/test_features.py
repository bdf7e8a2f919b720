"""FeatureEncoder: what a schema's features become."""

import math
from pathlib import Path

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.features import FeatureEncoder, id_lookup
from tfr_moe.schema import FeatureSchema

ONE_LIST = tf.constant([[True, True]])


def schema_of(*features, **settings):
    return FeatureSchema.model_validate(
        {"list_id": "q", "labels": ["y"], "features": list(features), **settings}
    )


def context(name, kind="categorical", **settings):
    return {"name": name, "scope": "context", "kind": kind, **settings}


def example(name, kind="categorical", **settings):
    return {"name": name, "scope": "example", "kind": kind, **settings}


def encoder_of(schema, statistics=None, vocabularies=None, **settings):
    statistics = {"context": {}, "example": {}, **(statistics or {})}
    return FeatureEncoder(schema, statistics, vocabularies or {}, **settings)


def set_table(encoder, name, rows):
    """Gives an embedding table its rows, first the one for all that is out of vocabulary."""
    layer = encoder.embeddings[name]
    layer.build([None])
    layer.embeddings.assign(np.asarray(rows, np.float32))


def strings(*rows):
    return tf.constant(np.array(rows, object), tf.string)


# ---------------------------------------------------------------------------------------------- ids


def test_unknown_and_missing_ids_share_row_zero():
    encoder = encoder_of(
        schema_of(example("brand")), vocabularies={"brand": ["acme", "zen"]}, embedding_dim=1
    )
    set_table(encoder, "brand", [[7.0], [1.0], [2.0]])
    brands = strings([["zen"], ["acme"], ["unheard of"], [""]])
    items = encoder({}, {"brand": brands}, tf.ones([1, 4], tf.bool)).items
    np.testing.assert_array_equal(items, [[[2.0], [1.0], [7.0], [7.0]]])


def test_a_child_name_under_two_parents_has_two_embeddings():
    schema = schema_of(context("top"), context("sub"), hierarchy={"parent": "top", "child": "sub"})
    tables = {"top": ["men", "women"], "sub": ["men > shoes", "women > shoes"]}
    encoder = encoder_of(schema, vocabularies=tables, embedding_dim=1)
    set_table(encoder, "top", [[0.0], [10.0], [20.0]])
    set_table(encoder, "sub", [[9.0], [1.0], [2.0]])
    top, sub = strings(["men"], ["women"], ["kids"]), strings(["shoes"], ["shoes"], ["shoes"])
    actual = encoder({"top": top, "sub": sub}, {}, tf.ones([3, 1], tf.bool)).context
    np.testing.assert_array_equal(actual["sub"], [[1.0], [2.0], [9.0]])
    np.testing.assert_array_equal(actual["top"], [[10.0], [20.0], [0.0]])


def test_a_hashed_child_is_hashed_with_its_parent():
    schema = schema_of(
        context("top"), context("sub", hash_buckets=50), hierarchy={"parent": "top", "child": "sub"}
    )
    encoder = encoder_of(schema, vocabularies={"top": ["a", "b"]}, embedding_dim=1)
    set_table(encoder, "sub", np.arange(50.0)[:, np.newaxis])
    inputs = {"top": strings(["a"], ["b"]), "sub": strings(["x"], ["x"])}
    got = encoder(inputs, {}, tf.ones([2, 1], tf.bool)).context["sub"]
    pairs = tf.keras.layers.Hashing(50)(tf.constant([["a > x"], ["b > x"]]))
    np.testing.assert_array_equal(got, pairs)
    assert float(got[0, 0]) != float(got[1, 0])


def test_hashed_ids_need_no_vocabulary_and_fall_into_their_buckets():
    encoder = encoder_of(schema_of(example("sku", hash_buckets=3)), embedding_dim=2)
    set_table(encoder, "sku", [[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]])
    ids = [f"item{i}" for i in range(40)]
    actual = encoder({}, {"sku": strings([[i] for i in ids])}, tf.ones([1, 40], tf.bool)).items[0]
    buckets = actual[:, 0].numpy().astype(int)
    assert set(buckets) == {0, 1, 2}
    np.testing.assert_array_equal(actual[:, 1], 10.0 * buckets)


def test_a_list_of_ids_is_the_mean_over_those_that_are_there():
    schema = schema_of(context("clicked", "categorical_list", max_length=3))
    encoder = encoder_of(schema, vocabularies={"clicked": ["a", "b"]}, embedding_dim=2)
    set_table(encoder, "clicked", [[9.0, 9.0], [1.0, 10.0], [3.0, 30.0]])
    clicked = strings(["a", "b", ""], ["b", "", ""], ["", "", ""], ["a", "new", "b"])
    actual = encoder({"clicked": clicked}, {}, tf.ones([4, 1], tf.bool)).context["clicked"]
    np.testing.assert_allclose(
        actual,
        [[(1 + 3) / 2, (10 + 30) / 2], [3, 30], [0, 0], [(1 + 9 + 3) / 3, (10 + 9 + 30) / 3]],
        rtol=1e-6,
    )


def test_items_may_have_lists_of_ids_too():
    schema = schema_of(example("tags", "categorical_list", max_length=2))
    encoder = encoder_of(schema, vocabularies={"tags": ["a", "b"]}, embedding_dim=1)
    set_table(encoder, "tags", [[0.0], [1.0], [3.0]])
    tags = strings([["a", "b"], ["", ""]], [["b", ""], ["a", ""]])
    actual = encoder({}, {"tags": tags}, tf.ones([2, 2], tf.bool)).items
    np.testing.assert_array_equal(actual, [[[2.0], [0.0]], [[3.0], [1.0]]])


def test_a_vocabulary_in_a_file_is_that_of_a_list(tmp_path):
    words = ["[UNK]", "zen", "acme", "señor"]  # a shop may have Keras' own word
    path = tmp_path / "brand.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    brands = {"brand": strings([["señor"], ["zen"], ["acme"], ["?"], ["[UNK]"]])}
    outputs = []
    for vocabulary in (words, str(path)):
        encoder = encoder_of(
            schema_of(example("brand")), vocabularies={"brand": vocabulary}, embedding_dim=1
        )
        set_table(encoder, "brand", [[0.0], [5.0], [1.0], [2.0], [3.0]])
        outputs.append(encoder({}, brands, tf.ones([1, 5], tf.bool)).items)
    np.testing.assert_array_equal(outputs[0], [[[3.0], [1.0], [2.0], [0.0], [5.0]]])
    np.testing.assert_array_equal(outputs[1], outputs[0])


def test_a_relative_path_is_that_of_the_working_directory(tmp_path, monkeypatch):
    feature = FeatureSchema(
        list_id="query",
        labels=["click"],
        features=[{"name": "brand", "scope": "example", "kind": "categorical"}],
    ).features[0]
    actual = []
    for folder, words in {"one": "a\nb\n", "two": "b\na\n"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("brand.txt").write_text(words)
        lookup = id_lookup(feature, {"brand": "brand.txt"})
        actual.append(lookup(tf.constant(["a", "b"])).numpy().tolist())
    assert actual == [[1, 2], [2, 1]]


@pytest.mark.parametrize("in_a_file", [False, True])
def test_an_empty_vocabulary_knows_nothing(tmp_path, in_a_file):
    path = tmp_path / "brand.txt"
    path.write_text("")
    encoder = encoder_of(
        schema_of(example("brand")),
        vocabularies={"brand": str(path) if in_a_file else []},
        embedding_dim=2,
    )
    actual = encoder({}, {"brand": strings([["a"], [""]])}, ONE_LIST).items
    row_zero = encoder.embeddings["brand"].embeddings[0]
    np.testing.assert_array_equal(actual, [[row_zero, row_zero]])


# ----------------------------------------------------------------------------------------- numerics


def normalized(values, mean, std, width=1, **settings):
    feature = example("price", "numeric", width=width, **settings)
    schema = schema_of(feature)
    means, stds = np.broadcast_to(mean, [width]), np.broadcast_to(std, [width])
    statistics = {
        column: {"mean": float(means[i]), "std": float(stds[i])}
        for i, column in enumerate(schema.packed_columns("example"))
    }
    encoder = encoder_of(schema, {"example": statistics})
    inputs = tf.constant(values, tf.float32, [1, len(values), width])
    return encoder({}, {"example_numeric": inputs}, tf.ones([1, len(values)], tf.bool)).items[0]


def test_numerics_have_mean_and_deviation_taken_off_and_are_clipped_at_ten():
    got = normalized([3.0, 7.0, 5.0, 1e9, -1e9, 25.0], mean=5.0, std=2.0)
    np.testing.assert_allclose(got[:, 0], [-1.0, 1.0, 0.0, 10.0, -10.0, 10.0], rtol=1e-6)


def test_log1p_comes_before_the_statistics_and_keeps_the_sign():
    # log1p(e - 1) = 1: (1 - 0.5) / 0.25 = 2; for the negative (-1 - 0.5) / 0.25 = -6.
    got = normalized([math.e - 1, 1 - math.e, 0.0], mean=0.5, std=0.25, transform="log1p")
    np.testing.assert_allclose(got[:, 0], [2.0, -6.0, -2.0], rtol=1e-5)


@pytest.mark.parametrize("missing", ["mean", 40.0])
def test_clip_comes_before_the_transform_and_leaves_missing_values_missing(missing):
    # Clipped to 0 and e - 1, log1p is 0 and 1. A missing number is the mean of the transformed
    # values, 0.5, or 40, which is clipped too.
    settings = {"clip": [0, math.e - 1], "transform": "log1p", "missing": missing}
    got = normalized([-7.0, 1e30, float("nan")], mean=0.5, std=0.5, **settings)
    np.testing.assert_allclose(got[:, 0], [-1.0, 1.0, 0.0 if missing == "mean" else 1.0], atol=1e-6)


def test_a_corrupt_value_stays_finite_under_log1p():
    got = normalized([3.4e38, -3.4e38], mean=0.0, std=1e-6, transform="log1p")
    np.testing.assert_array_equal(got[:, 0], [10.0, -10.0])


@pytest.mark.parametrize("std", [0.0, 1e-46, 1e-17])
def test_a_constant_column_is_zero_where_it_has_its_value(std):
    got = normalized([0.1, 0.1, 0.6], mean=0.1, std=std)
    np.testing.assert_allclose(got[:, 0], [0.0, 0.0, 0.5], atol=1e-6)


def test_small_numbers_with_small_deviations_are_no_constants():
    got = normalized([3e-9, 1e-9], mean=2e-9, std=1e-9)
    np.testing.assert_allclose(got[:, 0], [1.0, -1.0], rtol=1e-5)


def test_each_column_of_a_wide_numeric_has_its_own_statistics():
    got = normalized([[1.0, 10.0], [3.0, 50.0]], mean=[1.0, 30.0], std=[2.0, 20.0], width=2)
    np.testing.assert_allclose(got, [[0.0, -1.0], [1.0, 1.0]], rtol=1e-6)


def test_packed_and_separate_numerics_give_the_same():
    features = [
        context("age", "numeric"),
        example("vector", "numeric", width=2),
        example("price", "numeric", transform="log1p"),
    ]
    statistics = {
        "context": {"age": {"mean": 40.0, "std": 10.0}},
        "example": {
            "vector[0]": {"mean": 1.0, "std": 2.0},
            "vector[1]": {"mean": -1.0, "std": 4.0},
            "price": {"mean": 3.0, "std": 0.5},
        },
    }
    rng = np.random.default_rng(0)
    age = rng.normal(size=[2, 1]).astype(np.float32)
    vector = rng.normal(size=[2, 3, 2]).astype(np.float32)
    price = rng.gamma(2.0, 10.0, [2, 3, 1]).astype(np.float32)
    mask = tf.ones([2, 3], tf.bool)
    packed = encoder_of(schema_of(*features), statistics)(
        {"context_numeric": age}, {"example_numeric": np.concatenate([vector, price], -1)}, mask
    )
    separate = encoder_of(schema_of(*features, packed=False), statistics)(
        {"age": age}, {"vector": vector, "price": price}, mask
    )
    np.testing.assert_array_equal(packed.items, separate.items)
    np.testing.assert_array_equal(packed.context["age"], separate.context["age"])


# ------------------------------------------------------------------------------------------ X whole


def everything():
    schema = schema_of(
        context("age", "numeric"),
        example("price", "numeric", width=2),
        context("top", embedding_dim=2),
        example("brand"),
        context("clicked", "categorical_list", max_length=2, hash_buckets=5),
    )
    statistics = {
        "context": {"age": {"mean": 0.0, "std": 1.0}},
        "example": {f"price[{i}]": {"mean": 0.0, "std": 1.0} for i in range(2)},
    }
    encoder = encoder_of(
        schema, statistics, {"top": ["a"], "brand": ["acme"]}, embedding_dim=3, embedding_l2=0.5
    )
    set_table(encoder, "top", [[0.0, 0.0], [1.0, 2.0]])
    set_table(encoder, "brand", [[0.0, 0.0, 0.0], [3.0, 4.0, 5.0]])
    set_table(encoder, "clicked", np.full([5, 3], 6.0))
    inputs = {
        "context_numeric": tf.constant([[7.0]]),
        "top": strings(["a"]),
        "clicked": strings(["x", ""]),
    }
    items = {
        "example_numeric": tf.constant([[[8.0, 9.0], [-8.0, -9.0]]]),
        "brand": strings([["acme"], [""]]),
    }
    return encoder, inputs, items


def test_the_input_vector_holds_the_items_blocks_then_the_lists():
    encoder, inputs, items = everything()
    actual = encoder(inputs, items, ONE_LIST)
    of_list = [1, 2, 6, 6, 6, 7]  # ids in the schema's order, then numerics
    np.testing.assert_array_equal(
        actual.items, [[[3, 4, 5, 8, 9, *of_list], [0, 0, 0, -8, -9, *of_list]]]
    )
    assert list(actual.context) == ["top", "clicked", "age"]
    np.testing.assert_array_equal(tf.concat([*actual.context.values()], -1), [of_list])


def test_the_width_of_the_input_vector_is_static():
    encoder, inputs, items = everything()
    lists = {name: tf.keras.Input(v.shape[1:], dtype=v.dtype) for name, v in inputs.items()}
    rows = {name: tf.keras.Input([None, *v.shape[2:]], dtype=v.dtype) for name, v in items.items()}
    encoded = encoder(lists, rows, tf.keras.Input([None], dtype="bool"))
    # price 2, brand 3, top 2 (its own width), clicked 3, age 1
    assert encoded.items.shape[-1] == 11


def test_embedding_l2_is_the_mean_squared_norm_over_valid_items_in_training_only():
    encoder, inputs, items = everything()
    encoder(inputs, items, ONE_LIST)
    assert encoder.losses == []
    # top 1 + 4, clicked 3 x 36; brand 9 + 16 + 25 of the first item, 0 of the second.
    of_list = 5 + 108
    encoder(inputs, items, ONE_LIST, training=True)
    np.testing.assert_allclose(encoder.losses, [0.5 * (of_list + 50 / 2)], rtol=1e-6)
    encoder(inputs, items, tf.constant([[True, False]]), training=True)
    np.testing.assert_allclose(encoder.losses, [0.5 * (of_list + 50)], rtol=1e-6)


def test_embedding_l2_moves_only_rows_that_were_looked_up():
    encoder, inputs, items = everything()
    with tf.GradientTape() as tape:
        encoder(inputs, items, ONE_LIST, training=True)
        loss = tf.add_n(encoder.losses)
    table = encoder.embeddings["top"].embeddings
    gradient = tf.convert_to_tensor(tape.gradient(loss, table))
    # d/dx of 0.5 x^2, the same for both items of the list
    np.testing.assert_allclose(gradient, [[0.0, 0.0], [1.0, 2.0]], rtol=1e-6)


def test_embedding_l2_of_a_schema_without_ids_adds_nothing():
    statistics = {"example": {"price": {"mean": 0.0, "std": 1.0}}}
    encoder = encoder_of(schema_of(example("price", "numeric")), statistics, embedding_l2=0.5)
    encoder({}, {"example_numeric": tf.ones([1, 2, 1])}, ONE_LIST, training=True)
    assert encoder.losses == []


# ----------------------------------------------------------------------------------------- refusals


def test_missing_tables_are_named(tmp_path):
    with pytest.raises(UserError, match="feature 'brand': missing vocabulary"):
        encoder_of(schema_of(example("brand")))
    with pytest.raises(UserError, match=r"feature 'brand': no vocabulary file .*none\.txt"):
        encoder_of(schema_of(example("brand")), vocabularies={"brand": str(tmp_path / "none.txt")})
    wide = schema_of(context("age", "numeric", width=2))
    with pytest.raises(UserError, match=r"no mean and std of context column 'age\[1\]'"):
        encoder_of(wide, {"context": {"age[0]": {"mean": 0.0, "std": 1.0}}})


# ------------------------------------------------------------------------- numbers among their list


PRICE = {"example": {"price": {"mean": 10.0, "std": 2.0}}}
ABOVE_AND_BELOW = tf.constant([[[8.0], [12.0], [99.0]], [[7.0], [7.0], [7.0]]])


def relative_encoder(**settings):
    schema = schema_of(example("price", "numeric"), context("top"))
    return encoder_of(
        schema, PRICE, {"top": ["a"]}, list_relative=True, embedding_dim=1, **settings
    )


def test_numbers_are_followed_by_their_ranks_in_the_list():
    encoder = relative_encoder()
    set_table(encoder, "top", [[0.0], [5.0]])
    mask = tf.constant([[True, True, False], [True, True, True]])
    lists = {"top": strings(["a"], ["a"])}
    items = encoder(lists, {"example_numeric": ABOVE_AND_BELOW}, mask).items
    # 8 is the smaller of two, the third item is padding; three equal prices share the middle
    np.testing.assert_array_equal(items[0, :2], [[-1.0, 0.0, 5.0], [1.0, 1.0, 5.0]])
    np.testing.assert_array_equal(items[1], [[-1.5, 0.5, 5.0]] * 3)


def test_left_out_numbers_and_marks_of_missing_ones_have_no_rank():
    features = [example("price", "numeric", missing_indicator=True), example("sales", "numeric")]
    statistics = {"example": {**PRICE["example"], "sales": {"mean": 0.0, "std": 1.0}}}
    encoder = encoder_of(schema_of(*features), statistics, list_relative=True, left_out=["sales"])
    numbers = tf.constant([[[math.nan, 3.0], [14.0, 4.0]]])
    items = encoder({}, {"example_numeric": numbers}, ONE_LIST).items
    # a missing price is the mean of the training split
    np.testing.assert_array_equal(items, [[[0.0, 1.0, 0.0], [2.0, 0.0, 1.0]]])


def test_categories_are_numbered_as_their_embeddings():
    schema = schema_of(context("top"), context("sub"), hierarchy={"parent": "top", "child": "sub"})
    encoder = encoder_of(schema, vocabularies={"top": ["a", "b"], "sub": ["a > x", "b > x"]})
    lists = {"top": strings(["a"], ["b"], ["b"]), "sub": strings(["x"], ["x"], ["y"])}
    got = encoder(lists, {}, tf.ones([3, 1], tf.bool)).categories
    np.testing.assert_array_equal(got, [[1, 1], [2, 2], [2, 0]])
    assert encoder.category_sizes() == (3, 3)
