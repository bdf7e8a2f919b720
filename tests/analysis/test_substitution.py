"""Shapley values against their definition."""

import itertools
import math

import numpy as np
import pytest

from tfr_moe.analysis.substitution import ShapleyValues


def random_game(count, seed):
    """A value [2] for each set of features, drawn at random."""
    rng = np.random.default_rng(seed)
    drawn = {s: rng.normal(size=2) for s in itertools.product([False, True], repeat=count)}
    return lambda sets: np.array([drawn[tuple(row)] for row in sets.tolist()])


def by_definition(value, count):
    """The sum over subsets with the weights |S|! (m - |S| - 1)! / m!."""
    total = np.zeros([count, 2])
    for feature in range(count):
        for subset in itertools.product([False, True], repeat=count):
            if subset[feature]:
                continue
            size = sum(subset)
            weight = math.factorial(size) * math.factorial(count - size - 1)
            more = [taken or i == feature for i, taken in enumerate(subset)]
            change = value(np.array([subset]))[0] - value(np.array([more]))[0]
            total[feature] += weight / math.factorial(count) * change
    return total


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_features_have_the_values_of_the_definition(count):
    value, shares = random_game(count, count), ShapleyValues(count)
    np.testing.assert_allclose(shares(value(shares.replaced)), by_definition(value, count))


@pytest.mark.parametrize(("count", "orders"), [(5, 32), (7, 2), (9, 8)])
def test_shares_add_up_to_the_difference_whatever_the_orders(count, orders):
    value, shares = random_game(count, 1), ShapleyValues(count, orders)
    ends = value(np.array([[False] * count, [True] * count]))
    np.testing.assert_allclose(shares(value(shares.replaced)).sum(axis=0), ends[0] - ends[1])


def test_pairs_of_orders_are_exact_where_two_features_interact():
    rng = np.random.default_rng(0)
    alone, together = rng.normal(size=6), np.triu(rng.normal(size=(6, 6)), 1)
    shares = ShapleyValues(6, max_orders=2)
    remaining = (~shares.replaced).astype(float)
    values = remaining @ alone + np.einsum("ti,ij,tj->t", remaining, together, remaining)
    # Each feature has its own term and half of those that it shares.
    expected = alone + (together + together.T).sum(axis=1) / 2
    np.testing.assert_allclose(shares(values[:, np.newaxis])[:, 0], expected)


def test_items_without_a_difference_have_no_shares():
    shares = ShapleyValues(0)
    assert shares(np.ones([len(shares.replaced), 3])).shape == (0, 3)
