"""The same model with its towers in half precision: half the memory, and matrix units where there are any."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.experts import ExpertTowers

HALF_TOLERANCE = 2.0**-5
"""By how much scores may differ from those in float32, as a share of the largest of them.

A bfloat16 has 8 bits: each product is off by up to 2^-9 of itself, and a tower sums and passes on thousands.
"""


def narrowed(model: tf.keras.Model, dtype: str = "bfloat16") -> tf.keras.Model:
    """A copy whose towers store their weights and multiply in `dtype`.

    Features, embeddings, gates and the mixing of experts stay in float32, so that the same experts are
    chosen, with the same weights.

    Args:
        model: a functional model, such as `FeatureScorer.build_model` makes.
        dtype: `bfloat16`.

    Returns:
        A model with variables of its own.
    """

    def copied(layer: Any) -> Any:
        config = layer.get_config()
        if any(isinstance(part, ExpertTowers) for part in (layer, *layer.submodules)):
            config["dtype"] = dtype
        return type(layer).from_config(config)

    copy = tf.keras.models.clone_model(model, clone_function=copied)
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(tf.cast(old, new.dtype))
    return copy
