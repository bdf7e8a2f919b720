"""Expert towers of which only the selected ones are computed, on valid items only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertTowers(tf.keras.layers.Layer):
    r"""N towers of the same form; each item passes through the S towers chosen for it.

    $$ E_i(X) = W_i^{(H)} a(\dots a(W_i^{(1)} X + b_i^{(1)}) \dots) + b_i^{(H)} $$

    with activation a after every hidden layer and a single linear output ("3 ReLU layers of sizes
    [1024, 512, 256] each", Xiao et al., section III-B). Padded items are dropped, the remaining
    (item, expert) pairs are sorted by expert, each expert runs once as a plain 2-D network over its
    segment, and the logits are put back in place: the cost is that of the selected experts on valid
    items, whatever N and the padding. Weights are stacked in variables [N, in, out].

    Each tower's kernels start as glorot-uniform of their own 2-D shape, biases as zeros.

    Args:
        num_experts: N.
        hidden_dims: widths of the hidden layers; empty for linear experts.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.

    Example:
        >>> towers = ExpertTowers(num_experts=4, hidden_dims=[8])
        >>> items = tf.random.normal([2, 5, 3])
        >>> chosen = tf.constant([[0, 3], [1, 2]])
        >>> towers(items, chosen, mask=tf.ones([2, 5], tf.bool)).shape
        TensorShape([2, 5, 2])
    """

    def __init__(
        self,
        num_experts: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_experts < 1:
            raise ValueError(f"num_experts must be >= 1. Received: num_experts={num_experts}")
        self.num_experts = num_experts
        self.hidden_dims = tuple(hidden_dims)
        self.activation = tf.keras.activations.get(activation)
        self.dropout = dropout
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Creates a stacked kernel and bias per layer."""
        widths = [int(input_shape[-1]), *self.hidden_dims, 1]
        self.kernels, self.biases = [], []
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            limit = (6.0 / (fan_in + fan_out)) ** 0.5
            seed = None if self.seed is None else self.seed + depth
            uniform = tf.keras.initializers.RandomUniform(-limit, limit, seed=seed)
            self.kernels.append(
                self.add_weight(
                    f"kernel_{depth}", [self.num_experts, fan_in, fan_out], initializer=uniform
                )
            )
            self.biases.append(
                self.add_weight(f"bias_{depth}", [self.num_experts, fan_out], initializer="zeros")
            )
        super().build(input_shape)

    def call(self, inputs: Any, indices: Any, mask: Any, training: bool = False) -> Any:
        """Computes the logits of the chosen experts.

        Args:
            inputs: [B, L, n] input vectors X.
            indices: int32 experts, [B, S] for all items of a list or [B, L, S] for each item.
            mask: bool [B, L], True at valid items.
            training: whether dropout is active.

        Returns:
            [B, L, S] logits in the layer's compute dtype, 0 at padded items.
        """
        positions = tf.cast(tf.where(mask), tf.int32)  # [T, 2] of the valid items
        rows = tf.gather_nd(inputs, positions)
        chosen = (
            tf.gather(indices, positions[:, 0])
            if len(indices.shape) == 2
            else tf.gather_nd(indices, positions)
        )
        logits = self._dispatch(rows, chosen, training)
        shape = tf.concat([tf.shape(mask), tf.shape(chosen)[1:]], axis=0)
        restored = tf.scatter_nd(positions, logits, shape)
        return tf.ensure_shape(restored, [*inputs.shape[:2], indices.shape[-1]])

    def _dispatch(self, rows: Any, chosen: Any, training: bool) -> Any:
        """Rows [T, n] through their experts [T, S] -> [T, S]."""
        experts = tf.reshape(chosen, [-1])
        order = tf.argsort(experts, stable=True)
        counts = tf.math.bincount(experts, minlength=self.num_experts, maxlength=self.num_experts)
        sorted_rows = tf.gather(rows, order // tf.shape(chosen)[1])
        segments = tf.split(sorted_rows, counts, num=self.num_experts)
        # unstack, because the gradient of W[e] would be a zero-padded [N, in, out] for each e.
        kernels = [tf.unstack(tf.cast(w, rows.dtype), num=self.num_experts) for w in self.kernels]
        biases = [tf.unstack(tf.cast(b, rows.dtype), num=self.num_experts) for b in self.biases]
        outputs = [
            self._tower(segment, [w[e] for w in kernels], [b[e] for b in biases], training)
            for e, segment in enumerate(segments)
        ]
        sorted_logits = tf.concat(outputs, axis=0)[:, 0]
        logits = tf.gather(sorted_logits, tf.math.invert_permutation(order))
        return tf.reshape(logits, tf.shape(chosen))

    def _tower(self, hidden: Any, kernels: list[Any], biases: list[Any], training: bool) -> Any:
        for depth, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
            hidden = tf.nn.bias_add(tf.matmul(hidden, kernel), bias)
            if depth < len(kernels) - 1:
                hidden = self.activation(hidden)
                if training and self.dropout > 0:
                    hidden = tf.nn.dropout(hidden, self.dropout, seed=self.seed)
        return hidden

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "hidden_dims": list(self.hidden_dims),
            "activation": tf.keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
        }
