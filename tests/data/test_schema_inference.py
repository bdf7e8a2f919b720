"""Inferred schemas: kinds, scopes, leaks and category trees of frames that are made by hand."""

import numpy as np
import pandas as pd
import pytest

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.tables import infer_schema

LISTS, ITEMS = 60, 4
ROWS = LISTS * ITEMS
NUMBERS = "is text that looks like numbers"


def frame(**columns):
    """60 lists of 4 items, the second of which is bought; `columns` replaces or adds some."""
    number, item = np.divmod(np.arange(ROWS), ITEMS)
    sub = number % 6
    rows = {
        "q": number,
        "buy": (item == 1).astype(int),
        "sub": [f"s{i}" for i in sub],
        "top": [f"t{i // 3}" for i in sub],
        "age": 20.0 + number % 7,
        "brand_id": (number + item) % 5,
        "price": 1.5 + (number * 7 + item * 3) % 11,
    }
    return pd.DataFrame(rows | columns)


def inferred(rows, **roles):
    """Column -> (outcome, reason), and the schema."""
    result = infer_schema(rows, **{"list_id": "q", "label": "buy", **roles})
    return {d.column: d for d in result.decisions}, FeatureSchema.model_validate(result.schema)


def feature_of(schema, name):
    return schema.feature(name).model_dump(exclude_defaults=True)


def test_kinds_and_scopes():
    rows = frame(size=[f"{i % 20}.5" if i % 21 else "XL" for i in range(ROWS)])
    _, schema = inferred(rows)
    assert [(f.name, f.scope, f.kind) for f in schema.features] == [
        ("sub", "context", "categorical"),
        ("top", "context", "categorical"),
        ("age", "context", "numeric"),
        ("brand_id", "example", "categorical"),
        ("price", "example", "numeric"),
        ("size", "example", "categorical"),
    ]
    assert (schema.list_id, schema.labels, schema.position) == ("q", ("buy",), None)
    assert schema == FeatureSchema.infer(rows, list_id="q", label="buy")


def test_one_row_that_differs_makes_a_feature_of_items():
    rows = frame()
    rows.loc[ROWS - 1, "age"] = 99.0
    decisions, schema = inferred(rows)
    assert schema.feature("age").scope == "example"
    # 51 of the 60 lists begin with another age than the most frequent one.
    assert decisions["age"].warning
    assert decisions["age"].reason.startswith(
        "differs within 1 of 60 lists only; if it belongs to the list, set its scope to context "
        "in the schema"
    )


def test_a_rare_value_of_the_items_is_not_taken_for_one_of_the_list():
    promotion = np.zeros(ROWS)
    promotion[[1, 4, 9]] = 1.0  # differs within lists 0, 1, 2; only list 1 begins with it
    decision = inferred(frame(promotion=promotion))[0]["promotion"]
    assert (decision.reason, decision.warning) == ("differs within lists", False)


def test_scopes_are_checked_over_all_rows_in_any_order():
    rows = frame().sample(frac=1, random_state=3)
    assert inferred(rows)[1].features == inferred(frame())[1].features


def test_a_child_that_determines_its_parent_is_the_hierarchy():
    decisions, schema = inferred(frame())
    assert (schema.hierarchy.child, schema.hierarchy.parent) == ("sub", "top")
    assert decisions["sub"].reason == "'sub' determines 'top'"
    # Both have one width, that of the child.
    assert schema.feature("sub").embedding_dim == schema.feature("top").embedding_dim == 4


def test_names_of_categories_come_before_other_pairs():
    number = np.repeat(np.arange(LISTS), ITEMS)
    rows = frame(city=[f"c{i}" for i in number % 12], country=[f"l{i}" for i in number % 12 // 6])
    decisions, schema = inferred(rows[["q", "buy", "city", "country", "sub", "top", "price"]])
    assert (schema.hierarchy.child, schema.hierarchy.parent) == ("sub", "top")
    assert decisions["city"].outcome == "hierarchy candidate"


def test_a_query_that_determines_the_category_is_not_taken_for_a_sub_category():
    rows = frame().rename(columns={"top": "department", "sub": "shelf"})
    queries = rows["shelf"] + np.where(rows["q"] % 12 < 6, " red", " blue")
    rows.insert(0, "query", queries)
    decisions, schema = inferred(rows)
    assert (schema.hierarchy.child, schema.hierarchy.parent) == ("shelf", "department")
    assert decisions["query"].outcome == "hierarchy candidate"


def test_no_pair_of_categories_no_hierarchy():
    rows = frame()
    rows["top"] = [f"t{i % 2}" for i in np.repeat(np.arange(LISTS) // 6, ITEMS)]
    assert inferred(rows)[1].hierarchy is None


def test_skewed_numbers_take_the_logarithm():
    skewed = np.where(np.arange(ROWS) % 20 == 0, 1000.0, 1.0 + np.arange(ROWS) % 3)
    decisions, schema = inferred(frame(price=skewed))
    assert feature_of(schema, "price")["transform"] == "log1p"
    # 12 rows of 1000, the rest 1, 2, 3 in turn.
    assert "mean 51.9, median 2" in decisions["price"].reason
    assert inferred(frame(price=-skewed))[1].feature("price").transform == "none"


def test_missing_numbers_become_the_mean():
    price = np.where(np.arange(ROWS) < 24, np.nan, 1.0 + np.arange(ROWS) % 2)
    decisions, schema = inferred(frame(price=price))
    assert schema.feature("price").missing == "mean"
    assert schema.feature("price").missing_indicator
    assert "10.0% missing" in decisions["price"].reason


def test_text_with_separators_and_arrays_are_lists_of_ids():
    number = np.arange(ROWS)
    rows = frame(
        tags=[f"a{i % 3}|b{i % 2}" for i in number],
        clicks=[[i % 4, i % 3] for i in number],
        vector=[[0.5 * i, 1.0] for i in number],
    )
    _, schema = inferred(rows)
    assert [schema.feature(name).kind for name in ("tags", "clicks")] == ["categorical_list"] * 2
    assert feature_of(schema, "vector") == {
        "name": "vector",
        "scope": "example",
        "kind": "numeric",
        "width": 2,
    }


def test_unsigned_hashes_above_the_highest_int64_are_ids():
    rows = frame(brand_id=frame()["brand_id"].astype("uint64") + np.uint64(2**63))
    assert feature_of(inferred(rows)[1], "brand_id")["kind"] == "categorical"


def test_many_ids_get_wider_embeddings_and_rare_ones_no_entry():
    rows = pd.concat([frame().assign(q=lambda r, i=i: r.q + 60 * i) for i in range(10)])
    rows["brand_id"] = np.arange(len(rows)) % 1100
    feature = feature_of(inferred(rows)[1], "brand_id")
    assert (feature["embedding_dim"], feature["min_count"]) == (16, 2)


def test_titles_of_products_are_a_second_id_and_ignored():
    product = np.arange(ROWS) % 118
    rows = frame(title=[f"Stuhl {i}" for i in product], product_id=product)
    decisions, schema = inferred(rows)
    assert decisions["title"].outcome == "ignored"
    assert decisions["title"].reason == (
        "has one value for each 'product_id', nearly; both tell the same items apart"
    )
    assert schema.feature("product_id").kind == "categorical"
    assert "title" not in {feature.name for feature in schema.features}
    assert inferred(rows, keep=["title"])[1].feature("title").kind == "categorical"
    # 18 products share a title: 101 titles are less than 90 % of 118 products.
    rows["title"] = [f"Stuhl {max(i, 17)}" for i in product]
    assert inferred(rows)[1].feature("title").kind == "categorical"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([1.0] * ROWS, "is constant (1)"),
        (["a"] * ROWS, "is constant"),
        ([None] * ROWS, "has no values"),
        ([f"row-{i}" for i in range(ROWS)], "looks like an ID or free text: 240 distinct values"),
        (pd.Timestamp("2024-01-01"), "is a time"),
        ([f"2024-01-01 {i // 60:02}:{i % 60:02}" for i in range(ROWS)], "is a time; give it as"),
        ([f"{i},50 €" for i in range(ROWS)], f"{NUMBERS}, but '0,50 €' is not a plain"),
        ([f"{i}.5" if i % 20 else "n/a" for i in range(ROWS)], f"{NUMBERS}, but 'n/a' is not"),
        ([f"{i}.5" for i in range(ROWS)], f"{NUMBERS}; convert"),
        ([f"{i}.5" if i < ROWS - 1 else "none" for i in range(ROWS)], f"{NUMBERS}, but 'none' is"),
        ([{"a": 1}] * ROWS, "has type struct"),
        ([[["a"]]] * ROWS, "has type list"),
        ([b"a"] * ROWS, "has type binary"),
        (pd.cut(pd.Series(np.arange(ROWS)), 5), "has type "),
        (pd.Series(pd.period_range("2024-01-01", periods=ROWS, freq="D")), "has type "),
    ],
)
def test_columns_that_cannot_help_are_ignored_with_a_reason(column, reason):
    decisions, schema = inferred(frame(extra=column))
    assert decisions["extra"].outcome == "ignored"
    assert decisions["extra"].reason.startswith(reason)
    assert "extra" not in {feature.name for feature in schema.features}


BOUGHT = np.arange(ROWS) % ITEMS == 1
LEAKS = {
    "equal": (BOUGHT.astype(float), "non-zero exactly where 'buy' is"),
    "scaled": (BOUGHT * 9.99, "non-zero exactly where 'buy' is"),
    "later": ((BOUGHT & (np.arange(ROWS) % 3 == 0)) * 2.5, "non-zero only where 'buy' is"),
    "earlier": (
        (BOUGHT | (np.arange(ROWS) % 10 == 0)).astype(int),
        "non-zero wherever 'buy' is, and in 35.0% of all rows",
    ),
    "text": ([f"order{i}" if b else None for i, b in enumerate(BOUGHT)], "present exactly where"),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_is_known_only_after_the_label_is_a_leak(name):
    column, reason = LEAKS[name]
    decisions, schema = inferred(frame(later=column))
    assert decisions["later"].warning
    assert decisions["later"].reason.startswith(f"leak: {reason}")
    assert "later" not in {feature.name for feature in schema.features}
    with_leak = inferred(frame(later=column), keep=["later"])[1]
    assert "later" in {feature.name for feature in with_leak.features}


def test_a_flag_of_most_items_is_no_leak():
    in_stock = BOUGHT | (np.arange(ROWS) % 10 > 0)
    assert inferred(frame(in_stock=in_stock))[1].feature("in_stock").kind == "numeric"


def test_a_column_that_counts_the_items_of_each_list_is_no_feature():
    item = np.arange(ROWS) % ITEMS
    decisions, _ = inferred(frame(shown_at=(item * 3) % ITEMS + 1))  # 1, 4, 3, 2 in each list
    assert decisions["shown_at"].warning
    assert "counts from 1 in every list" in decisions["shown_at"].reason
    decisions, schema = inferred(frame(stars=np.where(item == 3, 3, item + 1)))  # 1, 2, 3, 3
    assert feature_of(schema, "stars")["scope"] == "example"
    decisions, schema = inferred(frame(shown_at=item + 1), keep=["shown_at"])
    assert feature_of(schema, "shown_at")["kind"] == "numeric"


def test_a_position_is_no_feature():
    decisions, _ = inferred(frame(position=np.arange(ROWS) % ITEMS + 1))
    assert decisions["position"].warning
    assert "give it as `position`" in decisions["position"].reason


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"label": "bought"}, "label 'bought' is missing; there are: q, buy"),
        ({"label": "prize"}, "label 'prize' is missing; there are: q, buy, sub, top"),
        ({"time": "sub"}, "time 'sub': expected ISO 8601 time or Unix seconds, got 's0'"),
        ({"ignore": ["x"]}, "column 'x' is missing"),
        ({"ignore": ["sub", "top", "age", "brand_id", "price"]}, "no column is left as a feature"),
        ({"label": "sub"}, "label 'sub': expected numbers"),
        ({"weight": "sub"}, "weight 'sub': expected numbers"),
        ({"position": "sub"}, "position 'sub': expected numbers"),
    ],
)
def test_errors_name_the_column(roles, message):
    with pytest.raises(UserError) as caught:
        inferred(frame(), **roles)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("child", "parent", "message"),
    [
        ("sub", "age", "hierarchy.parent must be a categorical context feature, got 'age'"),
        ("age", "top", "hierarchy.child must be a categorical context feature, got 'age'"),
        ("sub", "q", "hierarchy.parent must be a categorical context feature, got 'q'"),
        ("item.brand_id", "item.price", "must be a categorical item feature, got 'item.price'"),
        ("item.brand_id", "top", "expected item.NAME, got 'top'"),
    ],
)
def test_a_given_hierarchy_without_two_categories_is_rejected(child, parent, message):
    with pytest.raises(UserError) as caught:
        FeatureSchema.infer(
            frame(), list_id="q", label="buy", hierarchy={"child": child, "parent": parent}
        )
    assert message in str(caught.value)


def test_a_hierarchy_that_is_one_column_is_rejected():
    with pytest.raises(
        UserError, match="hierarchy must map child and parent to columns, got 'sub'"
    ):
        FeatureSchema.infer(frame(), list_id="q", label="buy", hierarchy="sub")


def test_a_hierarchy_without_a_parent_is_rejected():
    with pytest.raises(UserError, match="hierarchy: parent: Field required"):
        FeatureSchema.infer(frame(), list_id="q", label="buy", hierarchy={"child": "sub"})


def test_an_id_of_items_as_the_list_id_is_warned_of():
    item = np.arange(ROWS)
    item[: ROWS // 4] = 0  # one item occurs often, the others once
    decisions, _ = inferred(frame(item=item), list_id="item")
    assert decisions["item"].warning
    assert decisions["item"].reason == "99% of its lists have one row; is it the ID of an item?"
    assert not inferred(frame())[0]["q"].warning


def test_rows_without_a_list_id_make_no_list_of_their_own():
    rows = frame()
    rows["q"] = rows.q.where(np.arange(ROWS) % 10 > 0)
    decisions, schema = inferred(rows)
    assert decisions["q"].warning
    expected = "24 rows have no value; they belong to no list and are left out"
    assert decisions["q"].reason == expected
    assert schema == inferred(rows[rows.q.notna()])[1]
    assert schema.feature("sub").scope == "context"
    with pytest.raises(UserError, match="list_id 'q': no row has one"):
        inferred(rows.assign(q=None))


@pytest.mark.filterwarnings("error")
def test_infinite_numbers_do_not_disturb_the_inference():
    rows = frame(size=np.where(np.arange(ROWS) == 5, np.inf, 1.5 * (np.arange(ROWS) % 20)))
    assert feature_of(inferred(rows)[1], "size")["kind"] == "numeric"


def test_labels_that_are_never_above_0_are_warned_of():
    decisions, _ = inferred(frame(buy=0))
    assert decisions["buy"].warning
    assert decisions["buy"].reason == "is never above 0: there is nothing to learn from"


def test_a_column_whose_name_no_feature_can_have_is_warned_of():
    rows = frame().rename(columns={"price": "unit price"})
    decision = inferred(rows)[0]["unit price"]
    assert (decision.outcome, decision.warning) == ("ignored", True)
    assert decision.reason.endswith("letters, digits and _ only; rename it")
    nameless = inferred(frame().rename(columns={"price": ""}))[0][""]
    assert (nameless.outcome, nameless.warning) == ("ignored", False)


def test_two_words_as_a_label_are_named():
    rows = frame(sold=["yes", "no"] * (len(frame()) // 2))
    expected = "label 'sold': expected numbers, got text 'no' and 'yes'; map them to 0 and 1"
    with pytest.raises(UserError) as caught:
        inferred(rows, label="sold")
    assert str(caught.value) == expected


def test_numbers_as_text_are_a_label_and_a_position():
    rows = frame(place=[f"{1 + n % ITEMS:02d}" for n in range(ROWS)])
    rows["sold"], rows["weight"] = rows["buy"].astype(str), "0.5"
    roles = {"label": "sold", "position": "place", "weight": "weight", "ignore": "buy"}
    assert (
        inferred(rows, **roles)[1]
        == inferred(rows.astype({"sold": int, "place": int, "weight": float}), **roles)[1]
    )


@pytest.mark.parametrize("kind", ["text", "datetime64", "seconds"])
def test_a_time_without_its_role_is_warned_of(kind):
    days = pd.date_range("2024-03-01", periods=LISTS).repeat(ITEMS)
    seconds = [day.timestamp() for day in days]
    kinds = {"text": days.astype(str), "datetime64": days, "seconds": seconds}
    decisions, _ = inferred(frame(shown_at=kinds[kind], revenue=seconds))
    assert decisions["shown_at"].warning and "give it as `time`" in decisions["shown_at"].reason
    assert decisions["revenue"].outcome == "context numeric"
    decisions, schema = inferred(frame(shown_at=kinds[kind]), time="shown_at")
    assert not decisions["shown_at"].warning and schema.time == "shown_at"


def test_lists_of_one_row_have_no_scopes():
    with pytest.raises(UserError, match="list_id 'q': every list has one row"):
        inferred(frame(q=range(ROWS)))


def test_a_role_of_a_type_without_ids_or_numbers_is_an_error():
    with pytest.raises(
        UserError, match=r"list_id 'q': has type list.*, expected one value per row"
    ):
        inferred(frame(q=[[n] for n in range(ROWS)]))
    with pytest.raises(UserError, match=r"label 'buy': has type struct.*, which is not supported"):
        inferred(frame(buy=[{"a": 1}] * ROWS))
    with pytest.raises(UserError, match="column 'big': has integers of more than 64 bits"):
        inferred(frame(big=[2**70] * ROWS))
    with pytest.raises(UserError, match="a data frame must be of pandas, polars or pyarrow"):
        inferred(frame()["price"])


def test_ids_that_are_floats_because_one_is_missing_stay_ids():
    rows = frame()
    rows["brand_id"] = rows["brand_id"].where(rows.index != 3)
    assert rows["brand_id"].dtype == float
    _, schema = inferred(rows)
    assert schema.feature("brand_id").kind == "categorical"
    rows["brand_id"] += 0.5
    assert inferred(rows)[1].feature("brand_id").kind == "numeric"


def test_a_single_name_to_ignore_is_one_column():
    assert inferred(frame(), ignore="price")[0]["price"].outcome == "ignored"
