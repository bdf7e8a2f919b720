import numpy as np
import pytest
from scipy import stats

from experiments.mmoe.rank_statistics import rank_interval, wilcoxon


@pytest.mark.parametrize("count", [6, 11, 40])
def test_the_rank_interval_includes_0_where_the_signed_rank_test_does_not_reject_it(count):
    rng = np.random.default_rng(count)
    rejected = []
    for _ in range(60):
        values = rng.normal(0.35, 1.0, size=count)
        actual = rank_interval(values)
        p = stats.wilcoxon(values, method="exact").pvalue
        assert (actual.low > 0 or actual.high < 0) == (p <= 0.05)
        assert actual.low <= actual.centre <= actual.high
        rejected.append(p <= 0.05)
    assert 0 < sum(rejected) < 60


def test_five_values_are_too_few_for_a_rank_interval():
    # All signs alike have probability 2 / 2^5 > 0.05.
    actual = rank_interval([1.0, 2.0, 4.0, 8.0, 16.0])
    assert actual.centre == 5.0  # of 1, 1.5, 2, 2.5, 3, 4, 4.5, 5, 6, 8, 8.5, 9, 10, 12, 16
    assert np.isnan(actual.low)
    assert np.isnan(actual.high)


def test_wilcoxon_by_hand():
    # Of the 16 signs of four ranks, W- <= 1 in two: p = 2 * 2 / 16.
    assert wilcoxon([-1, 2, 3, 4]) == pytest.approx(0.25)
    assert wilcoxon([0, 0]) == 1
    assert np.isnan(wilcoxon([]))


def test_rounding_errors_are_no_differences():
    # Sums in another order: all of one sign, and p would be 2 / 2^8.
    assert wilcoxon([1e-16] * 8) == 1
