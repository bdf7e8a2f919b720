"""Rows in groups of a fixed size, each of one expert: shapes that do not depend on who chose whom."""

from __future__ import annotations

from typing import Any, NamedTuple

from tfr_moe._compat import tf

DEFAULT_CAPACITY = 256


class Groups(NamedTuple):
    """Which row of which expert stands where.

    Attributes:
        rows: int32 [G, C], the number of the row at each place; T where there is none.
        places: int32 [T, S], the place of each choice, counted through all groups; G C where nothing was
            chosen.
        experts: int32 [G], whose group it is; in order.
    """

    rows: Any
    places: Any
    experts: Any


def group_rows(chosen: Any, num_experts: int, capacity: int = DEFAULT_CAPACITY) -> Groups:
    r"""Puts T rows with S choices each in groups of C places, every group of a single expert.

    An expert with c rows has ceil(c / C) groups, so that none is ever too small and no row is left out,
    however the rows are spread. There are always

    $$ G = \min\left( TS,\; \lfloor (TS - N) / C \rfloor + N \right) $$

    groups, the most that can be needed: all shapes follow from those of `chosen`, as XLA wants it. Groups
    that are not needed stay empty.

    Args:
        chosen: int32 [T, S] experts; -1 chooses nothing.
        num_experts: N.
        capacity: C; of fewer choices in all, their number is taken.

    Example:
        >>> groups = group_rows(tf.constant([[1], [0], [1], [1], [-1]]), num_experts=2, capacity=2)
        >>> groups.rows.numpy().tolist()  # row 1 alone with expert 0; rows 0, 2 and 3 with expert 1
        [[1, 5], [0, 2], [3, 5]]
        >>> groups.places.numpy().ravel().tolist()
        [2, 0, 3, 4, 6]
        >>> groups.experts.numpy().tolist()
        [0, 1, 1]
    """
    num_rows, slots = tf.shape(chosen)[0], tf.shape(chosen)[1]
    pairs = num_rows * slots
    capacity = tf.maximum(tf.minimum(capacity, pairs), 1)
    num_groups = tf.minimum(pairs, tf.maximum(pairs - num_experts, 0) // capacity + num_experts)
    flat = tf.reshape(chosen, [-1])
    # What chose nothing comes last.
    keys = tf.where(flat < 0, num_experts, flat)
    order = tf.argsort(keys, stable=True)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(keys), keys, num_experts + 1)
    needed = -(-counts[:-1] // capacity)
    first = tf.concat([tf.cumsum(needed, exclusive=True), [num_groups]], 0)
    sorted_keys = tf.gather(keys, order)
    rank = tf.range(pairs) - tf.gather(tf.cumsum(counts, exclusive=True), sorted_keys)
    nowhere = num_groups * capacity
    # Groups of an expert are neighbours, so that its rows stand one after another.
    place = tf.where(
        sorted_keys < num_experts, tf.gather(first, sorted_keys) * capacity + rank, nowhere
    )
    # One is added because places without a row are filled with zeros.
    taken = tf.math.unsorted_segment_sum(order // slots + 1, place, nowhere + 1)[:-1]
    rows = tf.where(taken > 0, taken - 1, num_rows)
    ends = tf.cumsum(needed)
    owner = tf.reduce_sum(tf.cast(tf.range(num_groups)[:, tf.newaxis] >= ends, tf.int32), axis=1)
    return Groups(
        tf.reshape(rows, [num_groups, capacity]),
        tf.reshape(tf.gather(place, tf.math.invert_permutation(order)), [num_rows, slots]),
        tf.minimum(owner, num_experts - 1),
    )


def take_experts(weights: Any, experts: Any) -> Any:
    """Weights [N, ...] of the groups' experts [G], with a dense gradient.

    The gradient of `tf.gather` would be slices, which an optimizer takes for rows of an embedding.

    Example:
        >>> take_experts(tf.constant([[1.0], [2.0]]), tf.constant([0, 1, 1])).numpy().ravel().tolist()
        [1.0, 2.0, 2.0]
    """

    @tf.custom_gradient
    def take(stacked: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return tf.math.unsorted_segment_sum(upstream, experts, stacked.shape[0])

        return tf.gather(stacked, experts), gradient

    return take(weights)


def fill_rows(rows: Any, chosen: Any) -> tuple[Any, Any]:
    """Adds rows that choose nothing, up to one of few numbers of rows: few programs to compile.

    The numbers are 64, 128, ... 1,024, then eight between each power of two and the next: up to an eighth
    is added to what is longer than that.

    Args:
        rows: [T, n].
        chosen: int32 [T, S].

    Returns:
        Both, longer.

    Example:
        >>> rows, chosen = fill_rows(tf.ones([1100, 2]), tf.zeros([1100, 3], tf.int32))
        >>> rows.shape, chosen.shape, int(chosen[1100, 0])
        (TensorShape([1152, 2]), TensorShape([1152, 3]), -1)
    """
    count = tf.shape(rows)[0]
    octave = tf.math.log(tf.cast(tf.maximum(count, 1), tf.float64)) / tf.math.log(
        tf.constant(2.0, tf.float64)
    )
    step = 2 ** tf.maximum(tf.cast(tf.floor(octave), tf.int32) - 3, 6)
    added = tf.maximum(-(-count // step), 1) * step - count
    return (
        tf.pad(rows, [[0, added], [0, 0]]),
        tf.pad(chosen, [[0, added], [0, 0]], constant_values=-1),
    )
