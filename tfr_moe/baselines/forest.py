"""Trees of LightGBM and XGBoost as TensorFlow operations, so that they are exported and served."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf

_ZERO = 1e-35  # LightGBM takes numbers up to it for 0
_BITS = 32
_BLOCK = 4096  # rows at a time: each holds a node of every tree


class Node(NamedTuple):
    """A split of a tree, or a leaf.

    Attributes:
        value: the score of a leaf.
        children: where a row goes, left and right, in the library's own form; empty for a leaf.
        column: the column that a split looks at.
        threshold: numbers up to it go left.
        categories: in place of a threshold the categories that go left, from 0 up.
        missing: which numbers are missing: `nan`, `zero` (0 and NaN), `none` (NaN is 0).
        missing_left: whether a missing number goes left.
    """

    value: float = 0.0
    children: tuple[Any, ...] = ()
    column: int = 0
    threshold: float = math.inf
    categories: tuple[int, ...] | None = None
    missing: str = "nan"
    missing_left: bool = False


class Forest:
    """The sum of the leaves that a row reaches in all trees, times `scale` plus `offset`.

    All rows of a block walk down all trees at once, a level per step; a row that has reached a leaf
    stays there. `roots` are the trees in the library's own form, of which `read` returns the node.

    Example:
        >>> split = Node(children=(Node(-1.0), Node(2.0)), threshold=0.5)
        >>> Forest([split], read=lambda node: node)(tf.constant([[0.5], [0.6]])).numpy()
        array([-1.,  2.], dtype=float32)
    """

    def __init__(
        self,
        roots: Iterable[Any],
        read: Callable[[Any], Node],
        offset: float = 0.0,
        scale: float = 1.0,
    ):
        forms = list(roots)
        nodes, children, self.depth = _numbered(forms, read)
        words, starts = _bit_sets([node.categories for node in nodes])
        self._offset, self._scale = offset, scale
        self._num_trees = len(forms)
        self._children = children.astype(np.int32).reshape(-1)
        self._words, self._starts = words, starts
        # The thresholds of LightGBM are float64, between two float32 numbers of the training rows.
        self._thresholds = np.array([node.threshold for node in nodes], np.float64)
        self._values = np.array([node.value for node in nodes], np.float64)
        self._columns = np.array([node.column for node in nodes], np.int32)
        splits = [node for node in nodes if node.children]
        self._knows_missing = any(node.missing != "none" for node in splits)
        self._nan_missing = np.array([node.missing != "none" for node in nodes])
        self._zero_missing = np.array([node.missing == "zero" for node in nodes])
        self._missing_left = np.array([node.missing_left for node in nodes])

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows, float32 [T, columns] -> scores, float32 [T]."""
        count, columns = tf.unstack(tf.shape(rows))
        block = tf.clip_by_value(count, 1, _BLOCK)
        blocks = tf.maximum((count + block - 1) // block, 1)
        rows = tf.pad(rows, [[0, blocks * block - count], [0, 0]])
        rows = tf.reshape(rows, [blocks, block, columns])
        scores = tf.map_fn(
            self._scores, rows, fn_output_signature=tf.float32, parallel_iterations=1
        )
        return tf.reshape(scores, [-1])[:count]

    def _scores(self, rows: tf.Tensor) -> tf.Tensor:
        """The same for a block of rows."""
        rows = tf.cast(rows, tf.float64)
        if not self._knows_missing:
            rows = tf.where(tf.math.is_nan(rows), tf.zeros_like(rows), rows)
        size = tf.shape(rows)
        numbers = tf.reshape(rows, [-1]), tf.range(size[0])[:, tf.newaxis] * size[1]
        start = tf.tile([tf.range(self._num_trees)], [size[0], 1])
        (reached,) = tf.while_loop(
            lambda _: True,
            lambda at: (self._step(*numbers, at),),
            (start,),
            maximum_iterations=self.depth,
        )
        total = tf.reduce_sum(tf.gather(self._values, reached), axis=1)
        return tf.cast(total * self._scale + self._offset, tf.float32)

    def _step(self, numbers: tf.Tensor, firsts: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        """The nodes [T, trees] to which rows go from nodes `at`; `firsts` are where rows begin."""
        value = tf.gather(numbers, firsts + tf.gather(self._columns, at))
        if self._knows_missing:
            as_zero = tf.math.is_nan(value) & ~tf.gather(self._nan_missing, at)
            value = tf.where(as_zero, tf.zeros_like(value), value)
        left = value <= tf.gather(self._thresholds, at)
        if len(self._words):
            starts = tf.gather(self._starts, at)
            left = tf.where(starts[..., 0] < 0, left, self._in_set(value, starts))
        if self._knows_missing:
            zero = tf.gather(self._zero_missing, at) & (tf.abs(value) <= _ZERO)
            missing = tf.math.is_nan(value) | zero
            left = tf.where(missing, tf.gather(self._missing_left, at), left)
        return tf.gather(self._children, 2 * at + tf.cast(~left, tf.int32))

    def _in_set(self, value: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Whether a category is in the bit set from starts[..., 0] to starts[..., 1]."""
        last = starts[..., 1] - starts[..., 0]
        # An index of -1 is in no set.
        known = (value > -1.0) & (value < tf.cast(last * _BITS, value.dtype))
        category = tf.cast(tf.where(known, value, 0.0), tf.int32)
        word = tf.gather(self._words, tf.maximum(starts[..., 0], 0) + category // _BITS)
        bit = tf.bitwise.right_shift(word, tf.cast(category % _BITS, tf.uint32))
        return known & (tf.bitwise.bitwise_and(bit, tf.constant(1, tf.uint32)) > 0)


def _numbered(
    roots: Sequence[Any], read: Callable[[Any], Node]
) -> tuple[list[Node], np.ndarray, int]:
    """The nodes by level, their children [nodes, 2] (a leaf is its own child), and the depth."""
    forms = list(roots)
    levels = [0] * len(forms)
    nodes: list[Node] = []
    children: list[tuple[int, int]] = []
    for number, form in enumerate(forms):  # which grows
        node = read(form)
        nodes.append(node)
        if node.children:
            children.append((len(forms), len(forms) + 1))
            forms += node.children
            levels += [levels[number] + 1] * 2
        else:
            children.append((number, number))
    return nodes, np.array(children).reshape(-1, 2), max(levels, default=0)


def _bit_sets(sets: Sequence[tuple[int, ...] | None]) -> tuple[np.ndarray, np.ndarray]:
    """Words of 32 bits, set after set, and the first and the next word of each; -1 for None."""
    words: list[np.ndarray] = []
    bounds = np.full((len(sets), 2), -1, np.int32)
    end = 0
    for number, members in enumerate(sets):
        if members is not None:
            size = max(members, default=0) // _BITS + 1
            bits = np.zeros(size * _BITS, bool)
            bits[list(members)] = True
            words.append(np.packbits(bits, bitorder="little").view("<u4"))
            bounds[number] = end, end + size
            end += size
    return np.concatenate(words) if words else np.zeros(0, np.uint32), bounds
