"""Features of the Complete Journey's lists: worked out by hand, and invariances against leaks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.datasets.complete_journey.candidates import (
    Candidates,
    DrawOptions,
    draw_candidates,
    find_lists,
    recent_sales,
)
from experiments.datasets.complete_journey.features import EXAMPLE_FEATURES, History
from experiments.datasets.complete_journey.lists import ListOptions
from tests.experiments.datasets.journey_tables import (
    maker,
    product,
    promotion,
    purchase,
    random_world,
    tables,
)

PRODUCTS = [
    product(101, manufacturer_id=7, product_type="GREEN"),
    product(102, manufacturer_id=7, brand="Private"),
    product(103, manufacturer_id=8, product_type="WHITE", package_size=None),
    product(104),
    product(105),
    product(106),
    product(107),
    product(201, "SOAP", department="DRUG GM", manufacturer_id=7),
]
SALES = [
    purchase(1, 1, 101, 4.0, quantity=2, retail_disc=1.0),
    purchase(2, 2, 102, 2.0, coupon_match_disc=0.5),
    purchase(3, 3, 105, household_id=2),
    purchase(3, 3, 106, household_id=2),
    purchase(5, 4, 104, household_id=2),
    purchase(9, 5, 101, 3.0, household_id=2, store_id=2, retail_disc=1.0),
    purchase(9, 5, 103, household_id=2, store_id=2),
    purchase(9, 6, 201, 5.0),
    # The lists: paid prices that no feature may see, and a product nobody bought before.
    purchase(10, 7, 101, 99.0, transaction_timestamp=pd.Timestamp("2017-03-02 01:30")),
    purchase(10, 7, 107),
    purchase(10, 8, 103, 99.0, household_id=3),
]
PROMOTIONS = [
    promotion(10, 101, 1, "5", "0"),
    promotion(10, 101, 1, "0", "D"),
    promotion(10, 102, 1, "0", "A"),
    promotion(10, 103, 2, "5", "D"),
    promotion(9, 104, 1, "5", "D"),
]
WEEK_10 = ListOptions(first_week=10, last_train_week=10, first_test_week=11, last_week=10)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    table = maker(PRODUCTS, SALES, WEEK_10, PROMOTIONS).week(10)
    return table.to_pandas().set_index(["list_id", "product_id"])


def of_item(rows: pd.DataFrame, list_id: str, item: int) -> dict[str, float]:
    names = [feature.name for feature in EXAMPLE_FEATURES]
    return rows.loc[(list_id, item), names].to_dict()


def test_features_of_a_product_that_the_household_bought(rows):
    # Its week 1 is older than the pool's weeks 2 to 9; usual price (4.00 + 2.50) / 3 units.
    assert of_item(rows, "7-1", 101) == pytest.approx(
        {
            "item_sales_1w": 1,
            "item_sales_8w": 1,
            "store_sales_12w": 1,
            "price": 3.0,
            "discount": 0.25,
            "display": 1,
            "mailer": 1,
            "front_page": 1,
            "household_item": 1,
            "household_item_recency": math.exp(-9 / 8),
            "household_manufacturer": 2,
            "household_type": 1,
            "household_package_size": 2,
            "private_label": 0,
            "private_label_match": 0,
            "price_distance": math.log(3.0 / (6.5 / 3)),
            "product_age": 9,
        }
    )


def test_features_of_a_private_label_product(rows):
    # Household 1 bought 101, 102 and 201 before: one of three is the private label.
    assert of_item(rows, "7-1", 102) == pytest.approx(
        {
            "item_sales_1w": 0,
            "item_sales_8w": 1,
            "store_sales_12w": 1,
            "price": 2.5,
            "discount": 0.0,
            "display": 0,
            "mailer": 1,
            "front_page": 0,
            "household_item": 1,
            "household_item_recency": math.exp(-1),
            "household_manufacturer": 2,
            "household_type": 1,
            "household_package_size": 2,
            "private_label": 1,
            "private_label_match": 1 / 3,
            "price_distance": math.log(2.5 / (6.5 / 3)),
            "product_age": 8,
        }
    )


def test_features_of_a_product_that_is_new_to_the_household(rows):
    # Nothing that the household bought is of its size, type or manufacturer.
    assert of_item(rows, "7-1", 103) == pytest.approx(
        {
            **dict.fromkeys((feature.name for feature in EXAMPLE_FEATURES), 0.0),
            "item_sales_1w": 1,
            "item_sales_8w": 1,
            "price": 1.0,
            "price_distance": math.log(6.5 / 3),
            "product_age": 1,
        }
    )
    # 104 is in no promotion of week 10; one sale in store 1.
    assert of_item(rows, "7-1", 104)["display"] == 0
    assert of_item(rows, "7-1", 104)["store_sales_12w"] == 1


def test_features_of_a_household_without_history(rows):
    # One of the chain's eight earlier purchases is the private label.
    of_102 = of_item(rows, "8-1", 102)
    assert of_102["private_label_match"] == pytest.approx(1 / 8)
    assert of_102["price_distance"] == of_102["household_manufacturer"] == 0


def test_the_context_of_a_list(rows):
    first = rows.loc["7-1"]
    assert (first.nunique()[["hour", "age", "household_category_sales", "time"]] == 1).all()
    # 01:30 UTC on a Thursday is Wednesday evening at the stores.
    assert first.iloc[0][["hour", "weekday", "age", "marital_status"]].tolist() == [
        "20",
        "2",
        "45-54",
        "unknown",
    ]
    assert first.iloc[0][["top_category", "sub_category"]].tolist() == ["GROCERY", "TEA"]
    assert first.iloc[0].time == "2017-02-27"
    assert first.iloc[0].household_category_sales == 2
    assert first.iloc[0].household_private_share == pytest.approx(1 / 3)
    second = rows.loc["8-1"].iloc[0]
    assert (second.age, second.household_category_sales) == ("unknown", 0)
    assert second.household_private_share == pytest.approx(1 / 8)


def test_labels_and_a_positive_outside_the_pool(rows):
    assert rows.loc["7-1"].purchase.to_dict() == {
        **dict.fromkeys((102, 103, 104, 105, 106), 0),
        101: 1,
    }
    counts = maker(PRODUCTS, SALES, WEEK_10).counts
    assert (counts["positives"], counts["positives outside the pool"]) == (3, 1)


def examples(purchases, catalogue, promotions, lists, candidates):
    history = History(purchases, catalogue)
    context = history.context(lists)
    return context, history.examples(lists, context, candidates, promotions)


def lists_of_week(purchases, catalogue, week):
    recent = recent_sales(purchases, catalogue, week)
    lists, _ = find_lists(purchases, catalogue, week, recent)
    return lists, draw_candidates(lists, catalogue, recent, DrawOptions(size=12))


@pytest.fixture(scope="module")
def world():
    products, sales, promotions = random_world()
    purchases, catalogue, promoted = tables(products, sales, promotions)
    lists, candidates = lists_of_week(purchases, catalogue, 12)
    return purchases, catalogue, promoted, lists, candidates


def test_features_do_not_change_when_later_purchases_do(world):
    purchases, catalogue, promoted, lists, candidates = world
    before = examples(*world)
    dice = np.random.default_rng(1)
    late = purchases.week >= 12
    assert late.sum() > 500
    changed = replace(
        purchases,
        product=np.where(late, dice.integers(0, 60, len(purchases)), purchases.product),
        household=np.where(late, dice.integers(0, 40, len(purchases)), purchases.household),
        store=np.where(late, dice.integers(0, 3, len(purchases)), purchases.store),
        units=np.where(late, 77, purchases.units),
        paid=np.where(late, dice.integers(1, 9999, len(purchases)), purchases.paid),
        regular=np.where(late, 9999, purchases.regular),
    )
    for old, new in zip(
        before, examples(changed, catalogue, promoted, lists, candidates), strict=True
    ):
        for name, values in old.items():
            np.testing.assert_array_equal(values, new[name], err_msg=name)


def test_features_do_change_with_the_week_before(world):
    purchases, *others = world
    late = purchases.week == 11
    changed = replace(purchases, paid=np.where(late, 1, purchases.paid))
    assert (examples(*world)[1]["price"] != examples(changed, *others)[1]["price"]).any()


def test_a_shuffled_list_has_the_same_features_to_the_bit(world):
    purchases, catalogue, promoted, lists, candidates = world
    # The bought products first, as in the leak that this test guards against.
    order = np.lexsort((~candidates.purchased, candidates.list_index))
    first = Candidates(
        candidates.list_index, candidates.product[order], candidates.purchased[order]
    )
    _, features = examples(*world)
    _, sorted_features = examples(purchases, catalogue, promoted, lists, first)
    assert len(features) == 17
    for name, values in features.items():
        np.testing.assert_array_equal(values[order], sorted_features[name], err_msg=name)
