"""DLCM: scores items of an initial list by the state of a recurrent network that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.attention import positions_in_list
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import valid_items
from tfr_moe.layers.dispatch import where_valid


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class DeepListwiseContext(ConfiguredLayer):
    r"""Scores the items of an initial list by a GRU and its local ranking function.

    $$ z^{(0)}_i = x_i, \quad z^{(l)}_i = \text{elu}(W_l z^{(l-1)}_i + b_l), \qquad
       o_i, s = \text{GRU}([x_n; z_n], \dots, [x_1; z_1]), \qquad
       \phi(o_i, s) = V \left( \tanh(W s + b) \cdot o_i \right) $$

    (Ai et al. 2018, "Learning a Deep Listwise Context Model for Ranking Refinement" (SIGIR),
    https://arxiv.org/abs/1804.05936). The GRU reads the list from its last item to its first, so
    that the state s depends most on the best items. o_i [a] is its output at item i, and tanh(W s +
    b) [k, a] compares it with the list in k ways. Padded items are skipped.

    Args:
        hidden_dims: widths of the ELU layers; may be empty.
        state_dim: a, the width of the GRU.
        num_comparisons: k.
        dropout: share of the GRU's outputs dropped in training.
        kernel_initializer: of all kernels but the GRU's recurrent one, which starts orthogonal.
        kernel_regularizer: of the same kernels; `bias_initializer` is that of all biases.

    Example:
        >>> dlcm = DeepListwiseContext([8], state_dim=4)
        >>> dlcm(tf.ones([2, 3, 5]), mask=tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        hidden_dims: Sequence[int] = (64, 64),
        state_dim: int = 64,
        num_comparisons: int = 8,
        dropout: float = 0.0,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        layers, dtype = tf.keras.layers, self.dtype_policy

        def weights(seed_offset: int) -> dict[str, Any]:
            start = seeded_initializer(self.kernel_initializer, self.offset_seed(seed_offset))
            others = self.arguments("bias_initializer", "kernel_regularizer")
            return {"kernel_initializer": start, **others}

        def dense(
            units: int, activation: str | None, seed_offset: int, name: str
        ) -> tf.keras.layers.Dense:
            return layers.Dense(units, activation, **weights(seed_offset), name=name, dtype=dtype)

        self.abstract = [
            dense(width, "elu", depth, f"abstract_{depth}")
            for depth, width in enumerate(self.hidden_dims)
        ]
        self.reader = layers.GRU(
            state_dim,
            return_sequences=True,
            return_state=True,
            **weights(50),
            recurrent_initializer=tf.keras.initializers.Orthogonal(seed=self.offset_seed(51)),
            name="reader",
            dtype=dtype,
        )
        self.views = dense(num_comparisons * state_dim, "tanh", 52, "views")
        self.output_layer = dense(1, None, 53, "output")
        self.drop = layers.Dropout(dropout, seed=self.offset_seed(54), name="drop", dtype=dtype)

    def call(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """Scores the items of each list: [B, L, n] -> float32 [B, L].

        The initial list is the order of the items. Logits are 0 outside of `mask`, bool [B, L].
        """
        mask = valid_items(inputs, mask)
        # Padded items go to the end, which the mask hides from the GRU.
        positions = tf.where(mask, positions_in_list(mask), -1)
        last_first = tf.argsort(positions, direction="DESCENDING", stable=True)
        vectors = where_valid(tf.cast(inputs, self.compute_dtype), mask)
        hidden = vectors = tf.gather(vectors, last_first, batch_dims=1)
        for layer in self.abstract:
            hidden = layer(hidden)
        if self.abstract:
            vectors = tf.concat([vectors, hidden], axis=-1)
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        real = tf.sequence_mask(lengths, tf.shape(mask)[1])
        outputs, state = self.reader(vectors, mask=real, training=training)
        outputs = self.drop(outputs, training=training)
        of_list = tf.reshape(self.views(state), [-1, self.num_comparisons, self.state_dim])
        comparisons = tf.matmul(outputs, of_list, transpose_b=True)  # [B, L, k]
        logits = tf.cast(tf.squeeze(self.output_layer(comparisons), axis=-1), tf.float32)
        original_order = tf.argsort(last_first)
        return tf.where(mask, tf.gather(logits, original_order, batch_dims=1), 0.0)
