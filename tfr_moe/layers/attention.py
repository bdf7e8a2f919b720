"""Listwise self-attention: each item's vector in the context of its list, and of its position."""

from __future__ import annotations

import itertools
from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import valid_items
from tfr_moe.layers.dispatch import where_valid

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


def _distinct(initializer: Any, seed: int | None) -> Any:
    """An initializer whose copies, as MultiHeadAttention makes them, each draw different numbers.

    With the same queries and keys every item would attend to itself.
    """
    kind, config, seeds = type(initializer), initializer.get_config(), itertools.count(seed or 0)
    if seed is None or config.get("seed", seed) is not None:
        return initializer

    class _Distinct(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(**{**config, "seed": next(seeds)})

        def get_config(self) -> dict[str, Any]:
            return {}

    return _Distinct()


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class EncoderBlock(ConfiguredLayer):
    r"""One post-norm encoder block over the items of a list.

    $$ z = \text{LayerNorm}(x + \text{Dropout}(\text{MultiHead}(x))), \qquad
       \text{Encoder}(x) = \text{LayerNorm}(z + \text{Dropout}(\text{FC}(z))) $$

    (Pobrotyn et al. 2020, "Context-Aware Learning to Rank with Self-Attention",
    https://arxiv.org/abs/2005.10084, section 4.5) with FC a hidden ReLU layer and a linear one, and
    MultiHead that of Keras:

    $$ \text{MultiHead}(x) = \text{Concat}(head_1, \dots, head_H) W^O, \qquad
       head_i = \text{softmax}\left(\frac{(x W_i^Q)(x W_i^K)^T}{\sqrt{d_k}}\right) x W_i^V $$

    Initializers and the regularizer are those of all kernels and biases.

    Args:
        num_heads: H.
        head_dim: d_k, the width of queries, keys and values of a head; None for n / H.
        hidden_dim: width d_h of the hidden layer of FC.
        dropout: share dropped of what is added to a residual, in training.
        residual: whether x and z are added; without, the block is PRM's ablation "remove RC".

    Raises:
        ValueError: if the input width n is not divisible by H and `head_dim` is None.

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
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: Any) -> None:
        """Creates attention, feed-forward layers, norms and dropouts for inputs of width n."""
        width = int(input_shape[-1])
        if self.head_dim is None and width % self.num_heads:
            raise ValueError(
                f"num_heads must divide the width {width}. Received: num_heads={self.num_heads}"
            )
        layers, dtype = tf.keras.layers, self.dtype_policy
        common: dict[str, Any] = {
            "bias_initializer": self.bias_initializer,
            "kernel_regularizer": self.kernel_regularizer,
            "dtype": dtype,
        }
        self.attention = layers.MultiHeadAttention(
            self.num_heads,
            self.head_dim or width // self.num_heads,
            kernel_initializer=_distinct(self.kernel_initializer, self.seed),
            name="attention",
            **common,
        )

        def dense(units: int, activation: str | None, offset: int, name: str) -> Any:
            initializer = seeded_initializer(self.kernel_initializer, self.offset_seed(offset))
            return layers.Dense(
                units, activation, kernel_initializer=initializer, name=name, **common
            )

        self.hidden = dense(self.hidden_dim, "relu", 10, "hidden")
        self.output_layer = dense(width, None, 11, "output")
        # Keras' epsilon, 1e-3: gradients stay finite through many blocks even for all-zero inputs.
        self.norms = [layers.LayerNormalization(name=f"norm_{i}", dtype=dtype) for i in range(2)]
        self.dropouts = [
            layers.Dropout(
                self.dropout, seed=self.offset_seed(20 + i), name=f"drop_{i}", dtype=dtype
            )
            for i in range(2)
        ]
        super().build(input_shape)

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Encodes the items of each list by each other: [B, L, n] -> [B, L, n].

        Items outside of `mask`, bool [B, L], have no influence, but must be finite; their result is
        undefined. With `return_weights` also the weights [B, H, L, L]: [b, h, i, j] is how much
        item i attends to item j.
        """
        valid_items(inputs, mask)
        both = None
        if mask is not None:
            both = tf.expand_dims(mask, axis=1) & tf.expand_dims(mask, axis=2)
        attended, weights = self.attention(
            inputs, inputs, attention_mask=both, return_attention_scores=True, training=training
        )
        middle = self._add_and_norm(0, inputs, attended, training)
        result = self._add_and_norm(1, middle, self.output_layer(self.hidden(middle)), training)
        return (result, weights) if return_weights else result

    def _add_and_norm(
        self, number: int, inputs: tf.Tensor, added: tf.Tensor, training: bool
    ) -> tf.Tensor:
        added = self.dropouts[number](added, training=training)
        return self.norms[number](inputs + added if self.residual else added)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class SelfAttentionEncoder(ConfiguredLayer):
    r"""Encodes each item of a list in the context of the other items.

    $$ f(x) = \text{Encoder}(\dots \text{Encoder}(\text{FC}(x))) $$

    (Pobrotyn et al. 2020, https://arxiv.org/abs/2005.10084, section 4.5, without the last FC that
    makes the score): a linear projection of each item, then N blocks of `EncoderBlock`. Padded
    items neither attend nor are attended to, whatever their values. Without a positional encoding
    the layer is permutation-equivariant. Arguments that are not listed are those of the blocks, and
    of the projection.

    Args:
        dim: width d_fc of the projection and of the result.
        num_blocks: N.
        head_dim: None for d_fc / H. PRM (Pei et al. 2019, eq. 7) has d_fc.
        positional_encoding: `none`, `fixed` for `sinusoidal_encoding`, or `learned` for a vector of
            each position.
        max_positions: number of positions with a learned vector; later ones share the last.
        encode_inputs: whether the encoding is added to the inputs, before the projection, as in
            eqs. 4 and 5 of PRM, and not to the projection.

    Raises:
        ValueError: for another encoding, if H does not divide `dim`, or for inputs of the wrong
            shape.

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
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        if positional_encoding not in get_args(PositionalEncoding):
            raise ValueError(
                f"positional_encoding must be one of {get_args(PositionalEncoding)}. "
                f"Received: positional_encoding={positional_encoding!r}"
            )
        dtype = self.dtype_policy
        weights = self.arguments("bias_initializer", "kernel_regularizer")
        block = ("num_heads", "head_dim", "hidden_dim", "dropout", "residual", "kernel_initializer")
        self.blocks = [
            EncoderBlock(
                **self.arguments(*block),
                **weights,
                # Far enough apart that no two parts of two blocks draw the same numbers.
                seed=self.offset_seed(100 * (number + 1)),
                name=f"block_{number}",
                dtype=dtype,
            )
            for number in range(num_blocks)
        ]
        start = seeded_initializer(self.kernel_initializer, seed)
        self.projection = tf.keras.layers.Dense(
            dim, kernel_initializer=start, **weights, name="projection", dtype=dtype
        )

    def build(self, input_shape: Any) -> None:
        """Makes the table of learned positions, as wide as the vectors that they are added to."""
        if self.positional_encoding == "learned":
            self.positions = tf.keras.layers.Embedding(
                self.max_positions,
                int(input_shape[-1]) if self.encode_inputs else self.dim,
                tf.keras.initializers.RandomUniform(seed=self.seed),
                name="positions",
                dtype=self.dtype_policy,
            )
        super().build(input_shape)

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
        return_weights: bool = False,
    ) -> Any:
        """Encodes the items of each list: [B, L, n] -> [B, L, dim], 0 outside of `mask` [B, L].

        A positional encoding is of the order of the valid items. With `return_weights` also the
        attention weights [B, N, H, L, L]: [b, k, h, i, j] is the weight of item j for item i in
        head h of block k. Over the valid j they sum to 1 for every valid i.
        """
        mask = valid_items(inputs, mask)
        # NaN times a weight of 0 is NaN: values of padded items are removed first.
        hidden = where_valid(tf.cast(inputs, self.compute_dtype), mask)
        positions = positions_in_list(mask)
        if self.encode_inputs:
            hidden = self.projection(self._add_positions(hidden, positions))
        else:
            hidden = self._add_positions(self.projection(hidden), positions)
        weights = []
        for block in self.blocks:
            hidden, of_block = block(hidden, mask, training=training, return_weights=True)
            weights.append(of_block)
        hidden = where_valid(hidden, mask)
        return (hidden, tf.stack(weights, axis=1)) if return_weights else hidden

    def _add_positions(self, hidden: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        if self.positional_encoding == "none":
            return hidden
        if self.positional_encoding == "fixed":
            encoding = sinusoidal_encoding(positions, hidden.shape[-1])
        else:
            encoding = self.positions(tf.clip_by_value(positions, 0, self.max_positions - 1))
        return hidden + tf.cast(encoding, hidden.dtype)
