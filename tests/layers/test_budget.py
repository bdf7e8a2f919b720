"""Widths for a stated number of parameters."""

import pytest

from tfr_moe.layers.task_sharing import dims_of_budget


@pytest.mark.parametrize("budget", [50, 999, 123_456])
def test_no_other_factor_comes_nearer(budget):
    def parameters(dims):
        return 11 * dims[0] + (dims[0] + 1) * dims[1] + dims[1] + 1

    actual = dims_of_budget([8, 4], budget, parameters)
    gap = abs(parameters(actual) - budget)
    for factor in range(1, 4000):
        other = tuple(max(1, round(width * factor / 20)) for width in (8, 4))
        assert gap <= abs(parameters(other) - budget)


def test_nothing_to_scale():
    assert dims_of_budget([], 100, lambda dims: 5) == ()


def test_a_budget_below_the_narrowest_gives_the_narrowest():
    assert dims_of_budget([8, 4], 0, sum) == (1, 1)
