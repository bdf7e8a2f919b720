"""tfr_moe: category-gated mixture-of-experts ranking for Keras and TensorFlow Ranking.

`import tfr_moe` is light: TensorFlow, Keras and TensorFlow Ranking load when a name that needs them
is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from tfr_moe._compat import lazy_names  # first: it prepares the choice of Keras
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

_names, _get, _ = lazy_names(__name__, {"comparison": ("compare",), "ranker": ("Ranker",)})

__all__ = ["FeatureSchema", "UserError", "__version__", *_names, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"tfr_moe.{name}") if name in _SUBMODULES else _get(name)


def __dir__() -> list[str]:
    return __all__
