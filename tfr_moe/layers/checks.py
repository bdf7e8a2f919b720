"""Arguments of layers: the default mask, and checks in one sentence with what was received.

Only what is known of a shape is compared, so that batches and lists of unknown size pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tfr_moe._compat import tf
from tfr_moe.layers.shapes import sizes

Kind = Literal["float vectors", "integers"]


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Returns the widths of hidden layers as a tuple, or raises a ValueError."""
    dims = tuple(widths) if hasattr(widths, "__iter__") else None
    if dims is None or not all(hasattr(dim, "__index__") and dim >= 1 for dim in dims):
        raise ValueError(
            f"{name} must be a sequence of positive integers, such as [64, 32]. "
            f"Received: {name}={widths!r}"
        )
    return tuple(int(dim) for dim in dims)


def valid_items(inputs: Any, mask: Any = None, ranks: tuple[int, ...] = (3,)) -> tf.Tensor:
    """Returns the mask of the inputs, or for None one that takes every item as valid.

    Raises a ValueError unless inputs are float [batch, list, features] with a bool mask. With 2 in
    `ranks` inputs may be [batch, features].
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
        return tf.ones(sizes(inputs)[:-1], tf.bool)
    if not _shape(mask).is_compatible_with(shape[:-1]) or tf.as_dtype(mask.dtype) != tf.bool:
        raise ValueError(
            f"mask must be bool of shape {shape[:-1]}, the shape of inputs without its last axis. "
            f"Received: mask of type {_type(mask)} and shape {_shape(mask)}"
        )
    return mask


def check_scores(labels: tf.Tensor, scores: tf.Tensor, ranks: tuple[int, ...] = (2, 3)) -> None:
    """Raises a ValueError unless labels are [batch, list] and the scores have the same shape.

    With 3 in `ranks` scores may have several outputs for each item, [batch, list, outputs].
    """
    of_rank = labels.shape.rank in (2, None) and scores.shape.rank in (*ranks, None)
    if of_rank and labels.shape.is_compatible_with(scores.shape[:2]):
        return
    more = ", or [batch, list, outputs]" if 3 in ranks else ""
    raise ValueError(
        f"y_true must have shape [batch, list] and y_pred the same{more}. "
        f"Received: y_true of shape {labels.shape}, y_pred of shape {scores.shape}"
    )


def item_weights(sample_weight: Any, labels: tf.Tensor) -> tf.Tensor:
    """The weights of items [batch, list], float32, from those of items or lists; 1 if None.

    Raises a ValueError unless weights are [batch], [batch, 1] or have the shape of labels.
    """
    if sample_weight is None:
        return tf.ones_like(labels)
    weights = tf.cast(dense(sample_weight), tf.float32)
    size = labels.shape[:1]
    shapes = (size, size.concatenate(1), labels.shape)
    if not any(weights.shape.is_compatible_with(shape) for shape in shapes):
        raise ValueError(
            f"sample_weight must have shape {' or '.join(map(str, shapes))}. "
            f"Received: sample_weight of shape {weights.shape}"
        )
    weights = tf.expand_dims(weights, axis=1) if weights.shape.rank == 1 else weights
    return weights * tf.ones_like(labels)


def dense(values: Any) -> tf.Tensor:
    """The values as a tensor; raises a ValueError for ragged ones."""
    if isinstance(values, tf.RaggedTensor):
        raise ValueError("lists must be padded to one length. Received: a RaggedTensor")
    return tf.convert_to_tensor(values)


def check_argument(
    name: str, value: Any, kind: Kind, *shapes: Sequence[int | None] | tf.TensorShape
) -> None:
    """Raises a ValueError unless `value` is of the kind, and compatible with one of the shapes."""
    received = f"{name}=None"
    if value is not None:
        dtype = tf.as_dtype(value.dtype)
        of_kind = dtype.is_integer if kind == "integers" else dtype.is_floating
        if of_kind and any(_shape(value).is_compatible_with(shape) for shape in shapes):
            return
        received = f"{name} of type {dtype.name} and shape {_shape(value)}"
    allowed = " or ".join(dict.fromkeys(str(tf.TensorShape(shape)) for shape in shapes))
    raise ValueError(f"{name} must be {kind} of shape {allowed}. Received: {received}")


def _shape(value: Any) -> tf.TensorShape:
    if isinstance(value, tf.RaggedTensor):
        dense(value)  # raises
    return tf.TensorShape(value.shape)


def _type(value: Any) -> str:
    return str(tf.as_dtype(value.dtype).name)
