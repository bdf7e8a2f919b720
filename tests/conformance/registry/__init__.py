"""The table: every layer, scorer, loss and metric of tfr_moe, with a factory and its inputs.

A class may stand in it more than once. What `tests/conformance` shows, it shows for every row; a
public class without a row fails `test_registry.py`. Every module here with `ROWS` is part of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from tests.conformance.cases import LossCase, MetricCase, ModelCase

MODULES = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
EVERYTHING: list[Any] = [row for module in MODULES for row in getattr(module, "ROWS", ())]
MODELS = [row for row in EVERYTHING if isinstance(row, ModelCase)]
LAYERS = [row for row in MODELS if row.call is not None]
SCORERS = [row for row in MODELS if row.call is None]
LOSSES = [row for row in EVERYTHING if isinstance(row, LossCase)]
METRICS = [row for row in EVERYTHING if isinstance(row, MetricCase)]


def by_name(case: Any) -> str:
    """The id of a case in pytest's output."""
    return case.name.replace(" ", "_")


def registered_classes() -> set[type]:
    """The classes that have a row."""
    return {type(case.make()) for case in EVERYTHING}
