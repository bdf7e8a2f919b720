"""Items to experts and back: rows of valid items, groups per expert, and stacked weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.layers.shapes import sizes

DEFAULT_CAPACITY = 256


def take_rows(inputs: tf.Tensor, mask: Any = None) -> tuple[tf.Tensor, Any]:
    """Selects the valid items of a batch [..., n], so that padding is not computed.

    Returns the rows [T, n] and their positions, int32 [T, number of leading axes]. Without a mask
    all items are rows, and None takes the place of the positions.
    """
    if mask is None:
        return tf.reshape(inputs, [-1, inputs.shape[-1]]), None
    positions = tf.cast(tf.where(mask), tf.int32)
    return tf.gather_nd(inputs, positions), positions


def put_rows(values: tf.Tensor, positions: Any, inputs: tf.Tensor) -> tf.Tensor:
    """The inverse of `take_rows`: values [T, ...] at the leading axes of `inputs`, else 0."""
    shape = [*sizes(inputs)[:-1], *sizes(values)[1:]]
    if positions is None:
        return tf.reshape(values, shape)
    return tf.scatter_nd(positions, values, shape)


def gather_rows(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """The rows of values [N, ...] at some indices, with a gradient that is a tensor, not slices.

    An optimizer would treat slices as embedding rows, and TensorFlow's concatenation would search
    them once for each of its parts. The gradient is dense because the values are reshaped: a custom
    gradient would do it too, but TensorFlow keeps the graph of each for as long as the process
    lives, 24 MB for each trial of a sweep.
    """
    return tf.gather(tf.reshape(values, tf.shape(values)), indices)


def where_valid(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Values [B, L, ...] or [B, ...] with 0 at padded items, NaN included."""
    for _ in range(len(values.shape) - len(mask.shape)):
        mask = tf.expand_dims(mask, axis=-1)
    return tf.where(mask, values, tf.zeros([], values.dtype))


class ExpertGroups(NamedTuple):
    """Rows in groups of one expert each; see `group_rows`.

    Attributes:
        rows: int64 [G, C], the row in each slot of each group; T in an empty slot.
        slots: int64 [T, S], the slot of each selected expert, counted through all groups; G C where
            nothing is selected.
        experts: int64 [G], the expert of each group, ascending.
    """

    rows: tf.Tensor
    slots: tf.Tensor
    experts: tf.Tensor


def group_rows(
    selected: tf.Tensor, num_experts: int, capacity: int = DEFAULT_CAPACITY
) -> ExpertGroups:
    r"""Puts T rows with S experts each into groups of C slots, every group of one expert.

    An expert with c rows has ceil(c / C) groups, so no row is dropped, however the rows are
    distributed. There are always

    $$ G = \min\left( TS,\; \lfloor (TS - N) / C \rfloor + N \right) $$

    groups, the largest number that can be needed: all shapes follow from that of `selected`, as XLA
    requires. Unused groups stay empty.

    `selected` are int32 experts [T, S], -1 for none; `capacity` is C, cut to T S.

    Example:
        >>> selected = tf.constant([[1], [0], [1], [1], [-1]])
        >>> groups = group_rows(selected, num_experts=2, capacity=2)
        >>> groups.rows.numpy().tolist()  # row 1 with expert 0; rows 0, 2 and 3 with expert 1
        [[1, 5], [0, 2], [3, 5]]
        >>> groups.slots.numpy().ravel().tolist()
        [2, 0, 3, 4, 6]
        >>> groups.experts.numpy().tolist()
        [0, 1, 1]
    """
    num_rows, num_selected = tf.unstack(tf.shape(selected))
    pairs = num_rows * num_selected
    capacity = tf.maximum(tf.minimum(capacity, pairs), 1)
    num_groups = tf.minimum(pairs, tf.maximum(pairs - num_experts, 0) // capacity + num_experts)
    num_slots = num_groups * capacity
    # TensorFlow computes int32 on the host, even beside a GPU: that is right for shapes, while
    # int32 indices would be copied to the host and back.
    flat = tf.cast(tf.reshape(selected, [-1]), tf.int64)
    size, nowhere = tf.cast(capacity, tf.int64), tf.cast(num_slots, tf.int64)
    # -1 sorts last.
    keys = tf.where(flat < 0, tf.constant(num_experts, tf.int64), flat)
    order = tf.cast(tf.argsort(keys, stable=True), tf.int64)
    counts = _sums(tf.ones_like(keys), keys, num_experts + 1)
    needed = -(-counts[:-1] // size)
    starts = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(needed)], axis=0)
    sorted_keys = tf.gather(keys, order)
    rank = _numbers(pairs) - tf.gather(tf.cumsum(counts, exclusive=True), sorted_keys)
    # Groups of an expert are adjacent, so that its slots are consecutive.
    slot = tf.gather(starts, sorted_keys) * size + rank
    slot = tf.where(sorted_keys < num_experts, slot, nowhere)
    # 1 is added because empty slots are filled with zeros.
    filled = _sums(order // tf.cast(num_selected, tf.int64) + 1, slot, num_slots + 1)[:-1]
    rows = tf.where(filled > 0, filled - 1, tf.cast(num_rows, tf.int64))
    slots = _sums(slot, order, pairs)
    begun = tf.expand_dims(_numbers(num_groups), axis=1) >= starts[1:]
    owner = tf.reduce_sum(tf.cast(begun, tf.int64), axis=1)
    return ExpertGroups(
        tf.reshape(rows, [num_groups, capacity]),
        tf.reshape(slots, [num_rows, num_selected]),
        tf.minimum(owner, num_experts - 1),
    )


def _numbers(count: tf.Tensor) -> tf.Tensor:
    """0, 1, ... count - 1 in int64; made on the host from the host's count."""
    return tf.cast(tf.range(count), tf.int64)


def _sums(values: tf.Tensor, segments: tf.Tensor, count: Any) -> tf.Tensor:
    """Sums of int64 values by segment; GPUs have this kernel for int32 alone."""
    sums = tf.math.unsorted_segment_sum(tf.cast(values, tf.int32), segments, count)
    return tf.cast(sums, tf.int64)


class Dense(NamedTuple):
    """The kernel [..., in, out] and bias [..., out] of a dense layer, of one or several towers."""

    kernel: tf.Tensor
    bias: tf.Tensor


def select_weights(
    layers: Sequence[Dense], select: Callable[[Any], Any], batched: bool = False
) -> list[Dense]:
    """Selects weights of some towers from layers that are stacked in the first axis.

    With `batched` biases get an axis for the rows, [..., 1, out], as batched products need.
    """

    def vector(stacked: tf.Tensor) -> Any:
        return tf.expand_dims(select(stacked), axis=-2) if batched else select(stacked)

    return [Dense(select(kernel), vector(bias)) for kernel, bias in layers]
