"""Several outputs for an item, one for each grade, and the one score that they make together.

The ordinal loss has a model say of each grade whether the item reaches it. Only the loss sees these
outputs: metrics, evaluation, export and serving see their sum.
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def score_of_levels(logits: Any) -> Any:
    r"""The expected grade of each item, if the outputs are right.

    $$ \text{score}_i = \sum_{m=1}^{M} \sigma(s_{im}) $$

    (Pobrotyn et al. 2020, section 5.2.2).

    Args:
        logits: [B, L, M]; or [B, L], which are scores already.

    Returns:
        [B, L], float32 where there are levels.

    Example:
        >>> score_of_levels(tf.zeros([1, 2, 4])).numpy()
        array([[2., 2.]], dtype=float32)
    """
    if len(logits.shape) == 2:
        return logits
    return tf.reduce_sum(tf.sigmoid(tf.cast(logits, tf.float32)), axis=-1)


def single_score(model: tf.keras.Model) -> tf.keras.Model:
    """A model over the same inputs and variables with one score for each item, or for each of its tasks.

    Args:
        model: a functional model that gives [B, L], [B, L, M] or a dict of such.

    Returns:
        The model itself where it has no levels.
    """
    outputs = model.output
    if all(len(output.shape) == 2 for output in tf.nest.flatten(outputs)):
        return model
    scores = tf.nest.map_structure(score_of_levels, outputs)
    return tf.keras.Model(model.input, scores, name=model.name)
