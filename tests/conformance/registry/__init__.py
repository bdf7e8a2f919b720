"""The table: every layer, scorer, loss and metric of tfr_moe, with a factory and its inputs.

A class may stand in it more than once. What `tests/conformance` shows, it shows for every row; a
public class without a row fails `test_registry.py`. A new row goes to the module of its family.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.registry import (
    domains,
    feature_layers,
    list_layers,
    losses,
    metrics,
    mixture_layers,
    scorers,
    task_layers,
    task_scorers,
)

LAYERS = [*mixture_layers.ROWS, *feature_layers.ROWS, *list_layers.ROWS, *task_layers.ROWS]
LAYERS += domains.LAYERS
SCORERS = [*scorers.ROWS, *domains.SCORERS, *task_scorers.ROWS]
LOSSES = losses.ROWS
METRICS = metrics.ROWS
MODELS = [*LAYERS, *SCORERS]
EVERYTHING: list[Any] = [*MODELS, *LOSSES, *METRICS]


def by_name(case: Any) -> str:
    """The id of a case in pytest's output."""
    return case.name.replace(" ", "_")


def registered_classes() -> set[type]:
    """The classes that have a row."""
    return {type(case.make()) for case in EVERYTHING}
