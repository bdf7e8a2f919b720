"""Expert towers: of the selected ones or of all, on valid items only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.rows import put_rows, shapes_are_fixed, take_rows


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

    Called without a choice the layer computes all N experts by batched products. With `hidden_output`
    an expert gives its last hidden layer, activated, in place of a logit: the experts of mixtures that
    have further layers on top.

    Each tower's kernels start as glorot-uniform of their own 2-D shape, biases as zeros.

    Args:
        num_experts: N.
        hidden_dims: widths of the hidden layers; empty for linear experts.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        hidden_output: whether an expert gives a vector, its last hidden layer.
        num_outputs: logits that an expert gives for an item.

    Raises:
        ValueError: for no expert or output, or a `hidden_output` without a hidden layer.

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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
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

    def build(self, input_shape: Any) -> None:
        """Creates a stacked kernel and bias per layer."""
        last = [] if self.hidden_output else [self.num_outputs]
        widths = [int(input_shape[-1]), *self.hidden_dims, *last]
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
        if training or len(indices.shape) == 3:
            return self._of_rows(inputs, indices, mask, training)
        return tf.cond(
            tf.shape(indices)[0] == 1,
            lambda: self._of_one_list(inputs, indices[0], mask),
            lambda: self._of_rows(inputs, indices, mask, training),
        )

    def _of_one_list(self, inputs: Any, chosen: Any, mask: Any) -> Any:
        """Items of a single list through its experts [S], whose cost does not depend on N at all."""
        rows, positions = take_rows(inputs, mask)
        kernels = [tf.convert_to_tensor(w) for w in self.kernels]
        biases = [tf.convert_to_tensor(b) for b in self.biases]
        outputs = []
        for slot in range(chosen.shape[0]):
            e = tf.maximum(chosen[slot], 0)
            own_kernels = [tf.cast(w[e], rows.dtype) for w in kernels]
            own_biases = [tf.cast(b[e], rows.dtype) for b in biases]
            values = self._tower(rows, own_kernels, own_biases, False)
            outputs.append(tf.where(chosen[slot] >= 0, values, tf.zeros([], rows.dtype)))
        return put_rows(self._logits(tf.stack(outputs, axis=1)), positions, inputs)

    def _of_rows(self, inputs: Any, indices: Any, mask: Any, training: bool) -> Any:
        """Items of any number of lists, sorted by expert."""
        rows, positions = take_rows(inputs, mask)
        chosen = (
            tf.gather(indices, positions[:, 0])
            if len(indices.shape) == 2
            else tf.gather_nd(indices, positions)
        )
        return put_rows(self._logits(self._dispatch(rows, chosen, training)), positions, inputs)

    def every(self, rows: Any, training: bool = False) -> Any:
        """All experts, each as a plain network: rows [T, n] of all, or [T, N, n] of each -> [T, N, h]."""
        if shapes_are_fixed():
            return self._compiled_every(rows)
        return self._every(rows, training)

    def _every(self, rows: Any, training: bool = False) -> Any:
        hidden = rows[tf.newaxis] if len(rows.shape) == 2 else tf.transpose(rows, [1, 0, 2])
        kernels = [tf.cast(w, rows.dtype) for w in self.kernels]
        biases = [tf.cast(b, rows.dtype)[:, tf.newaxis] for b in self.biases]
        return tf.transpose(self._tower(hidden, kernels, biases, training), [1, 0, 2])

    def _gathered(self, inputs: Any, indices: Any) -> Any:
        """[B, L, n] through the chosen experts by the weights of each list, [B, L, S, h]."""
        if len(indices.shape) == 3:
            rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
            values = self._every(rows)
            values = tf.reshape(values, [*tf.unstack(tf.shape(inputs)[:-1]), *values.shape[1:]])
            taken = tf.gather(values, tf.maximum(indices, 0), axis=2, batch_dims=2)
        else:
            chosen = tf.maximum(indices, 0)
            # A gather from the variable itself would make every later read of it a copy.
            kernels = [tf.gather(tf.cast(w, inputs.dtype), chosen) for w in self.kernels]
            biases = [tf.gather(tf.cast(b, inputs.dtype), chosen) for b in self.biases]
            hidden = tf.repeat(inputs[:, tf.newaxis], indices.shape[1], axis=1)
            biases = [bias[:, :, tf.newaxis] for bias in biases]
            taken = tf.transpose(self._tower(hidden, kernels, biases, False), [0, 2, 1, 3])
            indices = indices[:, tf.newaxis]
        return tf.where(indices[..., tf.newaxis] >= 0, taken, tf.zeros([], taken.dtype))

    @cached_property
    def _compiled(self) -> Any:
        return tf.function(self._gathered, jit_compile=True)

    @cached_property
    def _compiled_every(self) -> Any:
        return tf.function(self._every, jit_compile=True)

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
        kernels = [tf.unstack(tf.cast(w, rows.dtype), num=self.num_experts) for w in self.kernels]
        biases = [tf.unstack(tf.cast(b, rows.dtype), num=self.num_experts) for b in self.biases]
        outputs = [
            self._tower(segment, [w[e] for w in kernels], [b[e] for b in biases], training)
            for e, segment in enumerate(segments)
        ]
        width = self.kernels[-1].shape[-1]
        zeros = tf.zeros([tf.shape(nothing)[0], width], rows.dtype)
        values = tf.gather(tf.concat([zeros, *outputs], axis=0), tf.math.invert_permutation(order))
        shape = tf.concat([tf.shape(chosen), [width]], axis=0)
        return tf.ensure_shape(tf.reshape(values, shape), [None, chosen.shape[-1], width])

    def _logits(self, values: Any) -> Any:
        """[..., h] as they are, or the single logits [...]."""
        return values if self.hidden_output or self.num_outputs > 1 else values[..., 0]

    def _tower(self, hidden: Any, kernels: list[Any], biases: list[Any], training: bool) -> Any:
        for depth, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
            hidden = tf.matmul(hidden, kernel)
            # Of a single tower TensorFlow fuses product, bias and activation.
            hidden = tf.nn.bias_add(hidden, bias) if len(bias.shape) == 1 else hidden + bias
            if self.hidden_output or depth < len(kernels) - 1:
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
            "hidden_output": self.hidden_output,
            "num_outputs": self.num_outputs,
        }
