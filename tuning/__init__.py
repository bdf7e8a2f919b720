"""Tuning with KerasTuner, in both framework lanes.

`keras_tuner` is the library itself, imported so that it takes models of `tf.keras`: a plain
`import keras_tuner` beside tf_keras would expect Keras 3. It and the names below load when they are
first used.

Example:
    >>> from tfr_moe.tuning import keras_tuner
    >>> keras_tuner.HyperParameters().Float("hsc_weight", 1e-4, 1e-1, sampling="log")
    0.0001
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfr_moe._compat import import_keras_tuner

if TYPE_CHECKING:
    import keras_tuner

    from .config import SweepConfig, load_sweep_config
    from .hypermodel import RankingHyperModel
    from .records import Trial, load_trials
    from .sweep import tune

__all__ = [
    "RankingHyperModel",
    "SweepConfig",
    "Trial",
    "keras_tuner",
    "load_sweep_config",
    "load_trials",
    "tune",
]
_HOMES = {
    "RankingHyperModel": "hypermodel",
    "SweepConfig": "config",
    "Trial": "records",
    "load_sweep_config": "config",
    "load_trials": "records",
    "tune": "sweep",
}


def __getattr__(name: str) -> Any:
    if name == "keras_tuner":
        return import_keras_tuner()
    if name not in _HOMES:
        raise AttributeError(f"module 'tfr_moe.tuning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfr_moe.tuning.{_HOMES[name]}"), name)
