"""The same model with experts that have weights of their own, where training made them from shared ones."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.mixture import CategoryMixtureOfExperts
from tfr_moe.layers.star import StarTowers


def flattened(model: tf.keras.Model) -> tf.keras.Model:
    """A copy whose experts hold the products that `shared_weights` has them make in each call.

    For inference: as many weights, the same scores, and nothing to multiply before a request is scored.

    Args:
        model: a functional model, such as `FeatureScorer.build_model` makes.

    Returns:
        A model with variables of its own, or `model` where its experts share nothing.
    """
    mixtures = [layer for layer in model.layers if _shares(layer)]
    if not mixtures:
        return model
    copy = tf.keras.models.clone_model(model, clone_function=_copied)
    old = model.get_weight_paths()
    for path, new in copy.get_weight_paths().items():
        new.assign(old[path])
    for mixture in mixtures:
        towers = copy.get_layer(mixture.name).towers
        layers = mixture.towers.own_weights()
        for kernel, bias, own in zip(towers.kernels, towers.biases, layers, strict=True):
            kernel.assign(own.kernel)
            bias.assign(own.bias)
    return copy


def _shares(layer: Any) -> bool:
    return isinstance(layer, CategoryMixtureOfExperts) and isinstance(layer.towers, StarTowers)


def _copied(layer: Any) -> Any:
    config = layer.get_config()
    if _shares(layer):
        config["options"] = {k: v for k, v in config["options"].items() if k != "shared_weights"}
    return type(layer).from_config(config)
