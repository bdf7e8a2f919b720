"""Hyper-parameter search with KerasTuner.

`keras_tuner` is the library itself, imported so that it accepts models of `tf.keras`; a plain
`import keras_tuner` beside tf_keras would expect Keras 3. All names are loaded on first use.

Example:
    >>> from tfr_moe.tuning import keras_tuner
    >>> keras_tuner.HyperParameters().Float("hsc_weight", 1e-4, 1e-1, sampling="log")
    0.0001
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import import_keras_tuner, lazy_names

_names, _get, _ = lazy_names(
    __name__,
    {
        "config": ("SweepConfig", "load_sweep_config"),
        "hypermodel": ("RankingHyperModel",),
        "results": ("summarize_sweep",),
        "sweep": ("tune",),
        "sweep_folder": ("Trial", "load_trials"),
    },
)
__all__ = [*_names, "keras_tuner"]


def __getattr__(name: str) -> Any:
    return import_keras_tuner() if name == "keras_tuner" else _get(name)


def __dir__() -> list[str]:
    return __all__
