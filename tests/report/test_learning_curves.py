"""Learning curves from a history."""

import math

import pytest

from tfr_moe.report.figures import learning_curves

HISTORY = [
    {"epoch": 1, "loss": 0.7, "val_loss": 0.6, "val_ndcg": math.nan, "hsc": 0.4,
     "gate_entropy": 1.0, "adversarial": 1.2, "adversarial_share": 0.3},
    {"epoch": 2, "loss": 0.6, "val_loss": 0.5, "val_ndcg": 0.8, "hsc": 0.2,
     "gate_entropy": 0.9, "adversarial": 0.8, "adversarial_share": 0.2},
]  # fmt: skip


def test_regularisers_are_shares_of_their_maximum_and_missing_values_are_left_out():
    found = learning_curves(HISTORY, top_k=4)
    assert [curve.name for curve in found["loss"]] == ["loss", "val_loss"]
    (ndcg,) = found["metric on validation lists"]
    assert (ndcg.epochs, ndcg.values) == ([2], [0.8])
    shares = {curve.name: curve.values for curve in found["share of the maximum"]}
    assert shares == {"hsc_share": [0.2, 0.1], "adversarial_share": [0.3, 0.2]}
    assert [curve.name for curve in found["entropy of the gate (nats)"]] == ["gate_entropy"]
    assert len(found) == 4


def test_the_maximum_of_hsc_is_reached_by_gates_that_agree_on_nothing():
    # p = (1, 0, 0), q = (0, 1, 0): over both experts 1 + 1, over the first alone 1.
    for top_k, most in ((2, (1 - 0) ** 2 + (0 - 1) ** 2), (1, (1 - 0) ** 2)):
        (share,) = learning_curves([{"epoch": 1, "hsc": most}], top_k)["share of the maximum"]
        assert share.values == [pytest.approx(1.0)]
