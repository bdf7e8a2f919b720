"""The optimizer of a run."""

from __future__ import annotations

import sys
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig
from tfr_moe.training.adamw import FusedAdamW


def make_optimizer(config: RunConfig, compiled: bool = True) -> tf.keras.optimizers.Optimizer:
    """A Keras optimizer; AdamW (Loshchilov and Hutter, as in the paper) decays all but biases.

    `adamw` is `FusedAdamW`, `keras_adamw` Keras' own: slower, and without the exception for the rows of
    large embedding tables that a batch does not use.

    Args:
        config: the run's settings.
        compiled: whether `FusedAdamW` may compile by XLA.
    """
    decaying = {"adamw": FusedAdamW, "keras_adamw": tf.keras.optimizers.AdamW}
    classes = {
        "adam": tf.keras.optimizers.Adam,
        "adagrad": tf.keras.optimizers.Adagrad,
        "sgd": tf.keras.optimizers.SGD,
    }
    common: dict[str, Any] = {
        "learning_rate": config.learning_rate,
        "global_clipnorm": config.clip_norm,
    }
    if config.optimizer not in decaying:
        return classes[config.optimizer](**common)
    if config.optimizer == "adamw" and not compiled:
        common["compiled_size"] = sys.maxsize
    optimizer = decaying[config.optimizer](weight_decay=config.weight_decay, **common)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def learning_rate_drop(config: RunConfig) -> list[tf.keras.callbacks.Callback]:
    """What divides the learning rate by ten after the epoch that the settings name, if they name one.

    It follows from the number of the epoch, so that a resumed run has the rate of one that was never
    interrupted.
    """
    last = config.learning_rate_drop_epoch
    if last is None:
        return []

    def rate(epoch: int, _: float) -> float:
        return config.learning_rate * (0.1 if epoch >= last else 1.0)

    return [tf.keras.callbacks.LearningRateScheduler(rate)]
