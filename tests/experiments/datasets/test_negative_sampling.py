import itertools
from collections import Counter

import numpy as np
import pytest

from experiments.datasets.interactions.negative_sampling import (
    candidate_table,
    candidates,
    count_events,
    draw,
)

INFINITE = float("inf")


def table(until=INFINITE):
    return candidate_table(
        [
            ("b", (10.0, {1: 4, 3: 12})),
            ("a", (20.0, {2: 1})),
            ("c", (30.0, {3: 9})),
        ],
        until,
    )


def test_weights_are_counts_of_earlier_periods_to_the_exponent():
    assert table().items == ["a", "b", "c"]
    assert table().weights(1, 0.5).tolist() == [0, 0, 0]
    assert table().weights(2, 0.5).tolist() == [0, 2, 0]
    assert table().weights(3, 1.0).tolist() == [1, 4, 0]
    assert table().weights(4, 0.5).tolist() == [1, 4, 3]
    assert table().weights(4, 0.0).tolist() == [1, 1, 1]


def test_an_item_first_seen_at_the_bound_or_later_is_no_candidate():
    assert candidates(table(until=20.0), 9, 1.0).items == ["b"]
    assert candidates(table(until=20.5), 9, 1.0).items == ["a", "b"]


def test_a_category_without_items_has_an_empty_table():
    assert candidates(candidate_table([], INFINITE), 5, 1.0).items == []


def test_seen_items_are_the_same_however_events_are_spread():
    events = [(3.0, 1), (1.0, 0), (5.0, 2), (5.5, 2)]
    for order in itertools.permutations(events):
        spread = [("a", order[0]), ("b", (9.0, 4)), *(("a", event) for event in order[1:])]
        assert dict(count_events(spread)) == {"a": (1.0, {0: 1, 1: 1, 2: 2}), "b": (9.0, {4: 1})}


def some(number, exponent=1.0):
    items = [(f"i{k:03}", (0.0, {0: k + 1})) for k in range(number)]
    return candidates(candidate_table(items, INFINITE), 1, exponent)


def test_drawn_items_are_different_and_never_more_than_there_are():
    for number in (4, 9, 400):
        drawn = draw(some(number), 20, "list", seed=0)
        assert len(drawn) == len(set(drawn)) == min(20, number)


def test_the_draw_depends_on_the_list_and_the_seed_alone():
    given = some(400)
    assert draw(given, 5, "one", 0) == draw(given, 5, "one", 0)
    assert draw(given, 5, "one", 0) != draw(given, 5, "two", 0)
    assert draw(given, 5, "one", 0) != draw(given, 5, "one", 1)


@pytest.mark.parametrize("number", [6, 60])
def test_the_first_item_is_drawn_in_proportion_to_its_weight(number):
    # 6 items take the exponential times, 60 the draws with replacement.
    given = some(number)
    first = Counter(draw(given, 2, f"list {i}", 0)[0] for i in range(4000))
    expected = 4000 * given.weights / given.weights.sum()
    actual = np.array([first[item] for item in given.items])
    # A chi-squared sum has mean n - 1 and variance 2 (n - 1): five deviations above the mean.
    assert ((actual - expected) ** 2 / expected).sum() < number - 1 + 5 * (2 * (number - 1)) ** 0.5


def test_one_item_with_nearly_all_the_weight_does_not_stop_the_draw():
    items = [("hot", (0.0, {0: 10**9})), *((f"i{k}", (0.0, {0: 1})) for k in range(500))]
    given = candidates(candidate_table(items, INFINITE), 1, 1.0)
    drawn = draw(given, 20, "list", 0)
    assert len(set(drawn)) == 20 and drawn[0] == "hot"
