"""Tuning with KerasTuner, in both framework lanes.

`keras_tuner` is the library itself, imported so that it takes models of `tf.keras`: a plain
`import keras_tuner` beside tf_keras would expect Keras 3.

Example:
    >>> from tfr_moe.tuning import keras_tuner
    >>> keras_tuner.HyperParameters().Float("hsc_weight", 1e-4, 1e-1, sampling="log")
    0.0001
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import import_keras_tuner

__all__ = ["keras_tuner"]


def __getattr__(name: str) -> Any:
    if name != "keras_tuner":
        raise AttributeError(f"module 'tfr_moe.tuning' has no attribute {name!r}")
    return import_keras_tuner()
