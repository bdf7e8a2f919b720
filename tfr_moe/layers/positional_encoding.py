"""Positions of items in their lists, as numbers and as vectors added to the items."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured, seeded_initializer

PositionalEncoding = Literal["none", "fixed", "learned"]


def positions_in_list(mask: tf.Tensor) -> tf.Tensor:
    """The position of each valid item among those of its list, from 0."""
    return tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1


def sinusoidal_encoding(positions: tf.Tensor, width: int) -> tf.Tensor:
    r"""The fixed encoding of Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762).

    $$ PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d}), \qquad
       PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d}) $$

    of positions [...] -> float32 [..., d]; an odd width d omits the last cosine.
    """
    pairs = (width + 1) // 2
    frequencies = tf.constant([10000.0 ** (-2 * i / width) for i in range(pairs)], tf.float32)
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * frequencies
    both = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)
    shape = tf.concat([tf.shape(positions), [2 * pairs]], axis=0)
    return tf.ensure_shape(tf.reshape(both, shape)[..., :width], [*positions.shape, width])


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PositionEncoding(Configured, tf.keras.layers.Layer):
    """Adds to each item's vector an encoding of its position in the initial list.

    Args:
        kind: `fixed` for `sinusoidal_encoding`, `learned` for an embedding of each position.
        max_positions: number of positions with a learned embedding; later ones share the last.

    Raises:
        ValueError: for another kind.

    Example:
        >>> encoding = PositionEncoding("learned")
        >>> encoding(tf.ones([2, 3, 5]), tf.constant([[0, 1, 2], [2, 0, 1]])).shape
        TensorShape([2, 3, 5])
    """

    def __init__(
        self,
        kind: PositionalEncoding = "fixed",
        max_positions: int = 200,
        seed: int | None = None,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        kinds = get_args(PositionalEncoding)[1:]
        if kind not in kinds:
            raise ValueError(f"kind must be {' or '.join(kinds)}. Received: kind={kind!r}")
        self.keep(locals())

    def build(self, input_shape: Any) -> None:
        """Creates the learned embeddings [max_positions, n]."""
        if self.kind == "learned":
            self.embeddings = self.add_weight(
                "embeddings",
                [self.max_positions, int(input_shape[-1])],
                initializer=seeded_initializer(self.embeddings_initializer, self.seed),
                regularizer=self.embeddings_regularizer,
            )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Vectors [B, L, n] and positions, int [B, L] from 0 -> [B, L, n]."""
        if self.kind == "fixed":
            encoding = sinusoidal_encoding(positions, inputs.shape[-1])
        else:
            known = tf.clip_by_value(positions, 0, self.max_positions - 1)
            encoding = tf.gather(self.embeddings, known)
        return inputs + tf.cast(encoding, inputs.dtype)
