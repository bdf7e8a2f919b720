"""Statistics of numeric columns after their transforms, by hand."""

import math
from collections import Counter

import numpy as np
import pytest

from tfr_moe.elwc.statistics import ColumnStatistics, merge, quantile_statistics, transformed
from tfr_moe.schema import Feature, FeatureSchema

NAN = float("nan")


def number(name, **settings):
    return {"name": name, "scope": "example", "kind": "numeric", **settings}


def statistics_of(*features):
    schema = FeatureSchema(list_id="q", labels=["y"], features=list(features))
    return ColumnStatistics(schema, "example")


def test_positions_are_the_share_below_and_half_of_the_share_equal():
    statistics = statistics_of(number("stars", transform="quantile"))
    rows = np.array([[1.0], [5.0], [NAN], [1.0], [2.0], [1.0]], np.float32)
    # 1 three times of five, 2 and 5 once: 0 + 3/10, 3/5 + 1/10, 4/5 + 1/10.
    actual = statistics.describe(statistics.of(rows))["stars"]
    assert actual["quantiles"] == [1.0, 2.0, 5.0]
    assert actual["positions"] == [0.3, 0.7, 0.9]
    # (3 * 0.3 + 0.7 + 0.9) / 5 = 0.5; variance (3 * 0.04 + 0.04 + 0.16) / 5 = 0.064.
    assert (actual["count"], actual["missing"], actual["mean"]) == (5, 1, 0.5)
    assert actual["std"] == pytest.approx(0.064**0.5)
    assert (actual["min"], actual["max"]) == (0.3, 0.9)
    # 3.5 is halfway from 2 to 5: 0.8; values outside have the position of the end.
    stars = Feature(**number("stars", transform="quantile"))
    inside = transformed(stars, actual, np.array([3.5, -7.0, 1e9, NAN]))
    np.testing.assert_allclose(inside, [0.8, 0.3, 0.9, NAN])


def test_of_many_values_about_each_hundredth_is_kept():
    counts = Counter({float(value): 1 for value in range(1, 10_001)})
    actual = quantile_statistics(Feature(**number("sales", transform="quantile")), counts)
    assert len(actual["quantiles"]) == 101
    assert actual["quantiles"][:3] == [1.0, 100.0, 200.0]
    assert actual["quantiles"][-1] == 10_000.0
    # 99 values below 100, half of itself.
    assert actual["positions"][1] == pytest.approx(0.00995)
    assert actual["mean"] == pytest.approx(0.5, abs=1e-9)
    assert actual["std"] == pytest.approx(12**-0.5, rel=1e-3)


def test_quantiles_of_blocks_are_those_of_the_whole():
    rows = np.random.default_rng(0).lognormal(3.0, 2.0, [900, 1]).astype(np.float32)
    statistics = statistics_of(number("price", transform="quantile", clip=[1, None]))
    parts = statistics.none()
    for block in (rows[500:], rows[:20], rows[20:500]):
        parts = merge(parts, statistics.of(block))
    whole = statistics.describe(statistics.of(rows))
    assert statistics.describe(parts) == whole
    assert whole["price"]["quantiles"][0] == 1.0  # everything below the limit
    # Values are counted to 12 significant bits.
    assert whole["price"]["positions"][0] == pytest.approx((rows < 1 + 2**-11).mean() / 2)


def test_a_column_without_values_has_one_quantile():
    statistics = statistics_of(number("price", transform="quantile"))
    actual = statistics.describe(statistics.of(np.array([[NAN]], np.float32)))["price"]
    assert (actual["quantiles"], actual["positions"], actual["std"]) == ([0.0], [0.0], 0.0)


def test_a_ratio_comes_first_and_is_missing_where_it_is_no_number():
    price = number("price", ratio="list_price", missing="median", clip=[0, 2])
    statistics = statistics_of(price, number("list_price"))
    rows = [[1.0, 2.0], [9.0, 3.0], [5.0, 0.0], [0.0, 0.0], [4.0, NAN], [NAN, 2.0], [3e38, 1e-30]]
    actual = statistics.describe(statistics.of(np.array(rows, np.float32)))
    # 0.5 and 3, which is clipped to 2 after the median is counted.
    assert (actual["price"]["count"], actual["price"]["missing"]) == (2, 5)
    assert (actual["price"]["mean"], actual["price"]["max"], actual["price"]["median"]) == (
        1.25,
        2.0,
        0.5,
    )
    assert actual["list_price"]["count"] == 6


def test_buckets_have_the_statistics_of_their_numbers():
    statistics = statistics_of(number("age", bucketize=[18, 65]))
    actual = statistics.describe(statistics.of(np.array([[10.0], [70.0]], np.float32)))
    assert (actual["age"]["mean"], actual["age"]["max"]) == (40.0, 70.0)


def test_statistics_are_those_of_clipped_and_transformed_numbers():
    price = {"name": "price", "scope": "example", "kind": "numeric", "clip": [None, math.e - 1]}
    stock = {"name": "stock", "scope": "example", "kind": "numeric", "clip": [2, 4]}
    schema = FeatureSchema(
        list_id="query", labels=["click"], features=[{**price, "transform": "log1p"}, stock]
    )
    statistics = ColumnStatistics(schema, "example")
    rows = np.array([[50.0, 0.0], [0.0, 3.0], [np.nan, 9.0]], np.float32)
    actual = statistics.describe(statistics.of(rows))
    # 1 and 0 of two; 2, 3 and 4.
    assert (actual["price"]["mean"], actual["price"]["std"]) == (0.5, 0.5)
    assert (actual["price"]["missing"], actual["price"]["max"]) == (1, 1.0)
    assert (actual["stock"]["mean"], actual["stock"]["min"], actual["stock"]["max"]) == (
        3.0,
        2.0,
        4.0,
    )
