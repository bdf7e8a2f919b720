"""The logs of the simulated month: what changes on which day, by hand."""

import dataclasses

import numpy as np
import pytest

from experiments.studies.month.log import LogOptions, build_catalogue, day_log, demand

OPTIONS = LogOptions(days=35, lists=400, broken_day=24)
CATALOGUE = build_catalogue(OPTIONS)


def log_of(day, broken=False):
    return day_log(OPTIONS, CATALOGUE, day, broken)


def test_a_sub_category_opens_each_week_and_is_shown_from_then_on():
    assert CATALOGUE.opened.tolist() == [0] * 12 + [7, 14, 21, 28]
    assert CATALOGUE.top[12:].tolist() == [0, 1, 2, 3]
    for day, new in ((7, "sub 12"), (14, "sub 13")):
        assert new not in set(log_of(day - 1)["sub_category"])
        rows = log_of(day)
        assert set(rows[rows["sub_category"] == new]["top_category"]) == {f"top {day // 7 - 1}"}


def test_the_demand_without_a_season_by_hand():
    still = dataclasses.replace(OPTIONS, season=0.0)
    # A quarter for each top category, shared in proportion to 1, 1/2, 1/3, and 1/4 from day 7 on.
    before, after = (demand(still, CATALOGUE, day)[[0, 4, 8, 12]] for day in (6, 7))
    assert before == pytest.approx(np.array([6, 3, 2, 0]) / 11 / 4)
    assert after == pytest.approx(np.array([12, 6, 4, 3]) / 25 / 4)


def test_the_season_moves_demand_between_top_categories():
    def of_top(day):
        return np.bincount(CATALOGUE.top, demand(OPTIONS, CATALOGUE, day))

    # On day 7, a quarter of the season: exp(0.5 sin) is exp(0.5), 1, exp(-0.5) and 1.
    expected = np.exp([0.5, 0.0, -0.5, 0.0])
    assert of_top(7) == pytest.approx(expected / expected.sum())
    assert of_top(21) == pytest.approx(np.roll(of_top(7), 2))  # half a season later
    assert of_top(30).sum() == pytest.approx(1.0)


def test_each_sub_category_gets_an_item_a_day():
    added = CATALOGUE.added[CATALOGUE.sub == 12]
    assert np.bincount(added).tolist() == [0] * 7 + [30] + [1] * 27
    items = log_of(20)["item_id"].to_numpy()
    assert (CATALOGUE.added[items] <= 20).all()
    new = [(CATALOGUE.added[log_of(day)["item_id"]] == day).sum() for day in range(20, 25)]
    assert min(new) > 0  # items of the day are shown on it


def test_popularity_is_an_autoregression_of_variance_one():
    series = CATALOGUE.popularity
    assert series.var() == pytest.approx(1.0, abs=0.1)
    for lag in (1, 7):
        lagged = np.mean(series[:, lag:] * series[:, :-lag])
        assert lagged == pytest.approx(0.97**lag, abs=0.1)
    counts = log_of(3)["item_id"].value_counts()
    of_shown = np.average(series[counts.index, 3], weights=counts)
    assert of_shown > 0.5  # popular items are shown more often


def test_prices_of_the_broken_day_are_in_cents_and_nothing_else_differs():
    right, broken = log_of(24), log_of(24, broken=True)
    assert broken["price"].to_numpy() == pytest.approx(100 * right["price"].to_numpy())
    columns = right.columns.drop("price")
    assert broken[columns].equals(right[columns])


def test_items_are_clicked_with_their_probability():
    rows = log_of(10)
    expected = rows["probability"].mean()
    error = 4 * np.sqrt((rows["probability"] * (1 - rows["probability"])).sum()) / len(rows)
    assert rows["click"].mean() == pytest.approx(expected, abs=error)
    # A list has different items of its sub-category, at positions 1 to 8.
    for _, items in rows.groupby("list_id"):
        assert items["item_id"].is_unique and items["position"].tolist() == list(range(1, 9))
    of_item = CATALOGUE.sub[rows["item_id"]]
    assert [f"sub {sub}" for sub in of_item] == rows["sub_category"].tolist()


def test_the_same_seed_gives_the_same_day():
    assert log_of(5).equals(day_log(OPTIONS, build_catalogue(OPTIONS), 5, False))
    assert not log_of(5)["price"].equals(log_of(6)["price"])
