"""Synthetic search logs whose labels follow from known utilities.

Each item has M = 7 independent, standard normal components z. Its utility weights them by the
sub-category, and each label is 1 above a threshold of the utility with noise, where the item is
examined. The log shows monotone transforms of six components; the seventh, the quality of the
brand, can be learned from the brand's ID only. The equations are in `docs/data.md`.
"""

from __future__ import annotations

from .options import SearchLogOptions
from .sessions import SessionGenerator, thresholds
from .world import build_world
from .writing import generate

__all__ = [
    "SearchLogOptions",
    "SessionGenerator",
    "build_world",
    "generate",
    "thresholds",
]


def __dir__() -> list[str]:
    return __all__
