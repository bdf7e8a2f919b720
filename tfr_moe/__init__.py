"""tfr_moe: category-gated mixture-of-experts ranking for Keras and TensorFlow Ranking.

`import tfr_moe` is light: TensorFlow, Keras and TensorFlow Ranking load when a name that needs them
is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from tfr_moe import _compat as _compat  # first: it prepares the choice of Keras
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

__version__ = "0.2.0.dev0"

_SUBMODULES = (
    "beam",
    "data",
    "evaluation",
    "layers",
    "losses",
    "metrics",
    "scorers",
    "serving",
    "tables",
    "training",
    "tuning",
)

__all__ = ["FeatureSchema", "Ranker", "UserError", "__version__", "compare", *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"tfr_moe.{name}")
    if name == "compare":
        return importlib.import_module("tfr_moe.comparison").compare
    if name == "Ranker":
        return importlib.import_module("tfr_moe.ranker").Ranker
    raise AttributeError(f"module 'tfr_moe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
