"""The additive bias of display positions, which is part of a model in training only."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class PositionBiasTower(ConfiguredLayer):
    r"""Computes how much the presentation of an item adds to its logits.

    $$ b_t(p, x) = v_t^T \, \text{relu}(e_p + W x) $$

    for task t, an embedding e_p of the display position p and the other presentation features x:
    the shallow tower of Zhao et al. 2019, "Recommending what video to watch next"
    (https://doi.org/10.1145/3298689.3346997). The loss is that of the logits s_t + b_t; the score,
    in metrics and in a served model, is s_t alone, as in PAL (Guo et al. 2019,
    https://doi.org/10.1145/3298689.3347033). v starts at zero. In training the term of a share
    `dropout` of the lists is 0, so that s must explain these lists by itself.

    Args:
        num_tasks: number of terms for each item.
        max_positions: number of positions with an embedding; later ones share the last.
        hidden_dim: width of e_p.
        dropout: share of lists without the term in training.
        embeddings_initializer: of e; None for a normal distribution of deviation 1.

    Example:
        >>> tower = PositionBiasTower()
        >>> tower(tf.constant([[1.0, 2.0, 3.0]])).numpy().tolist()  # before training
        [[[0.0], [0.0], [0.0]]]
    """

    def __init__(
        self,
        num_tasks: int = 1,
        max_positions: int = 200,
        hidden_dim: int = 16,
        dropout: float = 0.1,
        seed: int | None = None,
        embeddings_initializer: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        output_initializer: Any = "zeros",
        embeddings_regularizer: Any = None,
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        # A half-precision position would be rounded.
        super().__init__(autocast=False, **kwargs)
        # Embeddings far apart: terms of different positions are learned apart, within few steps.
        if embeddings_initializer is None:
            embeddings_initializer = tf.keras.initializers.RandomNormal(stddev=1.0)
        self.keep(locals())
        self.drop = tf.keras.layers.Dropout(dropout, seed=seed, dtype="float32")
        self.project = tf.keras.layers.Dense(
            hidden_dim,
            use_bias=False,
            kernel_initializer=seeded_initializer(self.kernel_initializer, seed),
            kernel_regularizer=self.kernel_regularizer,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Any) -> None:
        """Creates e, with a row for a missing position, and v."""
        self.embeddings = self.add_weight(
            "embeddings",
            [self.max_positions + 1, self.hidden_dim],
            initializer=seeded_initializer(self.embeddings_initializer, self.seed),
            regularizer=self.embeddings_regularizer,
        )
        self.output_kernel = self.add_weight(
            "output_kernel",
            [self.hidden_dim, self.num_tasks],
            initializer=seeded_initializer(self.output_initializer, self.seed),
            regularizer=self.kernel_regularizer,
        )
        super().build(input_shape)

    def call(
        self,
        positions: tf.Tensor,
        presentation: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Positions [B, L] from 1, and x [B, L, n] or None -> terms, float32 [B, L, num_tasks].

        A missing position is below 1. Terms are 0 outside of `mask` and, in training, in dropped
        lists.
        """
        rows = tf.cast(tf.clip_by_value(positions, 0, self.max_positions), tf.int32)
        hidden = tf.cast(tf.gather(self.embeddings, rows), self.compute_dtype)
        if presentation is not None:
            hidden += self.project(tf.cast(presentation, self.compute_dtype))
        terms = tf.cast(tf.nn.relu(hidden) @ self.output_kernel, tf.float32)
        undropped = self.drop(tf.ones([tf.shape(positions)[0], 1, 1]), training=training) > 0
        valid = undropped if mask is None else undropped & tf.expand_dims(mask, -1)
        return tf.where(valid, terms, 0.0)
