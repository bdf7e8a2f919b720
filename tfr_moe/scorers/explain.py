"""Which experts made a score: a model that shares all layers and also returns the gate's choice."""

from __future__ import annotations

from tfr_moe._compat import tf
from tfr_moe.layers.mixture import CategoryMixtureOfExperts


def explanation_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The same model with the gate's choice beside the logits.

    Args:
        model: a functional model, such as `FeatureScorer.build_model` makes.

    Returns:
        A model over the same inputs and variables with outputs `logits` [B, L], `expert_ids` int32 and
        `expert_weights` float32 [B, K] ([B, L, K] for a gate per item); None where there are no experts.
    """
    for layer in model.layers:
        if isinstance(layer, CategoryMixtureOfExperts):
            return tf.keras.Model(model.input, {**layer.output, "logits": model.output})
    return None
