"""TensorFlow Serving's messages, without TensorFlow, which `tensorflow_serving.apis` imports.

They come from `protos/ranking.proto`, whose wire format is the same, and are in a descriptor pool
of their own, since the default one takes each full name once. Messages of the two pools cannot be
assigned to each other; serialized bytes can be passed.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TENSOR_TYPES = {
    1: ("float_val", np.dtype(np.float32)),
    3: ("int_val", np.dtype(np.int32)),
    7: ("string_val", np.dtype(object)),
}
"""By the number of a type in `TensorProto`: the field with the single values, and NumPy's type."""


def _read_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    data = (files("tfr_moe.serving") / "protos" / "ranking.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


POOL = _read_pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"tensorflow.serving.{name}"))


PredictRequest = _message("PredictRequest")
PredictResponse = _message("PredictResponse")
GetModelStatusRequest = _message("GetModelStatusRequest")
PredictionLog = _message("PredictionLog")
PredictLog = _message("PredictLog")
GetModelStatusResponse = _message("GetModelStatusResponse")

STATES = {number: name for name, number in _message("ModelVersionStatus").State.items()}
"""The states of a version by their number in `ModelVersionStatus`."""


def fill_tensor(proto: Any, array: np.ndarray) -> None:
    """Writes an array of float32, int32 or strings into a `TensorProto`, value by value."""
    for number, (field, dtype) in TENSOR_TYPES.items():
        if array.dtype == dtype:
            proto.dtype = number
            for size in array.shape:
                proto.tensor_shape.dim.add().size = size
            getattr(proto, field).extend(array.ravel().tolist())
            return
    raise TypeError(f"tensors of {array.dtype} are not supported")
