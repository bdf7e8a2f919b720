"""Losses; those of `LOSSES` need no row of their own."""

from __future__ import annotations

import functools

import tfr_moe.losses as losses
from tests.conformance.arrays import different_labels, floats, labels
from tests.conformance.cases import LossCase, clicked, items, nonempty
from tfr_moe.losses.base import ItemLoss

RANKED = {"y_true": labels(), "y_pred": floats("BL", None)}

# Of a loss of orders by label the labels all differ: equal ones are put into a random order.
ORDERED = {**RANKED, "y_true": different_labels()}
LEVELS = {**RANKED, "y_pred": floats("BL", 4)}
ROWS = [
    LossCase(
        name,
        functools.partial(losses.get, name, max_label=4),
        {"ordinal": LEVELS, "listmle": ORDERED}.get(name, RANKED),
        clicked if name == "listnet_binary" else items if issubclass(kind, ItemLoss) else nonempty,
    )
    for name, kind in losses.LOSSES.items()
]
