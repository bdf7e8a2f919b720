"""Examination from swaps: ratios by hand, the truth inside the intervals, clipped weights."""

import numpy as np
import pytest

from tfr_moe.errors import UserError
from tfr_moe.evaluation.examination import examination_curve

COLUMNS = {"list_id": "list", "position": "position", "click": "click"}


def log(rows):
    """Columns of rows of (query, item, position, clicks, impressions)."""
    impressed = [
        (query, item, position, int(number < clicks))
        for query, item, position, clicks, impressions in rows
        for number in range(impressions)
    ]
    values = zip(*impressed, strict=True)
    columns = dict(zip(("query", "item", "position", "click"), map(np.array, values), strict=True))
    return {**columns, "list": np.arange(len(impressed))}


def estimate(columns, **settings):
    return examination_curve(columns, ["query", "item"], **COLUMNS, max_position=3, **settings)


def test_the_ratio_of_two_positions_is_that_of_the_click_rates_of_the_same_items():
    columns = log(
        [
            ("q", "a", 1, 8, 10),
            ("q", "a", 2, 1, 5),
            ("q", "b", 1, 4, 10),
            ("q", "b", 2, 4, 10),
            # The same item under another query is another pair, which was shown at one position.
            ("r", "a", 1, 0, 50),
        ]
    )
    curve = estimate(columns, resamples=5)
    # (0.2 + 0.4) / (0.8 + 0.4); nothing links the third position.
    np.testing.assert_allclose(curve.examination, [1.0, 0.5, np.nan])
    assert curve.pairs == 2


def test_a_position_is_linked_through_others():
    columns = log(
        [("q", "a", 1, 8, 10), ("q", "a", 2, 4, 10), ("q", "b", 2, 6, 10), ("q", "b", 3, 3, 10)]
    )
    np.testing.assert_allclose(estimate(columns, resamples=1).examination, [1.0, 0.5, 0.25])


def test_the_truth_is_inside_the_intervals_where_the_order_follows_relevance():
    rng = np.random.default_rng(3)
    lists, items = 4000, 6
    relevance = rng.uniform(0.1, 0.9, [40, items])
    query = rng.integers(40, size=lists)
    # Better items stand higher, with noise.
    order = np.argsort(-relevance[query] + 0.5 * rng.normal(size=[lists, items]), axis=1)
    position = np.broadcast_to(np.arange(1, items + 1), [lists, items])
    chances = np.take_along_axis(relevance[query], order, axis=1) / position
    columns = {
        "query": np.repeat(query, items),
        "item": order.ravel(),
        "position": position.ravel(),
        "click": (rng.random([lists, items]) < chances).ravel(),
        "list": np.repeat(np.arange(lists), items),
    }
    curve = examination_curve(columns, ["query", "item"], **COLUMNS, max_position=items)
    truth = 1 / np.arange(1, items + 1)
    assert np.all((curve.low <= truth) & (truth <= curve.high)), curve
    assert np.all(curve.high - curve.low < 0.15)
    # The plain ratio of click rates mistakes relevance for examination.
    rates = [columns["click"][columns["position"] == p].mean() for p in (1, items)]
    assert rates[1] / rates[0] < curve.low[-1]


def test_a_log_without_swaps_is_rejected():
    with pytest.raises(UserError, match="query and item: no values were shown at two or more"):
        estimate(log([("q", "a", 1, 1, 2), ("q", "b", 2, 1, 2)]))
