"""The optimizer of a run."""

from __future__ import annotations

from tfr_moe._compat import tf
from tfr_moe.config import RunConfig


def make_optimizer(config: RunConfig) -> tf.keras.optimizers.Optimizer:
    """A Keras optimizer; AdamW (Loshchilov and Hutter, as in the paper) decays all but biases."""
    classes = {
        "adam": tf.keras.optimizers.Adam,
        "adagrad": tf.keras.optimizers.Adagrad,
        "sgd": tf.keras.optimizers.SGD,
    }
    common = {"learning_rate": config.learning_rate, "global_clipnorm": config.clip_norm}
    if config.optimizer != "adamw":
        return classes[config.optimizer](**common)
    optimizer = tf.keras.optimizers.AdamW(weight_decay=config.weight_decay, **common)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer
