"""Expert towers: of the selected ones or of all, on valid items only."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, get_args

from tfr_moe._compat import tf
from tfr_moe.layers.expert_norm import GroupMoments, Moments, Norm, add_norm_weights, normalised
from tfr_moe.layers.grouping import DEFAULT_CAPACITY, fill_rows, group_rows, take_experts
from tfr_moe.layers.rows import choices_of_rows, put_rows, shapes_are_fixed, take_rows, where_valid
from tfr_moe.layers.stacks import Dense, glorot_uniform, picked

Dispatch = Literal["segments", "capacity"]


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ExpertTowers(tf.keras.layers.Layer):
    r"""N towers of the same form; each item passes through the S towers chosen for it.

    $$ E_i(X) = W_i^{(H)} a(\dots a(W_i^{(1)} X + b_i^{(1)}) \dots) + b_i^{(H)} $$

    with activation a after every hidden layer and a single linear output ("3 ReLU layers of sizes
    [1024, 512, 256] each", Xiao et al., section III-B). Padded items are dropped, the remaining
    (item, expert) pairs are sorted by expert, each expert runs once as a plain 2-D network over its
    segment, and the logits are put back in place: the cost is that of the selected experts on valid
    items, whatever N and the padding. A single list, as in most requests, needs no sorting: it passes
    through the weights of its experts. Weights are stacked in variables [N, in, out].

    That is `dispatch="segments"`. The sizes of segments depend on the gate: nothing for XLA to compile, and
    a GPU waits for them. With `dispatch="capacity"` all shapes follow from those of the input: rows stand in
    groups of `capacity` places of one expert each (`group_rows`), which pass through the towers by
    batched products. An expert has as many groups as it needs, so that nothing is left out however skewed
    the choice is; at most N groups are filled in part, and groups that the padding leaves unused are
    computed for nothing. Results and gradients are those of segments.

    Called without a choice the layer computes all N experts by batched products. With `hidden_output`
    an expert gives its last hidden layer, activated, in place of a logit: the experts of mixtures that
    have further layers on top.

    Each tower's kernels start as glorot-uniform of their own 2-D shape, biases as zeros. With `norm` hidden
    layers are normalised before their activation, for each expert over its own valid items (see
    `normalised`); an idle expert that the adversarial loss draws counts the items it was drawn for.

    Args:
        num_experts: N.
        hidden_dims: widths of the hidden layers; empty for linear experts.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        hidden_output: whether an expert gives a vector, its last hidden layer.
        num_outputs: logits that an expert gives for an item.
        norm: `none`, `batch` or `layer`.
        dispatch: `segments` or `capacity`.
        capacity: places of a group.
        jit_compile: whether XLA compiles the towers in training, for `dispatch="capacity"`; they then
            take the valid items alone, filled up to one of few numbers. Dropout under XLA has no seed.

    Raises:
        ValueError: for no expert or output, a `hidden_output` without a hidden layer, an unknown
            `norm` or `dispatch`, a `capacity` below 1, or `jit_compile` with segments.

    Example:
        >>> towers = ExpertTowers(num_experts=4, hidden_dims=[8])
        >>> items = tf.random.normal([2, 5, 3])
        >>> chosen = tf.constant([[0, 3], [1, 2]])
        >>> towers(items, chosen, mask=tf.ones([2, 5], tf.bool)).shape
        TensorShape([2, 5, 2])
        >>> ExpertTowers(num_experts=4, hidden_dims=[8], hidden_output=True)(items).shape
        TensorShape([2, 5, 4, 8])
    """

    def __init__(
        self,
        num_experts: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        hidden_output: bool = False,
        num_outputs: int = 1,
        norm: Norm = "none",
        dispatch: Dispatch = "segments",
        capacity: int = DEFAULT_CAPACITY,
        jit_compile: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, value, known in (("norm", norm, Norm), ("dispatch", dispatch, Dispatch)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {get_args(known)}. Received: {value!r}")
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1. Received: capacity={capacity}")
        if jit_compile and dispatch != "capacity":
            raise ValueError(
                f"jit_compile needs dispatch='capacity'. Received: dispatch={dispatch!r}"
            )
        if num_experts < 1:
            raise ValueError(f"num_experts must be >= 1. Received: num_experts={num_experts}")
        if num_outputs < 1:
            raise ValueError(f"num_outputs must be >= 1. Received: num_outputs={num_outputs}")
        if hidden_output and not hidden_dims:
            raise ValueError(
                f"hidden_output needs a hidden layer. Received: hidden_dims={hidden_dims}"
            )
        self.num_experts = num_experts
        self.hidden_dims = tuple(hidden_dims)
        self.activation = tf.keras.activations.get(activation)
        self.dropout = dropout
        self.seed = seed
        self.hidden_output = hidden_output
        self.num_outputs = num_outputs
        self.norm = norm
        self.dispatch = dispatch
        self.capacity = capacity
        self.jit_compile = jit_compile

    def build(self, input_shape: Any) -> None:
        """Creates a stacked kernel and bias per layer, and what a normalisation needs."""
        last = [] if self.hidden_output else [self.num_outputs]
        widths = [int(input_shape[-1]), *self.hidden_dims, *last]
        self.kernels, self.biases, self.norms = [], [], []
        for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            self.kernels.append(
                self.add_weight(
                    f"kernel_{depth}",
                    [self.num_experts, fan_in, fan_out],
                    initializer=self._kernel_start(depth, fan_in, fan_out),
                )
            )
            self.biases.append(
                self.add_weight(f"bias_{depth}", [self.num_experts, fan_out], initializer="zeros")
            )
            kind = self.norm if depth < len(self.hidden_dims) else "none"
            self.norms.append(add_norm_weights(self, kind, depth, [self.num_experts, fan_out]))
        super().build(input_shape)

    def _kernel_start(self, depth: int, fan_in: int, fan_out: int) -> Any:
        """The initializer of the layer's kernels."""
        return glorot_uniform(fan_in, fan_out, None if self.seed is None else self.seed + depth)

    def call(
        self, inputs: Any, indices: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        """Computes the chosen experts, or all.

        Args:
            inputs: [B, L, n] input vectors X, or [B, n] without an axis for the list.
            indices: int32 experts, [B, S] for all items of a list or [B, L, S] for each item; None for
                all N. At -1 nothing is computed.
            mask: bool, the shape of `inputs` without its last axis, True at valid items; None takes
                every item as valid.
            training: whether dropout is active.

        Returns:
            [B, L, S] logits in the layer's compute dtype, with `hidden_output` [B, L, S, h], with several
            outputs [B, L, S, num_outputs]; S = N without `indices`. 0 at padded items and where the
            index is -1.
        """
        if indices is None:
            rows, positions = take_rows(inputs, mask)
            return put_rows(self._logits(self.every(rows, training)), positions, inputs)
        if shapes_are_fixed():
            return self._logits(self._compiled(inputs, indices))
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:-1], tf.bool)
        of_any = self._of_groups if self.dispatch == "capacity" else self._of_rows
        if training or len(indices.shape) == 3:
            return of_any(inputs, indices, mask, training)
        return tf.cond(
            tf.shape(indices)[0] == 1,
            lambda: self._of_one_list(inputs, indices[0], mask),
            lambda: of_any(inputs, indices, mask, training),
        )

    def _of_one_list(self, inputs: Any, chosen: Any, mask: Any) -> Any:
        """Items of a single list through its experts [S], whose cost does not depend on N at all."""
        rows, positions = take_rows(inputs, None if self.dispatch == "capacity" else mask)
        stacks = self._stacks(rows.dtype)
        outputs = []
        for slot in range(chosen.shape[0]):
            expert = tf.maximum(chosen[slot], 0)
            values = self._tower(rows, picked(stacks, operator.itemgetter(expert)), False)
            outputs.append(tf.where(chosen[slot] >= 0, values, tf.zeros([], rows.dtype)))
        restored = put_rows(self._logits(tf.stack(outputs, axis=1)), positions, inputs)
        return restored if positions is not None else where_valid(restored, mask)

    def _of_rows(self, inputs: Any, indices: Any, mask: Any, training: bool) -> Any:
        """Items of any number of lists, sorted by expert."""
        rows, positions = take_rows(inputs, mask)
        chosen = choices_of_rows(indices, positions)
        return put_rows(self._logits(self._dispatch(rows, chosen, training)), positions, inputs)

    def _of_groups(self, inputs: Any, indices: Any, mask: Any, training: bool) -> Any:
        """Items of any number of lists, in groups of a fixed size."""
        if training and self.jit_compile:
            rows, positions = take_rows(inputs, mask)
            filled, chosen = fill_rows(rows, choices_of_rows(indices, positions))
            values = self._compiled_grouped(filled, chosen)[: tf.shape(rows)[0]]
            return put_rows(self._logits(values), positions, inputs)
        if len(indices.shape) == 2:
            indices = tf.repeat(indices[:, tf.newaxis], tf.shape(mask)[1], axis=1)
        chosen = tf.where(mask[..., tf.newaxis], indices, -1)
        rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
        values = self._grouped(rows, tf.reshape(chosen, [-1, chosen.shape[-1]]), training)
        return put_rows(self._logits(values), None, inputs)

    def every(self, rows: Any, training: bool = False) -> Any:
        """All experts, each as a plain network: rows [T, n] of all, or [T, N, n] of each -> [T, N, h]."""
        if shapes_are_fixed():
            return self._compiled_every(rows)
        return self._every(rows, training)

    def _every(self, rows: Any, training: bool = False) -> Any:
        hidden = rows[tf.newaxis] if len(rows.shape) == 2 else tf.transpose(rows, [1, 0, 2])
        layers = picked(self._stacks(rows.dtype), lambda w: w, batched=True)
        moments = self._moments(training)
        values = self._tower(hidden, layers, training, moments)
        self._learn(moments)
        return tf.transpose(values, [1, 0, 2])

    def _gathered(self, inputs: Any, indices: Any) -> Any:
        """[B, L, n] through the chosen experts by the weights of each list, [B, L, S, h]."""
        if len(indices.shape) == 3:
            rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
            values = self._every(rows)
            values = tf.reshape(values, [*tf.unstack(tf.shape(inputs)[:-1]), *values.shape[1:]])
            taken = tf.gather(values, tf.maximum(indices, 0), axis=2, batch_dims=2)
        else:
            chosen = tf.maximum(indices, 0)
            stacks = self._stacks(inputs.dtype)
            layers = picked(stacks, lambda w: tf.gather(w, chosen), batched=True)
            hidden = tf.repeat(inputs[:, tf.newaxis], indices.shape[1], axis=1)
            taken = tf.transpose(self._tower(hidden, layers, False), [0, 2, 1, 3])
            indices = indices[:, tf.newaxis]
        return tf.where(indices[..., tf.newaxis] >= 0, taken, tf.zeros([], taken.dtype))

    @cached_property
    def _compiled(self) -> Any:
        return tf.function(self._gathered, jit_compile=True)

    @cached_property
    def _compiled_every(self) -> Any:
        return tf.function(self._every, jit_compile=True)

    @cached_property
    def _compiled_grouped(self) -> Any:
        return tf.function(
            lambda rows, chosen: self._grouped(rows, chosen, True),
            jit_compile=True,
            reduce_retracing=True,
        )

    def _dispatch(self, rows: Any, chosen: Any, training: bool) -> Any:
        """Rows [T, n] through their experts [T, S] -> [T, S, h]."""
        experts = tf.reshape(chosen, [-1])
        order = tf.argsort(experts, stable=True)
        # The first segment is that of index -1.
        counts = tf.math.bincount(
            experts + 1, minlength=self.num_experts + 1, maxlength=self.num_experts + 1
        )
        sorted_rows = tf.gather(rows, order // tf.shape(chosen)[1])
        nothing, *segments = tf.split(sorted_rows, counts, num=self.num_experts + 1)
        # unstack, because the gradient of W[e] would be a zero-padded [N, in, out] for each e.
        stacks = picked(self._stacks(rows.dtype), lambda w: tf.unstack(w, num=self.num_experts))
        moments = self._moments(training)
        outputs = [
            self._tower(
                segment, picked(stacks, operator.itemgetter(e)), training, moments, stream=e
            )
            for e, segment in enumerate(segments)
        ]
        self._learn(moments)
        width = self.kernels[-1].shape[-1]
        zeros = tf.zeros([tf.shape(nothing)[0], width], rows.dtype)
        values = tf.gather(tf.concat([zeros, *outputs], axis=0), tf.math.invert_permutation(order))
        shape = tf.concat([tf.shape(chosen), [width]], axis=0)
        return tf.ensure_shape(tf.reshape(values, shape), [None, chosen.shape[-1], width])

    def _grouped(self, rows: Any, chosen: Any, training: bool) -> Any:
        """The same as `_dispatch` by groups of a fixed size."""
        groups = group_rows(chosen, self.num_experts, self.capacity)
        # What stands at places without a row is computed, but never read.
        hidden = tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), groups.rows)
        layers = picked(
            self._stacks(rows.dtype), lambda w: take_experts(w, groups.experts), batched=True
        )
        valid = groups.rows < tf.shape(rows)[0]
        moments = self._moments(training, GroupMoments, groups.experts, valid, self.num_experts)
        values = self._tower(hidden, layers, training, moments)
        self._learn(moments)
        width = self.kernels[-1].shape[-1]
        values = tf.pad(tf.reshape(values, [-1, width]), [[0, 1], [0, 0]])
        return tf.gather(values, groups.places)

    def _stacks(self, dtype: Any) -> list[Dense]:
        """All layers as tensors: a gather from a variable would make every later read of it a copy."""
        return [
            Dense(
                tf.cast(kernel, dtype), tf.cast(bias, dtype), tuple(map(tf.convert_to_tensor, norm))
            )
            for kernel, bias, norm in zip(self.kernels, self.biases, self.norms, strict=True)
        ]

    def _effective(self, layers: Sequence[Dense]) -> Sequence[Dense]:
        """The layers to compute with, of those that were picked for some experts."""
        return layers

    def _moments(self, training: bool, kind: type[Moments] = Moments, *args: Any) -> Any:
        return kind(*args) if training and self.norm == "batch" else None

    def _learn(self, moments: Any) -> None:
        if moments is not None:
            moments.learn(self.norms)

    def _logits(self, values: Any) -> Any:
        """[..., h] as they are, or the single logits [...]."""
        return values if self.hidden_output or self.num_outputs > 1 else values[..., 0]

    def _tower(
        self,
        hidden: Any,
        layers: Sequence[Dense],
        training: bool,
        moments: Any = None,
        stream: int = 0,
    ) -> Any:
        for depth, (kernel, bias, norm) in enumerate(self._effective(layers)):
            hidden = tf.matmul(hidden, kernel)
            # Of a single tower TensorFlow fuses product, bias and activation.
            hidden = tf.nn.bias_add(hidden, bias) if len(bias.shape) == 1 else hidden + bias
            if self.hidden_output or depth < len(layers) - 1:
                if norm:
                    hidden = normalised(hidden, norm, moments, depth)
                hidden = self.activation(hidden)
                if training and self.dropout > 0:
                    hidden = tf.nn.dropout(hidden, self.dropout, seed=self._draw(depth, stream))
        return hidden

    def _draw(self, depth: int, stream: int) -> int | None:
        """A seed for each draw, so that experts don't drop the same units of the same rows."""
        return None if self.seed is None else self.seed + depth * self.num_experts + stream

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "hidden_dims": list(self.hidden_dims),
            "activation": tf.keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
            "hidden_output": self.hidden_output,
            "num_outputs": self.num_outputs,
            "norm": self.norm,
            "dispatch": self.dispatch,
            "capacity": self.capacity,
            "jit_compile": self.jit_compile,
        }
