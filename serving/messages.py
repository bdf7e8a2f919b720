"""TensorFlow Serving's messages, as far as a client needs them, without TensorFlow.

`tensorflow_serving.apis` imports all of TensorFlow. The messages here come from `protos/ranking.proto`,
whose wire format is the same, and live in a pool of descriptors of their own: protobuf's default pool takes
each full name once, so there they would clash with the originals as soon as both are imported. For the
same reason neither's messages can be assigned to the other's; bytes can be passed.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tensorflow.serving"


def _read_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    data = (files(__package__) / "protos" / "ranking.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


POOL = _read_pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


PredictRequest = _message("PredictRequest")
PredictResponse = _message("PredictResponse")
GetModelMetadataRequest = _message("GetModelMetadataRequest")
GetModelMetadataResponse = _message("GetModelMetadataResponse")
SignatureDefMap = _message("SignatureDefMap")
GetModelStatusRequest = _message("GetModelStatusRequest")
GetModelStatusResponse = _message("GetModelStatusResponse")

STATES: dict[int, str] = {
    number: value.name
    for number, value in POOL.FindEnumTypeByName(
        f"{_PACKAGE}.ModelVersionStatus.State"
    ).values_by_number.items()
}
"""The states of a version by their number in `ModelVersionStatus`."""

DATA_TYPES: dict[int, str] = {
    number: value.name.removeprefix("DT_").lower()
    for number, value in POOL.FindEnumTypeByName(f"{_PACKAGE}.DataType").values_by_number.items()
}
"""The types of tensors by their number: `float`, `string`, ..."""
