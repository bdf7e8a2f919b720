"""Losses."""

from __future__ import annotations

import functools

import tfr_moe.losses as losses
from tests.conformance.arrays import different_labels, floats, labels
from tests.conformance.cases import LossCase, clicked, items, nonempty

RANKED = {"y_true": labels(), "y_pred": floats("BL", None)}

# Of a loss of orders by label the labels all differ: equal ones are put into a random order.
ORDERED = {**RANKED, "y_true": different_labels()}
LEVELS = {**RANKED, "y_pred": floats("BL", 4)}
ROWS = [
    LossCase(
        name,
        functools.partial(losses.get, name, max_label=4),
        {"ordinal": LEVELS, "listmle": ORDERED}.get(name, RANKED),
        {"sigmoid_cross_entropy": items, "ordinal": items, "listnet_binary": clicked}.get(
            name, nonempty
        ),
    )
    for name in losses.LOSSES
]
