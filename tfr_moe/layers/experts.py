"""Towers of valid items: those of the selected experts, of all experts, or a single one."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, in_one_piece, seeded_initializer
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import (
    DEFAULT_CAPACITY,
    Dense,
    gather_rows,
    group_rows,
    put_rows,
    select_weights,
    take_rows,
    where_valid,
)
from tfr_moe.layers.shapes import sizes

Dispatch = Literal["auto", "sorted", "grouped"]
TOWER = (
    *("hidden_dims", "activation", "dropout"),
    *("kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer"),
)
"""Arguments of `ExpertTowers` that layers with towers have too."""


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertTowers(ConfiguredLayer):
    r"""N towers of the same shape; each item passes through the S towers selected for it.

    $$ E_i(X) = W_i^{(H)} a(\dots a(W_i^{(1)} X + b_i^{(1)}) \dots) + b_i^{(H)} $$

    with activation a after every hidden layer and a single linear output ("3 ReLU layers of sizes
    [1024, 512, 256] each", Xiao et al., section III-B). Weights are stacked in variables [N, in,
    out]. The cost is that of the selected experts on valid items, whatever N and the padding. A
    single list, as in most requests, passes through the weights of its experts directly. A batch is
    dispatched `sorted` by expert, `grouped` in fixed shapes, as XLA needs, or, with `auto`, by what
    suits the machine; see docs/performance.md#dispatch-xla-and-gpus. Results and gradients are the
    same.

    Called without `indices` the layer computes all N experts by batched products, and a single one
    as a plain network.

    Args:
        num_experts: N.
        hidden_dims: widths of the hidden layers; empty for linear experts.
        hidden_output: whether an expert returns its last hidden layer, activated, in place of a
            logit, for mixtures with further layers on top.
        num_outputs: logits that an expert gives for an item.
        capacity: slots of a group.
        kernel_initializer: of each expert's kernels; fans are those of a single expert.

    Raises:
        ValueError: for an invalid argument, or inputs of the wrong shape.

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
        dispatch: Dispatch = "auto",
        capacity: int = DEFAULT_CAPACITY,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        if dispatch not in get_args(Dispatch):
            raise ValueError(
                f"dispatch must be one of {get_args(Dispatch)}. Received: dispatch={dispatch!r}"
            )
        for name in ("capacity", "num_experts", "num_outputs"):
            if (count := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be >= 1. Received: {name}={count}")
        if hidden_output and not self.hidden_dims:
            raise ValueError("hidden_output needs a hidden layer. Received: hidden_dims=()")

    def build(self, input_shape: Any) -> None:
        """Creates a stacked kernel and bias per layer."""
        last = [] if self.hidden_output else [self.num_outputs]
        widths = [int(input_shape[-1]), *self.hidden_dims, *last]
        self.kernels, self.biases = [], []
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            shape = [self.num_experts, fan_in, fan_out]
            kernel, bias = self._add_layer(depth, shape, self._starts(depth))
            self.kernels.append(kernel)
            self.biases.append(bias)
        super().build(input_shape)

    def _add_layer(
        self, depth: int, shape: Sequence[int], starts: tuple[Any, Any], prefix: str = ""
    ) -> tuple[Any, Any]:
        """Creates the kernel [..., in, out] and the bias [..., out] of a layer."""
        kernel = self.add_weight(
            f"{prefix}kernel_{depth}", shape, None, starts[0], self.kernel_regularizer
        )
        bias = self.add_weight(
            f"{prefix}bias_{depth}",
            [*shape[:-2], shape[-1]],
            None,
            starts[1],
            self.bias_regularizer,
        )
        return kernel, bias

    def _starts(self, depth: int) -> tuple[Any, Any]:
        """The initializers of the stacked kernels and biases of a layer."""
        seed = self.offset_seed(depth)
        kernel = seeded_initializer(self.kernel_initializer, seed, self.num_experts)
        bias = seeded_initializer(self.bias_initializer, self.offset_seed(500 + depth))
        return in_one_piece(kernel), bias

    def call(
        self,
        inputs: tf.Tensor,
        indices: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Computes the selected experts, or without `indices` all N, on the items in `mask`.

        Args:
            inputs: [B, L, n] input vectors X, or [B, n] without an axis for the list.
            indices: int32 experts, [B, S] for all items of a list or [B, L, S] for each item. At -1
                nothing is computed.
            mask: bool, the shape of `inputs` without its last axis; None takes every item as valid.

        Returns:
            Logits [B, L, S], with several outputs [B, L, S, num_outputs], with `hidden_output` [B,
            L, S, h], in the layer's compute dtype; 0 at padded items and where the index is -1.
        """
        valid = valid_items(inputs, mask, ranks=(2, 3))
        if indices is None:
            rows, positions = take_rows(inputs, mask)
            return put_rows(self._logits(self.all_experts(rows, training)), positions, inputs)
        of_lists, of_items = [inputs.shape[0], None], [*inputs.shape[:-1], None]
        check_argument("indices", indices, "integers", of_lists, of_items)
        # In groups padded items are rows too: XLA needs shapes that do not depend on the mask.
        rows, positions = take_rows(inputs, None if self.dispatch == "grouped" else valid)

        def of_any() -> tf.Tensor:
            return self._of_rows(rows, _experts_of_rows(indices, valid, positions), training)

        if training or len(indices.shape) == 3:
            values = of_any()
        else:
            one = tf.equal(sizes(indices)[0], 1)
            values = tf.cond(one, lambda: self._of_one_list(rows, indices[0]), of_any)
        values = put_rows(self._logits(values), positions, inputs)
        return values if positions is not None else where_valid(values, valid)

    def _of_one_list(self, rows: tf.Tensor, selected: tf.Tensor) -> tf.Tensor:
        """Rows of a single list through its experts [S]; the cost does not depend on N."""
        stacks = self._stacks(rows.dtype)
        experts = tf.maximum(selected, 0)
        num_slots = selected.shape[0]
        step = tf.ones([1], experts.dtype)
        outputs = []
        for start, stop in zip(
            tf.split(experts, num_slots), tf.split(experts + step, num_slots), strict=True
        ):
            # A gather would copy the weights, and `stacked[expert]` is six operations.
            slot = {"begin": start, "end": stop, "strides": step, "shrink_axis_mask": 1}
            layers = select_weights(stacks, functools.partial(tf.strided_slice, **slot))
            outputs.append(self._tower(rows, layers, False))
        computed = tf.reshape(selected >= 0, [1, num_slots, 1])
        return tf.where(computed, tf.stack(outputs, axis=1), tf.zeros([], rows.dtype))

    def _of_rows(self, rows: tf.Tensor, selected: tf.Tensor, training: bool) -> tf.Tensor:
        """Rows [T, n] through their experts [T, S] -> [T, S, h]."""
        on_gpu = self.dispatch == "auto" and tf.config.get_visible_devices("GPU")
        compute = self._grouped if on_gpu or self.dispatch == "grouped" else self._sorted
        return compute(rows, selected, training)

    def all_experts(self, rows: tf.Tensor, training: bool = False) -> tf.Tensor:
        """All experts: rows [T, n] shared by all or [T, N, n] one per expert -> [T, N, h]."""
        if self.num_experts == 1:
            only = select_weights(self._stacks(rows.dtype), lambda w: tf.squeeze(w, axis=0))
            hidden = rows if len(rows.shape) == 2 else tf.squeeze(rows, axis=1)
            return tf.expand_dims(self._tower(hidden, only, training), axis=1)
        shared = len(rows.shape) == 2
        hidden = tf.expand_dims(rows, axis=0) if shared else tf.transpose(rows, [1, 0, 2])
        layers = select_weights(self._stacks(rows.dtype), lambda w: w, batched=True)
        return tf.transpose(self._tower(hidden, layers, training), [1, 0, 2])

    def _sorted(self, rows: tf.Tensor, selected: tf.Tensor, training: bool) -> tf.Tensor:
        """Rows [T, n] through their experts [T, S] -> [T, S, h], sorted by expert."""
        experts = tf.reshape(selected, [-1])
        # Ascending, since equal values keep their order.
        order = tf.math.top_k(-experts, tf.size(experts)).indices
        # The first segment is that of index -1.
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(experts), experts + 1, self.num_experts + 1
        )
        num_slots = sizes(selected)[1]
        sorted_rows = tf.gather(rows, order // num_slots)
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
        zeros = tf.zeros([sizes(nothing)[0], width], rows.dtype)
        values = tf.concat([zeros, *outputs], axis=0)
        values = gather_rows(values, tf.math.invert_permutation(order))
        return tf.reshape(values, [-1, num_slots, width])

    def _grouped(self, rows: tf.Tensor, selected: tf.Tensor, training: bool) -> tf.Tensor:
        """Rows [T, n] through their experts [T, S] -> [T, S, h], in groups of a fixed size."""
        groups = group_rows(selected, self.num_experts, self.capacity)
        # Empty slots are computed, but never read.
        hidden = tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), groups.rows)
        layers = select_weights(
            self._stacks(rows.dtype), lambda w: gather_rows(w, groups.experts), batched=True
        )
        values = self._tower(hidden, layers, training)
        width = self.kernels[-1].shape[-1]
        values = tf.pad(tf.reshape(values, [-1, width]), [[0, 1], [0, 0]])
        return tf.gather(values, groups.slots)

    def _stacks(self, dtype: Any) -> list[Dense]:
        """All layers as tensors: a gather from a variable would make every later read a copy."""
        return [
            Dense(tf.cast(kernel, dtype), tf.cast(bias, dtype))
            for kernel, bias in zip(self.kernels, self.biases, strict=True)
        ]

    def _effective(self, layers: Sequence[Dense]) -> Sequence[Dense]:
        """The layers to compute with, from those selected for some experts."""
        return layers

    def _logits(self, values: tf.Tensor) -> tf.Tensor:
        """[..., h] as they are, or the single logits [...]."""
        return values if self.hidden_output or self.num_outputs > 1 else tf.squeeze(values, -1)

    def _tower(
        self,
        hidden: tf.Tensor,
        layers: Sequence[Dense],
        training: bool,
        stream: int = 0,
    ) -> tf.Tensor:
        """Rows through layers; experts with another `stream` drop other units of the same rows."""
        for depth, (kernel, bias) in enumerate(self._effective(layers)):
            hidden = tf.matmul(hidden, kernel)
            # For a single tower TensorFlow fuses product, bias and activation.
            hidden = tf.nn.bias_add(hidden, bias) if len(bias.shape) == 1 else hidden + bias
            if self.hidden_output or depth < len(layers) - 1:
                hidden = self.activation(hidden)
                if training and self.dropout > 0:
                    seed = self.offset_seed(depth * self.num_experts + stream)
                    hidden = tf.nn.dropout(hidden, self.dropout, seed=seed)
        return hidden


def _experts_of_rows(indices: tf.Tensor, mask: tf.Tensor, positions: Any) -> tf.Tensor:
    """The experts [T, S] of the rows of `take_rows`; -1 for a padded item that is a row."""
    if positions is not None:
        if len(indices.shape) == 3:
            return tf.gather_nd(indices, positions)
        return tf.gather(indices, tf.unstack(positions, axis=1)[0])
    indices = tf.cast(indices, tf.int64)
    if len(indices.shape) == len(mask.shape):
        indices = tf.tile(tf.expand_dims(indices, axis=1), [1, sizes(mask)[1], 1])
    selected = tf.where(tf.expand_dims(mask, axis=-1), indices, tf.constant(-1, tf.int64))
    return tf.reshape(selected, [-1, selected.shape[-1]])


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ItemTower(ConfiguredLayer):
    """Scores each valid item by one tower, "the same network structure" as a single expert.

    Arguments are those of `ExpertTowers`.

    Example:
        >>> ItemTower([8])(tf.ones([2, 3, 5]), mask=tf.ones([2, 3], tf.bool)).shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        names = (*TOWER, "num_outputs", "seed")
        self.tower = ExpertTowers(
            1, **self.arguments(*names), name="tower", dtype=self.dtype_policy
        )

    def call(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """Items [B, L, n] -> float32 logits [B, L], with several outputs [B, L, num_outputs].

        Logits are 0 outside of `mask`, bool [B, L]; None takes every item as valid.
        """
        valid_items(inputs, mask)
        logits = self.tower(inputs, mask=mask, training=training)
        return tf.cast(tf.squeeze(logits, axis=2), tf.float32)
