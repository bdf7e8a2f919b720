"""From logits to scores: log-probabilities of a list, expected grades of ordinal outputs.

The ordinal loss trains an output per grade: is the item's grade at least this? Only the loss sees
these outputs; metrics, evaluation, export and serving use their expected grade.
"""

from __future__ import annotations

from tfr_moe._compat import tf
from tfr_moe.layers.base import without_autograph


def expected_grade(logits: tf.Tensor) -> tf.Tensor:
    r"""The expected grade of each item from its ordinal outputs.

    $$ \text{score}_i = \sum_{m=1}^{M} \sigma(s_{im}) $$

    (Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 5.2.2).

    Args:
        logits: [B, L, M]; or [B, L], which are returned unchanged.

    Returns:
        [B, L], float32 for ordinal outputs.

    Example:
        >>> expected_grade(tf.zeros([1, 2, 4])).numpy()
        array([[2., 2.]], dtype=float32)
    """
    if len(logits.shape) == 2:
        return logits
    return tf.reduce_sum(tf.sigmoid(tf.cast(logits, tf.float32)), axis=-1)


def single_score(model: tf.keras.Model) -> tf.keras.Model:
    """A model over the same inputs and variables with one score for each item and task.

    Args:
        model: a functional model that returns [B, L], [B, L, M] or a dict of such.

    Returns:
        The model itself if it has no ordinal outputs.
    """
    outputs = model.output
    if all(len(output.shape) == 2 for output in tf.nest.flatten(outputs)):
        return model
    scores = tf.nest.map_structure(expected_grade, outputs)
    return tf.keras.Model(model.input, scores, name=model.name)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ListLogProbability(tf.keras.layers.Layer):
    r"""The logarithm of the softmax over the valid items of each list.

    $$ Score(i) = P(y_i) = \text{softmax}(z)_i $$

    (eq. 8 of PRM, Pei et al. 2019, https://arxiv.org/abs/1904.06813), as log P: the order is the
    same, no probability underflows, and the loss of eq. 9, -sum_i y_i log P(y_i), is the softmax
    loss of these scores as of the logits z.

    Example:
        >>> scores = ListLogProbability()(
        ...     tf.constant([[1.0, 1.0, 9.0]]), mask=tf.constant([[True, True, False]])
        ... )
        >>> tf.exp(scores).numpy().round(3).tolist()
        [[0.5, 0.5, 1.0]]
    """

    @without_autograph
    def call(self, logits: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Logits [B, L] and mask [B, L] -> float32 log P [B, L], 0 at padded items."""
        logits = tf.cast(logits, tf.float32)
        if mask is None:
            return tf.nn.log_softmax(logits)
        lowest = tf.where(mask, logits, logits.dtype.min)
        return tf.where(mask, tf.nn.log_softmax(lowest), 0.0)
