"""Arguments of layers: the default mask, and checks in one sentence with what was received.

Only what is known of a shape is compared, so that batches and lists of unknown size pass.
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Returns the widths of hidden layers as a tuple, or raises a ValueError."""
    dims = tuple(widths) if hasattr(widths, "__iter__") else None
    if dims is None or not all(hasattr(dim, "__index__") and dim >= 1 for dim in dims):
        raise ValueError(
            f"{name} must be a sequence of positive integers, such as [64, 32]. "
            f"Received: {name}={widths!r}"
        )
    return tuple(int(dim) for dim in dims)


def check_counts(**counts: int) -> None:
    """Raises a ValueError for the first argument, by its name, that is below 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be >= 1. Received: {name}={count}")


def check_items(inputs: Any, mask: Any = None, ranks: tuple[int, ...] = (3,)) -> None:
    """Raises a ValueError unless inputs are float [batch, list, features] with a bool mask.

    With 2 in `ranks` inputs may be [batch, features]; a mask of None is not checked.
    """
    shape = _shape(inputs)
    if shape.rank is not None and shape.rank not in ranks:
        wanted = {2: "[batch, features]", 3: "[batch, list, features]"}
        raise ValueError(
            f"inputs must have shape {' or '.join(wanted[rank] for rank in ranks)}. "
            f"Received: inputs of shape {shape}"
        )
    if not tf.as_dtype(inputs.dtype).is_floating:
        raise ValueError(f"inputs must be float vectors. Received: inputs of type {_type(inputs)}")
    if mask is None:
        return
    if not _shape(mask).is_compatible_with(shape[:-1]) or tf.as_dtype(mask.dtype) != tf.bool:
        raise ValueError(
            f"mask must be bool of shape {shape[:-1]}, the shape of inputs without its last axis. "
            f"Received: mask of type {_type(mask)} and shape {_shape(mask)}"
        )


def full_mask(inputs: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The mask, or one that takes every item of `inputs` [..., n] as valid."""
    return tf.ones(tf.shape(inputs)[:-1], tf.bool) if mask is None else mask


def check_vectors(name: str, vectors: Any, inputs: Any, by_item: bool = False) -> None:
    """Raises a ValueError unless `vectors` are float, one for each list of `inputs`, [batch, n].

    With `by_item` there may be one for each item, [batch, list, n].
    """
    shape, items = _shape(vectors), _shape(inputs)
    wanted = [[items[0], None]] + ([[*items[:2], None]] if by_item else [])
    if not tf.as_dtype(vectors.dtype).is_floating:
        raise ValueError(
            f"{name} must be float vectors, such as embeddings of category IDs. "
            f"Received: {name} of type {_type(vectors)} and shape {shape}"
        )
    if not any(shape.is_compatible_with(one) for one in wanted):
        raise ValueError(
            f"{name} must have shape {' or '.join(str(tf.TensorShape(one)) for one in wanted)} "
            f"for inputs of shape {items}. Received: {name} of shape {shape}"
        )


def check_ids(name: str, ids: Any, inputs: Any, by_list: bool = True) -> None:
    """Raises a ValueError unless `ids` are integers, one for each list of `inputs`: [batch].

    Without `by_list` there are S for each list, [batch, S], or for each item.
    """
    shape, items = _shape(ids), _shape(inputs)
    wanted = [[items[0]]] if by_list else [[items[0], None], [*items[:-1], None]]
    if tf.as_dtype(ids.dtype).is_integer and any(shape.is_compatible_with(w) for w in wanted):
        return
    shapes = " or ".join(dict.fromkeys(str(tf.TensorShape(one)) for one in wanted))
    raise ValueError(
        f"{name} must be integers of shape {shapes} for inputs of shape {items}. "
        f"Received: {name} of type {_type(ids)} and shape {shape}"
    )


def _shape(value: Any) -> tf.TensorShape:
    return tf.TensorShape(value.shape)


def _type(value: Any) -> str:
    return str(tf.as_dtype(value.dtype).name)
