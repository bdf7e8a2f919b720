"""Listwise self-attention: each item's vector is computed in the context of its list."""

from __future__ import annotations

import itertools
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.positions import PositionalEncoding, PositionEncoding, places_in_list


def _glorot(seed: int | None) -> Any:
    """A glorot-uniform initialiser whose copies each draw numbers of their own.

    MultiHeadAttention copies its initialiser for queries, keys, values and output. Copies of a seeded
    one of Keras would all start from the same numbers, and every item would attend to itself.
    """
    if seed is None:
        return tf.keras.initializers.GlorotUniform()
    seeds = itertools.count(seed)

    class _OwnNumbers(tf.keras.initializers.GlorotUniform):
        def __init__(self) -> None:
            super().__init__(next(seeds))

        def get_config(self) -> dict[str, Any]:
            return {}

    return _OwnNumbers()


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class EncoderBlock(tf.keras.layers.Layer):
    r"""One post-norm encoder block over the items of a list.

    $$ z = \text{LayerNorm}(x + \text{Dropout}(\text{MultiHead}(x))), \qquad
       \text{Encoder}(x) = \text{LayerNorm}(z + \text{Dropout}(\text{FC}(z))) $$

    (Pobrotyn et al. 2020, "Context-Aware Learning to Rank with Self-Attention", section 4.5), FC being a
    hidden ReLU layer and a linear one, MultiHead that of Keras:

    $$ \text{MultiHead}(x) = \text{Concat}(head_1, \dots, head_H) W^O, \qquad
       head_i = \text{softmax}\left(\frac{(x W_i^Q)(x W_i^K)^T}{\sqrt{d_k}}\right) x W_i^V $$

    Its cost grows with the square of the list's length L. With `num_points` it grows with L m: m learned
    points I attend to the items and the items to what the points have gathered (the induced attention of
    Lee et al. 2019, "Set Transformer"), so that the weights of items for items have rank m at most:

    $$ \text{MultiHead}(x) \rightarrow \text{MultiHead}(x, g), \qquad
       g = \text{LayerNorm}(I + \text{MultiHead}(I, x)) $$

    Args:
        num_heads: H.
        head_dim: d_k, the width of queries, keys and values of a head; None takes n / H.
        hidden_dim: width d_h of FC's hidden layer.
        dropout: share dropped of what is added to a residual, in training.
        residual: whether x and z are added; without, the block is PRM's ablation "remove RC".
        num_points: m; None lets items attend to each other directly.
        seed: seed of initialisation and dropout.

    Raises:
        ValueError: if the input's width n is not divisible by H and `head_dim` is None.

    Example:
        >>> block = EncoderBlock(num_heads=2, hidden_dim=16)
        >>> block(tf.ones([2, 3, 8]), tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3, 8])
    """

    def __init__(
        self,
        num_heads: int = 2,
        head_dim: int | None = None,
        hidden_dim: int = 128,
        dropout: float = 0.0,
        residual: bool = True,
        num_points: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.residual = residual
        self.num_points = num_points
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Creates attention, feed-forward layers, norms and dropouts for inputs of width n."""
        width = int(input_shape[-1])
        if self.head_dim is None and width % self.num_heads:
            raise ValueError(
                f"num_heads must divide the width {width}. Received: num_heads={self.num_heads}"
            )
        layers, seed, dtype = tf.keras.layers, self.seed, self.dtype_policy

        def attention(offset: int, name: str) -> Any:
            return layers.MultiHeadAttention(
                self.num_heads,
                self.head_dim or width // self.num_heads,
                kernel_initializer=_glorot(None if seed is None else seed + offset),
                name=name,
                dtype=dtype,
            )

        self.attention = attention(0, "attention")
        if self.num_points is not None:
            initializer = tf.keras.initializers.GlorotUniform(None if seed is None else seed + 30)
            self.points = self.add_weight(
                "points", [self.num_points, width], initializer=initializer
            )
            self.gathering = attention(31, "gathering")
            self.gathered_norm = layers.LayerNormalization(name="gathered_norm", dtype=dtype)

        def dense(units: int, activation: str | None, offset: int, name: str) -> Any:
            own = None if seed is None else seed + offset
            initializer = tf.keras.initializers.GlorotUniform(own)
            return layers.Dense(
                units, activation, kernel_initializer=initializer, name=name, dtype=dtype
            )

        self.hidden = dense(self.hidden_dim, "relu", 10, "hidden")
        self.output_layer = dense(width, None, 11, "output")
        # Keras' epsilon, 1e-3: gradients stay finite through many blocks even where all inputs are 0.
        self.norms = [layers.LayerNormalization(name=f"norm_{i}", dtype=dtype) for i in range(2)]
        self.dropouts = [
            layers.Dropout(
                self.dropout,
                seed=None if seed is None else seed + 20 + i,
                name=f"drop_{i}",
                dtype=dtype,
            )
            for i in range(2)
        ]
        super().build(input_shape)

    def call(
        self, inputs: Any, mask: Any = None, training: bool = False, return_weights: bool = False
    ) -> Any:
        """Encodes the items of each list by each other.

        Args:
            inputs: [B, L, n]; finite at padded items, where it has no influence.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: whether dropout is active.
            return_weights: whether to return the attention weights too.

        Returns:
            [B, L, n] in the layer's compute dtype, of no meaning at padded items. With
            `return_weights` also the weights [B, H, L, L]: [b, h, i, j] is how much item i attends
            to item j, by way of all points where there are points.
        """
        attend = self._directly if self.num_points is None else self._by_points
        attended, weights = attend(inputs, mask, training, return_weights)
        middle = self._joined(0, inputs, attended, training)
        result = self._joined(1, middle, self.output_layer(self.hidden(middle)), training)
        return (result, weights) if return_weights else result

    def _directly(self, inputs: Any, mask: Any, training: bool, _: bool) -> tuple[Any, Any]:
        both = None if mask is None else mask[:, tf.newaxis, :] & mask[:, :, tf.newaxis]
        return self.attention(
            inputs, inputs, attention_mask=both, return_attention_scores=True, training=training
        )

    def _by_points(
        self, inputs: Any, mask: Any, training: bool, return_weights: bool
    ) -> tuple[Any, Any]:
        points = tf.cast(self.points, inputs.dtype)[tf.newaxis]
        points = tf.repeat(points, tf.shape(inputs)[0], axis=0)
        seen = None if mask is None else mask[:, tf.newaxis, :]
        found, taken = self.gathering(
            points, inputs, attention_mask=seen, return_attention_scores=True, training=training
        )
        gathered = self.gathered_norm(points + found)
        attended, given = self.attention(
            inputs, gathered, return_attention_scores=True, training=training
        )
        return attended, tf.matmul(given, taken) if return_weights else None

    def _joined(self, number: int, kept: Any, added: Any, training: bool) -> Any:
        added = self.dropouts[number](added, training=training)
        return self.norms[number](kept + added if self.residual else added)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "residual": self.residual,
            "num_points": self.num_points,
            "seed": self.seed,
        }


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SelfAttentionEncoder(tf.keras.layers.Layer):
    r"""The items of a list as vectors that know of each other.

    $$ f(x) = \text{Encoder}(\dots \text{Encoder}(\text{FC}(x))) $$

    (Pobrotyn et al. 2020, section 4.5, without the last FC that makes the score): a linear projection of
    each item, then N blocks of `EncoderBlock`. Padded items neither attend nor are attended to, whatever
    stands there. Without a positional encoding the layer is permutation-equivariant.

    Args:
        dim: width d_fc of the projection and of the result.
        num_blocks: N.
        num_heads: H.
        head_dim: see `EncoderBlock`; None takes d_fc / H. PRM (Pei et al. 2019, eq. 7) has d_fc.
        hidden_dim: d_h.
        dropout: see `EncoderBlock`.
        positional_encoding: `none`, or `fixed` or `learned` as in `PositionEncoding`.
        max_positions: see `PositionEncoding`.
        encode_inputs: whether the encoding is added to the inputs, before the projection, as in eqs. 4
            and 5 of PRM, and not to the projection.
        residual: see `EncoderBlock`.
        num_points: see `EncoderBlock`.
        seed: seed of initialisation and dropout.

    Raises:
        ValueError: for no block, or if H does not divide `dim` and `head_dim` is None.

    Example:
        >>> encoder = SelfAttentionEncoder(dim=8, num_blocks=1, hidden_dim=16)
        >>> encoder(tf.ones([2, 3, 5]), mask=tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3, 8])
    """

    def __init__(
        self,
        dim: int = 128,
        num_blocks: int = 2,
        num_heads: int = 2,
        head_dim: int | None = None,
        hidden_dim: int = 128,
        dropout: float = 0.0,
        positional_encoding: PositionalEncoding = "none",
        max_positions: int = 200,
        encode_inputs: bool = False,
        residual: bool = True,
        num_points: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be >= 1. Received: num_blocks={num_blocks}")
        if head_dim is None and dim % num_heads:
            raise ValueError(f"num_heads must divide dim={dim}. Received: num_heads={num_heads}")
        self._config = {
            "dim": dim,
            "num_blocks": num_blocks,
            "num_heads": num_heads,
            "head_dim": head_dim,
            "hidden_dim": hidden_dim,
            "dropout": dropout,
            "positional_encoding": positional_encoding,
            "max_positions": max_positions,
            "encode_inputs": encode_inputs,
            "residual": residual,
            "num_points": num_points,
            "seed": seed,
        }
        self.encode_inputs = encode_inputs
        initializer = tf.keras.initializers.GlorotUniform(seed)
        dtype = self.dtype_policy
        self.projection = tf.keras.layers.Dense(
            dim, kernel_initializer=initializer, name="projection", dtype=dtype
        )
        self.positions: PositionEncoding | None = None
        if positional_encoding != "none":
            self.positions = PositionEncoding(
                positional_encoding, max_positions, seed, name="positions", dtype=dtype
            )
        self.blocks = [
            EncoderBlock(
                num_heads,
                head_dim,
                hidden_dim,
                dropout,
                residual,
                num_points,
                # Far enough apart that no two parts of two blocks draw the same numbers.
                None if seed is None else seed + 100 * (number + 1),
                name=f"block_{number}",
                dtype=dtype,
            )
            for number in range(num_blocks)
        ]

    def call(
        self, inputs: Any, mask: Any = None, places: Any = None, training: bool = False
    ) -> Any:
        """Encodes the items of each list.

        Args:
            inputs: [B, L, n] input vectors.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            places: int [B, L], the place of each item in the initial list, 0 the first; None takes
                the order in which the valid items stand. Read for a positional encoding alone.
            training: whether dropout is active.

        Returns:
            [B, L, dim] in the layer's compute dtype, 0 at padded items.
        """
        return self._encode(inputs, mask, places, training, False)[0]

    def attention_weights(self, inputs: Any, mask: Any = None, places: Any = None) -> Any:
        """What each item attends to, in inference; arguments as those of a call.

        Returns:
            [B, N, H, L, L]: [b, k, h, i, j] is the weight of item j for item i in head h of block k.
            Over the valid j they sum to 1 for every valid i.
        """
        return tf.stack(self._encode(inputs, mask, places, False, True)[1], axis=1)

    def _encode(
        self, inputs: Any, mask: Any, places: Any, training: bool, return_weights: bool
    ) -> tuple[Any, list[Any]]:
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        valid = mask[..., tf.newaxis]
        # Not a number times a weight of 0 is not a number: what is padded goes first.
        hidden = tf.where(valid, tf.cast(inputs, self.compute_dtype), 0)
        if places is None:
            places = places_in_list(mask)
        hidden = self._with_places(hidden, places, self.encode_inputs)
        hidden = self._with_places(self.projection(hidden), places, not self.encode_inputs)
        weights = []
        for block in self.blocks:
            if return_weights:
                hidden, found = block(hidden, mask, training=training, return_weights=True)
                weights.append(found)
            else:
                hidden = block(hidden, mask, training=training)
        return tf.where(valid, hidden, 0), weights

    def _with_places(self, hidden: Any, places: Any, here: bool) -> Any:
        return self.positions(hidden, places) if here and self.positions is not None else hidden

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), **self._config}
