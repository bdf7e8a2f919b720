"""The intervals of differences over seeds and lists include the true difference in 95 % of cases.

`python -m tests.evaluation.test_coverage` prints the table of docs/evaluation.md.
"""

import numpy as np
import pytest

from tfr_moe.evaluation.significance import difference_interval

LISTS = 200
RUNS = (2, 3, 5, 10)
REGIMES = {
    # Shares of seeds, lists and their interaction in the variance of the difference.
    "seeds dominate": (0.90, 0.07, 0.03),
    "equal": (0.45, 0.45, 0.10),
    "lists dominate": (0.05, 0.90, 0.05),
}


def coverage(runs, regime, trials=4000, one_sided=False):
    """Share of intervals that include the true difference 0.

    Args:
        runs: number of runs of both models.
        regime: key of `REGIMES`.
        trials: number of simulated comparisons.
        one_sided: whether the first model is the same under every seed.
    """
    seeds, lists, interaction = REGIMES[regime]
    sides = 1 if one_sided else 2
    of_seed = np.sqrt(seeds * runs / sides)
    of_list = np.sqrt(lists * LISTS)
    of_both = np.sqrt(interaction * runs * LISTS / sides)
    rng = np.random.default_rng(7)

    def values(varies):
        shape = (runs, LISTS)
        if not varies:
            return np.zeros(shape)
        return of_seed * rng.normal(size=(runs, 1)) + of_both * rng.normal(size=shape)

    included = 0
    for _ in range(trials):
        a = values(not one_sided) + of_list * rng.normal(size=LISTS)
        low, high, p_value, _ = difference_interval(a, values(True))
        included += low <= 0 <= high
        assert (low <= 0 <= high) == (p_value >= 0.05)
    return included / trials


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("runs", RUNS)
def test_intervals_hold_their_level(runs, regime):
    # The standard error of a share of 2,000 trials is 0.005.
    assert 0.93 <= coverage(runs, regime, trials=2000) <= 0.97
    assert 0.93 <= coverage(runs, regime, trials=2000, one_sided=True) <= 0.97


if __name__ == "__main__":
    for count in RUNS:
        shares = [
            f"{coverage(count, regime, one_sided=one_sided):.1%}"
            for one_sided in (False, True)
            for regime in REGIMES
        ]
        print(f"| {count} | {' | '.join(shares)} |", flush=True)
