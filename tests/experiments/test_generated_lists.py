"""Generated letor lists: lengths, grades, and how much the rest of the list says."""

import gzip
import json

import numpy as np
import pytest

from experiments.context_aware.generated_lists import (
    MOST,
    SHARES,
    LetorOptions,
    context_of,
    generate_letor,
    lists,
    thresholds,
)
from tfr_moe.errors import UserError


def test_lengths_are_those_of_web30k():
    sizes = np.array([len(actual.utility) for actual in lists(LetorOptions(features=8), 3000, 0)])
    # The standard error of the mean is 56 / sqrt(3000) = 1.
    assert sizes.mean() == pytest.approx(119.6, abs=4)
    assert sizes.min() >= 1
    assert sizes.max() <= MOST


def test_grades_have_the_shares_of_web30k_and_some_lists_have_none():
    options = LetorOptions(features=8)
    limits = thresholds(options)
    grades = [np.searchsorted(limits, g.utility, side="right") for g in lists(options, 1500, 0)]
    shares = np.bincount(np.concatenate(grades)) / sum(map(len, grades))
    np.testing.assert_allclose(shares, SHARES, atol=0.03)
    assert np.mean([not actual.any() for actual in grades]) == pytest.approx(0.031, abs=0.015)


def test_context_is_worked_out_from_price_and_crowd():
    # Prices 1, 2, 3: z = -1.2247, 0, 1.2247. Topics a, a, b: shares 2/3, 2/3, 1/3, so that
    # z = 0.7071, 0.7071, -1.4142.
    expected = -np.array([-1.2247 + 0.7071, 0.7071, 1.2247 - 1.4142]) / np.sqrt(2)
    actual = context_of(np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]))
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize(("strength", "share"), [(0.0, 0.0), (1.0, 0.5)])
def test_at_strength_one_the_list_says_as_much_as_the_item(strength, share):
    """The share of the variance within lists, noise apart, that comes from the context."""
    with_context = list(lists(LetorOptions(features=8, context_strength=strength), 300, 0))
    without = list(lists(LetorOptions(features=8, context_strength=0.0), 300, 0))
    pairs = [(a.utility - b.utility, b.utility) for a, b in zip(with_context, without, strict=True)]
    context = np.mean([np.var(c) for c, _ in pairs])
    of_item = np.mean([np.var(o) for _, o in pairs]) - 0.25
    assert context / (context + of_item) == pytest.approx(share, abs=0.05)


def test_the_same_seed_writes_the_same_lists(tmp_path):
    options = LetorOptions(queries=10, mean_length=6, features=8, seed=3)
    for name in ("a", "b"):
        assert generate_letor(tmp_path / name, options) == {"train": 6, "validation": 2, "test": 2}
    texts = [
        gzip.decompress((tmp_path / name / "train.txt.gz").read_bytes()).decode()
        for name in ("a", "b")
    ]
    assert texts[0] == texts[1]
    first = texts[0].splitlines()[0].split()
    assert first[1] == "qid:1"
    assert len(first) == 2 + 8
    truth = json.loads((tmp_path / "a" / "truth.json").read_text())
    assert truth["options"]["seed"] == 3


def test_values_out_of_range_are_named():
    with pytest.raises(UserError, match=r"features must be >= 8\. Received: 3"):
        LetorOptions(features=3)
    with pytest.raises(UserError, match="mean_length must be >= 2 and"):
        LetorOptions(mean_length=9999)
