"""Where an item stands in its list, as a number and as a vector that is added to the item's own."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tfr_moe._compat import tf

PositionalEncoding = Literal["none", "fixed", "learned"]


def places_in_list(mask: Any) -> Any:
    """The place of each valid item among those of its list, 0 the first; 0 or less before it.

    Args:
        mask: bool [B, L].

    Returns:
        int32 [B, L]; what stands at padded items has no meaning.

    Example:
        >>> places_in_list(tf.constant([[True, False, True, True]])).numpy().tolist()
        [[0, 0, 1, 2]]
    """
    return tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1


def sinusoidal_encoding(places: Any, width: int) -> Any:
    r"""The fixed encoding of Vaswani et al. 2017.

    $$ PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d}), \qquad PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d}) $$

    Args:
        places: int [...].
        width: d; an odd one leaves out the last cosine.

    Returns:
        float32 [..., d].

    Example:
        >>> sinusoidal_encoding(tf.constant([0, 1]), 2).numpy().astype(float).round(3).tolist()
        [[0.0, 1.0], [0.841, 0.54]]
    """
    pairs = (width + 1) // 2
    frequencies = tf.constant([10000.0 ** (-2 * i / width) for i in range(pairs)], tf.float32)
    angles = tf.cast(places, tf.float32)[..., tf.newaxis] * frequencies
    both = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)
    shape = tf.concat([tf.shape(places), [2 * pairs]], axis=0)
    return tf.ensure_shape(tf.reshape(both, shape)[..., :width], [*places.shape, width])


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PositionEncoding(tf.keras.layers.Layer):
    """Adds to each item's vector one that stands for its place in the initial list.

    Args:
        kind: `fixed` for `sinusoidal_encoding`, `learned` for an embedding of each place.
        max_positions: places that have a learned embedding; later ones share that of the last.
        seed: seed of the learned embeddings' initialisation.

    Raises:
        ValueError: for another kind.

    Example:
        >>> PositionEncoding("learned")(tf.ones([2, 3, 5]), tf.constant([[0, 1, 2], [2, 0, 1]])).shape
        TensorShape([2, 3, 5])
    """

    def __init__(
        self,
        kind: PositionalEncoding = "fixed",
        max_positions: int = 200,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        kinds = get_args(PositionalEncoding)[1:]
        if kind not in kinds:
            raise ValueError(f"kind must be {' or '.join(kinds)}. Received: kind={kind!r}")
        self.kind = kind
        self.max_positions = max_positions
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Creates the learned embeddings [max_positions, n]."""
        if self.kind == "learned":
            self.embeddings = self.add_weight(
                "embeddings",
                [self.max_positions, int(input_shape[-1])],
                initializer=tf.keras.initializers.RandomUniform(-0.05, 0.05, seed=self.seed),
            )
        super().build(input_shape)

    def call(self, inputs: Any, places: Any) -> Any:
        """Vectors [B, L, n] and int places [B, L], 0 the first -> [B, L, n]."""
        if self.kind == "fixed":
            encoding = sinusoidal_encoding(places, inputs.shape[-1])
        else:
            known = tf.clip_by_value(places, 0, self.max_positions - 1)
            encoding = tf.gather(self.embeddings, known)
        return inputs + tf.cast(encoding, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "kind": self.kind,
            "max_positions": self.max_positions,
            "seed": self.seed,
        }
