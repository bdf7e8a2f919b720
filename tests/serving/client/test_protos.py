"""The client's own messages beside those of tensorflow-serving-api."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    input_pb2,
    predict_pb2,
    prediction_log_pb2,
)

from tfr_moe._compat import tf
from tfr_moe.serving.client.protos import (
    POOL,
    STATES,
    TENSOR_TYPES,
    PredictRequest,
    fill_tensor,
)
from tfr_moe.serving.client.ranking import to_array

ORIGINALS = [
    predict_pb2.PredictRequest,
    predict_pb2.PredictResponse,
    get_model_metadata_pb2.GetModelMetadataRequest,
    get_model_metadata_pb2.GetModelMetadataResponse,
    get_model_metadata_pb2.SignatureDefMap,
    get_model_status_pb2.GetModelStatusRequest,
    get_model_status_pb2.GetModelStatusResponse,
    input_pb2.ExampleListWithContext,
    prediction_log_pb2.PredictionLog,
]

_ENUM_OR_INT = {FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32}  # the same on the wire


def many(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if repeated is None else repeated


def differences(ours: Descriptor, original: Descriptor) -> list[str]:
    """Fields, down to the innermost message, that are not on the wire what the original has."""
    result, seen, waiting = [], set(), [(ours, original)]
    while waiting:
        ours, original = waiting.pop()
        if ours.full_name in seen:
            continue
        seen.add(ours.full_name)
        for field in ours.fields:
            same = original.fields_by_name.get(field.name)
            if same is None or (
                (field.number, many(field)) != (same.number, many(same))
                or _ENUM_OR_INT.get(field.type, field.type)
                != _ENUM_OR_INT.get(same.type, same.type)
            ):
                result.append(f"{ours.full_name}.{field.name}")
            elif field.message_type is not None:
                waiting.append((field.message_type, same.message_type))
    return result


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_each_field_is_on_the_wire_what_the_original_is(original):
    name = original.DESCRIPTOR.name
    ours = POOL.FindMessageTypeByName(f"tensorflow.serving.{name}")
    assert differences(ours, original.DESCRIPTOR) == []


def test_another_number_type_or_name_is_a_difference():
    ours = POOL.FindMessageTypeByName("tensorflow.serving.PredictRequest")
    assert differences(ours, predict_pb2.PredictResponse.DESCRIPTOR) == [
        "tensorflow.serving.PredictRequest.model_spec",
        "tensorflow.serving.PredictRequest.inputs",
        "tensorflow.serving.PredictRequest.output_filter",
    ]


def test_enumerations_have_the_original_numbers():
    from tensorflow.core.framework import types_pb2

    states = get_model_status_pb2.ModelVersionStatus.State
    assert dict(zip(states.values(), states.keys(), strict=True)) == STATES
    enumeration = POOL.FindEnumTypeByName("tensorflow.serving.DataType")
    for number, value in enumeration.values_by_number.items():
        assert types_pb2.DataType.Name(number) == value.name
    for number, (_, dtype) in TENSOR_TYPES.items():
        assert np.dtype(tf.as_dtype(number).as_numpy_dtype) == dtype


def test_a_request_written_here_is_the_same_to_the_original():
    ours = PredictRequest(output_filter=["scores"])
    ours.model_spec.name = "shop"
    ours.model_spec.version.value = 3
    ours.inputs["inputs"].string_val.append(b"\x00\xff")
    theirs = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    assert theirs.model_spec.version.value == 3
    assert theirs.inputs["inputs"].string_val[:] == [b"\x00\xff"]
    assert PredictRequest.FromString(theirs.SerializeToString()) == ours


def test_the_descriptors_are_those_of_the_proto_file(repository: Path, tmp_path: Path):
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed")
    # Not in this process: protoc and TensorFlow each bring a protobuf of their own in C++.
    script = repository / "scripts" / "compile_protos.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "new.binpb")], check=True)
    committed = repository / "serving" / "protos" / "ranking.binpb"
    assert (tmp_path / "new.binpb").read_bytes() == committed.read_bytes()


def test_the_proto_file_imports_only_protobuf(repository: Path):
    text = (repository / "serving" / "protos" / "ranking.proto").read_text()
    imports = re.findall(r'^import "(.*)";', text, re.MULTILINE)
    assert imports == ["google/protobuf/any.proto", "google/protobuf/wrappers.proto"]


@pytest.mark.smoke
def test_the_client_does_not_import_tensorflow_and_works_beside_it(run_python):
    """The other order, TensorFlow's protos first, is that of this process."""
    done = run_python(
        "import sys\n"
        "from tfr_moe.serving.client import RankingClient\n"
        "from tfr_moe.serving.client.request import predict_request\n"
        "heavy = {'tensorflow', 'tensorflow_serving', 'keras', 'tf_keras', 'tensorflow_ranking'}\n"
        "assert not heavy & {name.split('.')[0] for name in sys.modules}, sys.modules.keys()\n"
        "from tensorflow_serving.apis import predict_pb2\n"
        "ours = predict_request('shop', 'rank', [b'x'])\n"
        "theirs = predict_pb2.PredictRequest.FromString(ours.SerializeToString())\n"
        "assert theirs.model_spec.name == 'shop'\n"
        "assert theirs.SerializeToString(deterministic=True) "
        "== ours.SerializeToString(deterministic=True)\n"
    )
    assert done.returncode == 0, done.stderr


ARRAYS = [
    np.array([[1.5, -2.0], [0.0, 3.0]], np.float32),
    np.array([3, -1, 7], np.int32),
    np.array([b"a", b""], object),
    np.zeros([2, 0], np.float32),
    np.array(4.0, np.float32),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_what_is_written_tensorflow_reads(array):
    proto = tf.make_tensor_proto(0.0).__class__()
    fill_tensor(proto, array)
    read = tf.make_ndarray(proto)
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert (read == array).all()


@pytest.mark.parametrize("array", ARRAYS)
def test_what_tensorflow_writes_is_read(array):
    proto = tf.make_tensor_proto(array)
    assert to_array(proto).tolist() == array.tolist()
    assert to_array(proto).dtype == array.dtype


def test_the_last_value_is_repeated():
    proto = tf.make_tensor_proto(np.float32(0.0), shape=[2, 3])
    del proto.float_val[:]
    proto.float_val.extend([1.0, 2.0])
    proto.ClearField("tensor_content")
    assert to_array(proto).tolist() == [[1.0, 2.0, 2.0], [2.0, 2.0, 2.0]]


def test_other_types_are_rejected_by_name():
    with pytest.raises(TypeError, match="float64"):
        fill_tensor(tf.make_tensor_proto(0.0), np.zeros(2))
