"""Tensors in TensorFlow Serving's protos, without TensorFlow.

The functions take the protos of `messages` and those of tensorflow-serving-api alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# TensorProto: number of the type, the field that holds its values one by one, NumPy's type.
_FLOAT = (1, "float_val", np.dtype(np.float32))
_INT = (3, "int_val", np.dtype(np.int32))
_STRING = (7, "string_val", np.dtype(object))
_TYPES = (_FLOAT, _INT, _STRING)


def predict_request(model: str, signature: str, lists: Sequence[bytes], kind: Any = None) -> Any:
    """A `PredictRequest` for serialized `ExampleListWithContext`s.

    It is that of tensorflow-serving-api, which loads TensorFlow, or another of the same fields as `kind`.
    """
    if kind is None:
        from tensorflow_serving.apis import predict_pb2

        kind = predict_pb2.PredictRequest
    request = kind()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    fill_tensor(request.inputs["inputs"], np.array(lists, object))
    return request


def fill_tensor(proto: Any, array: np.ndarray) -> None:
    """Writes an array into a `TensorProto`, value by value as TensorFlow Serving does.

    Raises:
        TypeError: for another type than float32, int32 and strings (as objects).
    """
    for number, field, dtype in _TYPES:
        if array.dtype == dtype:
            proto.dtype = number
            for size in array.shape:
                proto.tensor_shape.dim.add().size = size
            getattr(proto, field).extend(array.ravel().tolist())
            return
    raise TypeError(f"tensors of {array.dtype} are not used in serving")


def to_array(proto: Any) -> np.ndarray:
    """Reads a `TensorProto` of one of those types, in either form in which servers send it.

    Raises:
        TypeError: for another type.
    """
    known = [kind for kind in _TYPES if kind[0] == proto.dtype]
    if not known:
        raise TypeError(f"tensors of type {proto.dtype} are not used in serving")
    _, field, dtype = known[0]
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    values = np.array(getattr(proto, field)[:], dtype)
    missing = math.prod(shape) - len(values)
    if missing > 0:  # equal values at the end may be sent once
        values = np.concatenate([values, np.repeat(values[-1:], missing)])
    return values.reshape(shape)


def serialized_examples(given: Any) -> list[bytes]:
    """The items of an `Input` as serialized `tf.train.Example`s, each merged with its context."""
    kind = given.WhichOneof("kind")
    if kind is None:
        return []
    items = getattr(given, kind)
    # Two serialized protos, one after the other, are the two merged.
    context = items.context.SerializeToString() if kind == "example_list_with_context" else b""
    return [context + example.SerializeToString() for example in items.examples]
