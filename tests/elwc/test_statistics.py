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
    found = statistics.describe(statistics.of(rows))["stars"]
    assert found["quantiles"] == [1.0, 2.0, 5.0]
    assert found["positions"] == [0.3, 0.7, 0.9]
    # (3 * 0.3 + 0.7 + 0.9) / 5 = 0.5; variance (3 * 0.04 + 0.04 + 0.16) / 5 = 0.064.
    assert (found["count"], found["missing"], found["mean"]) == (5, 1, 0.5)
    assert found["std"] == pytest.approx(0.064**0.5)
    assert (found["min"], found["max"]) == (0.3, 0.9)
    # 3.5 is halfway from 2 to 5: 0.8; values outside have the position of the end.
    stars = Feature(**number("stars", transform="quantile"))
    inside = transformed(stars, found, np.array([3.5, -7.0, 1e9, NAN]))
    np.testing.assert_allclose(inside, [0.8, 0.3, 0.9, NAN])


def test_of_many_values_about_each_hundredth_is_kept():
    counts = Counter({float(value): 1 for value in range(1, 10_001)})
    found = quantile_statistics(Feature(**number("sales", transform="quantile")), counts)
    assert len(found["quantiles"]) == 101
    assert found["quantiles"][:3] == [1.0, 100.0, 200.0]
    assert found["quantiles"][-1] == 10_000.0
    # 99 values below 100, half of itself.
    assert found["positions"][1] == pytest.approx(0.00995)
    assert found["mean"] == pytest.approx(0.5, abs=1e-9)
    assert found["std"] == pytest.approx(12**-0.5, rel=1e-3)


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
    found = statistics.describe(statistics.of(np.array([[NAN]], np.float32)))["price"]
    assert (found["quantiles"], found["positions"], found["std"]) == ([0.0], [0.0], 0.0)


def test_a_ratio_comes_first_and_is_missing_where_it_is_no_number():
    price = number("price", ratio="list_price", missing="median", clip=[0, 2])
    statistics = statistics_of(price, number("list_price"))
    rows = [[1.0, 2.0], [9.0, 3.0], [5.0, 0.0], [0.0, 0.0], [4.0, NAN], [NAN, 2.0], [3e38, 1e-30]]
    found = statistics.describe(statistics.of(np.array(rows, np.float32)))
    # 0.5 and 3, which is clipped to 2 after the median is counted.
    assert (found["price"]["count"], found["price"]["missing"]) == (2, 5)
    assert (found["price"]["mean"], found["price"]["max"], found["price"]["median"]) == (
        1.25,
        2.0,
        0.5,
    )
    assert found["list_price"]["count"] == 6


def test_buckets_have_the_statistics_of_their_numbers():
    statistics = statistics_of(number("age", bucketize=[18, 65]))
    found = statistics.describe(statistics.of(np.array([[10.0], [70.0]], np.float32)))
    assert (found["age"]["mean"], found["age"]["max"]) == (40.0, 70.0)


def test_statistics_are_those_of_clipped_and_transformed_numbers():
    price = {"name": "price", "scope": "example", "kind": "numeric", "clip": [None, math.e - 1]}
    stock = {"name": "stock", "scope": "example", "kind": "numeric", "clip": [2, 4]}
    schema = FeatureSchema(
        list_id="query", labels=["click"], features=[{**price, "transform": "log1p"}, stock]
    )
    statistics = ColumnStatistics(schema, "example")
    rows = np.array([[50.0, 0.0], [0.0, 3.0], [np.nan, 9.0]], np.float32)
    found = statistics.describe(statistics.of(rows))
    # 1 and 0 of two; 2, 3 and 4.
    assert (found["price"]["mean"], found["price"]["std"]) == (0.5, 0.5)
    assert (found["price"]["missing"], found["price"]["max"]) == (1, 1.0)
    assert (found["stock"]["mean"], found["stock"]["min"], found["stock"]["max"]) == (3.0, 2.0, 4.0)
