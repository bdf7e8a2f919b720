"""The valid items of a batch as rows, and values of the rows back in the places of the items."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tfr_moe._compat import tf

_fixed: ContextVar[bool] = ContextVar("fixed_shapes", default=False)


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """While a model is traced within it, no shape depends on the mask, as XLA needs it.

    Every place of a list is computed, padding too, and what stands at padded places of a result is
    arbitrary. `ExpertTowers` compile with XLA. For inference alone.

    Example:
        >>> with fixed_shapes():
        ...     rows, _ = take_rows(tf.ones([1, 2, 3]), tf.constant([[True, False]]))
        >>> rows.shape
        TensorShape([2, 3])
    """
    before = _fixed.set(True)
    try:
        yield
    finally:
        _fixed.reset(before)


def shapes_are_fixed() -> bool:
    """Whether the caller is within `fixed_shapes`."""
    return _fixed.get()


def take_rows(inputs: Any, mask: Any = None) -> tuple[Any, Any]:
    """Picks the valid items of a batch, so that padding is neither computed nor seen.

    Args:
        inputs: [..., n], such as [B, n] or [B, L, n].
        mask: bool [...], True at valid items; None takes all.

    Returns:
        The rows [T, n] and their places, int32 [T, number of leading axes], or None for all places.

    Example:
        >>> rows, places = take_rows(
        ...     tf.constant([[[1.0], [2.0]], [[3.0], [4.0]]]),
        ...     tf.constant([[True, False], [True, True]]),
        ... )
        >>> rows.numpy().ravel().tolist(), places.numpy().tolist()
        ([1.0, 3.0, 4.0], [[0, 0], [1, 0], [1, 1]])
    """
    if mask is None or shapes_are_fixed():
        return tf.reshape(inputs, [-1, inputs.shape[-1]]), None
    places = tf.cast(tf.where(mask), tf.int32)
    return tf.gather_nd(inputs, places), places


def put_rows(values: Any, places: Any, inputs: Any) -> Any:
    """Puts what was computed for the rows back in the places of the items.

    Args:
        values: [T, ...] by row.
        places: as `take_rows` returned them.
        inputs: what the rows were taken from, [..., n].

    Returns:
        [..., ...], the leading axes of `inputs`, then those of a value; 0 at padded items.
    """
    shape = tf.concat([tf.shape(inputs)[:-1], tf.shape(values)[1:]], axis=0)
    restored = tf.reshape(values, shape) if places is None else tf.scatter_nd(places, values, shape)
    return tf.ensure_shape(restored, [*inputs.shape[:-1], *values.shape[1:]])


def choices_of_rows(chosen: Any, places: Any) -> Any:
    """What was chosen for the rows, by list [B, S] or by item [B, L, S] -> [T, S].

    Args:
        chosen: for each list or item.
        places: as `take_rows` returned them, of items in lists.
    """
    if len(chosen.shape) == 2:
        return tf.gather(chosen, places[:, 0])
    return tf.gather_nd(chosen, places)


def where_valid(values: Any, mask: Any) -> Any:
    """Values [B, L, ...] with 0 at padded items, whatever stood there.

    Example:
        >>> where_valid(tf.constant([[5.0, 6.0]]), tf.constant([[True, False]])).numpy().tolist()
        [[5.0, 0.0]]
    """
    shape = tf.concat([tf.shape(mask), tf.ones([len(values.shape) - 2], tf.int32)], 0)
    return tf.where(tf.reshape(mask, shape), values, tf.zeros([], values.dtype))
