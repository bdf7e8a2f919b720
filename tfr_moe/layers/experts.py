"""Expert towers: the selected ones or all of them, computed on valid items only."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.checks import check_ids, check_items, check_widths, full_mask
from tfr_moe.layers.dispatch import (
    Dense,
    put_rows,
    seeded_initializer,
    select_weights,
    selection_of_rows,
    take_rows,
)
from tfr_moe.layers.normalization import Norm, add_norm_weights, normalize


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertTowers(Configured, tf.keras.layers.Layer):
    r"""N towers of the same shape; each item passes through the S towers selected for it.

    $$ E_i(X) = W_i^{(H)} a(\dots a(W_i^{(1)} X + b_i^{(1)}) \dots) + b_i^{(H)} $$

    with activation a after every hidden layer and a single linear output ("3 ReLU layers of sizes
    [1024, 512, 256] each", Xiao et al., section III-B). Weights are stacked in variables
    [N, in, out]. The cost is that of the selected experts on valid items, whatever N and the
    padding: the (item, expert) pairs of a batch are sorted by expert, and each expert runs once as
    a plain 2-D network over its segment, so no item is dropped however skewed the selection is. A
    single list, as in most requests, passes through the weights of its experts directly.

    Called without `indices` the layer computes all N experts by batched products. With
    `hidden_output` an expert returns its last hidden layer, activated, in place of a logit, for
    mixtures with further layers on top.

    Args:
        num_experts: N.
        hidden_dims: widths of the hidden layers; empty for linear experts.
        activation: of the hidden layers.
        dropout: share of hidden units dropped in training.
        seed: seed of initialization and dropout.
        hidden_output: whether an expert returns a vector, its last hidden layer.
        num_outputs: logits that an expert gives for an item.
        norm: `layer` normalizes hidden layers before their activation (see `normalize`).
        kernel_initializer: of each expert's kernels; fans are those of a single expert.
        bias_initializer: of the biases.
        kernel_regularizer: of the stacked kernels.
        bias_regularizer: of the stacked biases.

    Raises:
        ValueError: for no expert or output, widths that are not a sequence of positive integers, a
            `hidden_output` without a hidden layer, an unknown `norm`, or inputs of the wrong shape.

    Example:
        >>> towers = ExpertTowers(num_experts=4, hidden_dims=[8])
        >>> items = tf.random.normal([2, 5, 3])
        >>> selected = tf.constant([[0, 3], [1, 2]])
        >>> towers(items, selected, mask=tf.ones([2, 5], tf.bool)).shape
        TensorShape([2, 5, 2])
        >>> ExpertTowers(num_experts=4, hidden_dims=[8], hidden_output=True)(items).shape
        TensorShape([2, 5, 4, 8])
    """

    def __init__(
        self,
        num_experts: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        hidden_output: bool = False,
        num_outputs: int = 1,
        norm: Norm = "none",
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if norm not in get_args(Norm):
            raise ValueError(f"norm must be one of {get_args(Norm)}. Received: norm={norm!r}")
        for name, number in (("num_experts", num_experts), ("num_outputs", num_outputs)):
            if number < 1:
                raise ValueError(f"{name} must be >= 1. Received: {name}={number}")
        self.hidden_dims = check_widths("hidden_dims", hidden_dims)
        if hidden_output and not self.hidden_dims:
            raise ValueError("hidden_output needs a hidden layer. Received: hidden_dims=()")
        self.num_experts = num_experts
        self.activation = tf.keras.activations.get(activation)
        self.dropout = dropout
        self.seed = seed
        self.hidden_output = hidden_output
        self.num_outputs = num_outputs
        self.norm = norm
        self.kernel_initializer = tf.keras.initializers.get(kernel_initializer)
        self.bias_initializer = tf.keras.initializers.get(bias_initializer)
        self.kernel_regularizer = tf.keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = tf.keras.regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        """Creates a stacked kernel and bias per layer, and the weights of the normalization."""
        last = [] if self.hidden_output else [self.num_outputs]
        widths = [int(input_shape[-1]), *self.hidden_dims, *last]
        self.kernels, self.biases, self.norms = [], [], []
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            self.kernels.append(
                self.add_weight(
                    f"kernel_{depth}",
                    [self.num_experts, fan_in, fan_out],
                    initializer=self._kernel_start(depth),
                    regularizer=self.kernel_regularizer,
                )
            )
            self.biases.append(
                self.add_weight(
                    f"bias_{depth}",
                    [self.num_experts, fan_out],
                    initializer=self._bias_start(depth),
                    regularizer=self.bias_regularizer,
                )
            )
            kind = self.norm if depth < len(self.hidden_dims) else "none"
            self.norms.append(add_norm_weights(self, kind, depth, [self.num_experts, fan_out]))
        super().build(input_shape)

    def _kernel_start(self, depth: int) -> Any:
        """The initializer of the stacked kernels of a layer."""
        seed = None if self.seed is None else self.seed + depth
        return seeded_initializer(self.kernel_initializer, seed, self.num_experts)

    def _bias_start(self, depth: int) -> Any:
        """The initializer of the stacked biases of a layer."""
        seed = None if self.seed is None else self.seed + 500 + depth
        return seeded_initializer(self.bias_initializer, seed)

    def call(
        self,
        inputs: tf.Tensor,
        indices: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Computes the selected experts, or all.

        Args:
            inputs: [B, L, n] input vectors X, or [B, n] without an axis for the list.
            indices: int32 experts, [B, S] for all items of a list or [B, L, S] for each item; None
                for all N. At -1 nothing is computed.
            mask: bool, the shape of `inputs` without its last axis, True at valid items; None takes
                every item as valid.
            training: whether dropout is active.

        Returns:
            [B, L, S] logits in the layer's compute dtype, with `hidden_output` [B, L, S, h], with
            several outputs [B, L, S, num_outputs]; S = N without `indices`. 0 at padded items and
            where the index is -1.
        """
        check_items(inputs, mask, ranks=(2, 3))
        if indices is None:
            rows, positions = take_rows(inputs, mask)
            return put_rows(self._logits(self.all_experts(rows, training)), positions, inputs)
        check_ids("indices", indices, inputs, by_list=False)
        mask = full_mask(inputs, mask)
        if training or len(indices.shape) == 3:
            return self._of_rows(inputs, indices, mask, training)
        return tf.cond(
            tf.shape(indices)[0] == 1,
            lambda: self._of_one_list(inputs, indices[0], mask),
            lambda: self._of_rows(inputs, indices, mask, training),
        )

    def _of_one_list(self, inputs: tf.Tensor, selected: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Items of a single list through its experts [S]; the cost does not depend on N."""
        rows, positions = take_rows(inputs, mask)
        stacks = self._stacks(rows.dtype)
        outputs = []
        for slot in range(selected.shape[0]):
            expert = tf.maximum(selected[slot], 0)
            values = self._tower(rows, select_weights(stacks, operator.itemgetter(expert)), False)
            outputs.append(tf.where(selected[slot] >= 0, values, tf.zeros([], rows.dtype)))
        return put_rows(self._logits(tf.stack(outputs, axis=1)), positions, inputs)

    def _of_rows(
        self, inputs: tf.Tensor, indices: tf.Tensor, mask: tf.Tensor, training: bool
    ) -> tf.Tensor:
        """Items of any number of lists, sorted by expert."""
        rows, positions = take_rows(inputs, mask)
        selected = selection_of_rows(indices, positions)
        return put_rows(self._logits(self._sorted(rows, selected, training)), positions, inputs)

    def all_experts(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        """All experts: rows [T, n] shared by all or [T, N, n] one per expert -> [T, N, h]."""
        hidden = rows[tf.newaxis] if len(rows.shape) == 2 else tf.transpose(rows, [1, 0, 2])
        layers = select_weights(self._stacks(rows.dtype), lambda w: w, batched=True)
        return tf.transpose(self._tower(hidden, layers, training), [1, 0, 2])

    def _sorted(self, rows: tf.Tensor, selected: tf.Tensor, training: bool) -> tf.Tensor:
        """Rows [T, n] through their experts [T, S] -> [T, S, h], sorted by expert."""
        experts = tf.reshape(selected, [-1])
        order = tf.argsort(experts, stable=True)
        # The first segment is that of index -1.
        counts = tf.math.bincount(
            experts + 1, minlength=self.num_experts + 1, maxlength=self.num_experts + 1
        )
        sorted_rows = tf.gather(rows, order // tf.shape(selected)[1])
        nothing, *segments = tf.split(sorted_rows, counts, num=self.num_experts + 1)
        # unstack, because the gradient of W[e] would be a zero-padded [N, in, out] for each e.
        stacks = select_weights(
            self._stacks(rows.dtype), lambda w: tf.unstack(w, num=self.num_experts)
        )
        outputs = [
            self._tower(segment, select_weights(stacks, operator.itemgetter(e)), training, stream=e)
            for e, segment in enumerate(segments)
        ]
        width = self.kernels[-1].shape[-1]
        zeros = tf.zeros([tf.shape(nothing)[0], width], rows.dtype)
        values = tf.gather(tf.concat([zeros, *outputs], axis=0), tf.math.invert_permutation(order))
        shape = tf.concat([tf.shape(selected), [width]], axis=0)
        return tf.ensure_shape(tf.reshape(values, shape), [None, selected.shape[-1], width])

    def _stacks(self, dtype: Any) -> list[Dense]:
        """All layers as tensors: a gather from a variable would make every later read a copy."""
        return [
            Dense(
                tf.cast(kernel, dtype), tf.cast(bias, dtype), tuple(map(tf.convert_to_tensor, norm))
            )
            for kernel, bias, norm in zip(self.kernels, self.biases, self.norms, strict=True)
        ]

    def _effective(self, layers: Sequence[Dense]) -> Sequence[Dense]:
        """The layers to compute with, from those selected for some experts."""
        return layers

    def _logits(self, values: tf.Tensor) -> tf.Tensor:
        """[..., h] as they are, or the single logits [...]."""
        return values if self.hidden_output or self.num_outputs > 1 else values[..., 0]

    def _tower(
        self,
        hidden: tf.Tensor,
        layers: Sequence[Dense],
        training: bool,
        stream: int = 0,
    ) -> tf.Tensor:
        for depth, (kernel, bias, norm) in enumerate(self._effective(layers)):
            hidden = tf.matmul(hidden, kernel)
            # For a single tower TensorFlow fuses product, bias and activation.
            hidden = tf.nn.bias_add(hidden, bias) if len(bias.shape) == 1 else hidden + bias
            if self.hidden_output or depth < len(layers) - 1:
                if norm:
                    hidden = normalize(hidden, *norm)
                hidden = self.activation(hidden)
                if training and self.dropout > 0:
                    hidden = tf.nn.dropout(hidden, self.dropout, seed=self._draw(depth, stream))
        return hidden

    def _draw(self, depth: int, stream: int) -> int | None:
        """A seed for each draw, so that experts don't drop the same units of the same rows."""
        return None if self.seed is None else self.seed + depth * self.num_experts + stream
