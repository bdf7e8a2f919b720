"""Learning curves from a history."""

import math

from tfr_moe.report.figures import learning_curves

HISTORY = [
    {"epoch": 1, "loss": 0.7, "val_loss": 0.6, "val_ndcg": math.nan, "hsc": 0.4,
     "gate_entropy": 1.0, "adversarial": 1.2, "adversarial_share": 0.3},
    {"epoch": 2, "loss": 0.6, "val_loss": 0.5, "val_ndcg": 0.8, "hsc": 0.2,
     "gate_entropy": 0.9, "adversarial": 0.8, "adversarial_share": 0.2},
]  # fmt: skip


def test_quantities_share_an_axis_by_their_unit_and_missing_values_are_left_out():
    assert learning_curves(HISTORY) == {
        "loss": {"loss": {1: 0.7, 2: 0.6}, "val_loss": {1: 0.6, 2: 0.5}},
        "metric on validation lists": {"val_ndcg": {2: 0.8}},
        "HSC": {"hsc": {1: 0.4, 2: 0.2}},
        "AdvLoss, share of its maximum": {"adversarial_share": {1: 0.3, 2: 0.2}},
        "entropy of the gate (nats)": {"gate_entropy": {1: 1.0, 2: 0.9}},
    }
