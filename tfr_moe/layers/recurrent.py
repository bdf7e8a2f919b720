"""DLCM: a recurrent network reads the initial list, and items are scored by what it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.positions import places_in_list


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class DeepListwiseContext(tf.keras.layers.Layer):
    r"""Scores the items of an initial list by a GRU and its local ranking function.

    $$ z^{(0)}_i = x_i, \quad z^{(l)}_i = \text{elu}(W_l z^{(l-1)}_i + b_l), \qquad
       o_i, s = \text{GRU}([x_n; z_n], \dots, [x_1; z_1]), \qquad
       \phi(o_i, s) = V \left( \tanh(W s + b) \cdot o_i \right) $$

    (Ai et al. 2018, "Learning a Deep Listwise Context Model for Ranking Refinement"). The list is read
    from its last item to its first, so that the best ones are freshest in the state s; o_i is the output
    of width a at item i, and tanh(W s + b), [k, a], looks at it in k ways. Padded items are not read.

    Args:
        hidden_dims: widths of the ELU layers; empty leaves them out.
        state_dim: a, the width of the GRU.
        num_views: k.
        dropout: share of the GRU's outputs dropped in training.
        seed: seed of initialisation and dropout.
        num_outputs: logits for each item; V has a row for each.

    Raises:
        ValueError: for a width or number below 1.

    Example:
        >>> dlcm = DeepListwiseContext([8], state_dim=4)
        >>> dlcm(tf.ones([2, 3, 5]), mask=tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        hidden_dims: Sequence[int] = (64, 64),
        state_dim: int = 64,
        num_views: int = 8,
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        counts = {"state_dim": state_dim, "num_views": num_views, "num_outputs": num_outputs}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} must be >= 1. Received: {name}={value}")
        self.hidden_dims = tuple(hidden_dims)
        self.state_dim = state_dim
        self.num_views = num_views
        self.dropout = dropout
        self.seed = seed
        self.num_outputs = num_outputs
        layers, dtype = tf.keras.layers, self.dtype_policy

        def dense(units: int, activation: str | None, part: int, name: str) -> Any:
            initializer = tf.keras.initializers.GlorotUniform(self._offset(part))
            return layers.Dense(
                units, activation, kernel_initializer=initializer, name=name, dtype=dtype
            )

        self.abstract = [
            dense(width, "elu", depth, f"abstract_{depth}")
            for depth, width in enumerate(self.hidden_dims)
        ]
        self.reader = layers.GRU(
            state_dim,
            return_sequences=True,
            return_state=True,
            kernel_initializer=tf.keras.initializers.GlorotUniform(self._offset(50)),
            recurrent_initializer=tf.keras.initializers.Orthogonal(seed=self._offset(51)),
            name="reader",
            dtype=dtype,
        )
        self.views = dense(num_views * state_dim, "tanh", 52, "views")
        self.output_layer = dense(num_outputs, None, 53, "output")
        self.drop = layers.Dropout(dropout, seed=self._offset(54), name="drop", dtype=dtype)

    def _offset(self, part: int) -> int | None:
        return None if self.seed is None else self.seed + part

    def call(
        self, inputs: Any, mask: Any = None, places: Any = None, training: bool = False
    ) -> Any:
        """Scores the items of each list.

        Args:
            inputs: [B, L, n] input vectors.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            places: int [B, L], the place of each item in the initial list, 0 the first; None takes
                the order in which the valid items stand.
            training: whether dropout is active.

        Returns:
            Logits, float32 [B, L], with several outputs [B, L, num_outputs]; 0 at padded items.
        """
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        if places is None:
            places = places_in_list(mask)
        # Padded items go to the end, where the GRU stops before it comes to them.
        last_first = tf.argsort(tf.where(mask, places, -1), direction="DESCENDING", stable=True)
        valid = mask[..., tf.newaxis]
        vectors = tf.where(valid, tf.cast(inputs, self.compute_dtype), 0)
        hidden = vectors = tf.gather(vectors, last_first, batch_dims=1)
        for layer in self.abstract:
            hidden = layer(hidden)
        if self.abstract:
            vectors = tf.concat([vectors, hidden], axis=-1)
        read = tf.sequence_mask(tf.reduce_sum(tf.cast(mask, tf.int32), axis=1), tf.shape(mask)[1])
        outputs, state = self.reader(vectors, mask=read, training=training)
        outputs = self.drop(outputs, training=training)
        views = tf.reshape(self.views(state), [-1, self.num_views, self.state_dim])
        seen = tf.matmul(outputs, views, transpose_b=True)  # [B, L, k]
        logits = tf.cast(self.output_layer(seen), tf.float32)
        back = tf.argsort(last_first)
        found = tf.where(valid, tf.gather(logits, back, batch_dims=1), 0.0)
        return tf.squeeze(found, axis=-1) if self.num_outputs == 1 else found

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_dims": list(self.hidden_dims),
            "state_dim": self.state_dim,
            "num_views": self.num_views,
            "dropout": self.dropout,
            "seed": self.seed,
            "num_outputs": self.num_outputs,
        }
