"""The client's own messages beside those of tensorflow-serving-api."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    input_pb2,
    predict_pb2,
)

from tfr_moe.serving.messages import DATA_TYPES, POOL, STATES, PredictRequest

ORIGINALS = [
    predict_pb2.PredictRequest,
    predict_pb2.PredictResponse,
    get_model_metadata_pb2.GetModelMetadataRequest,
    get_model_metadata_pb2.GetModelMetadataResponse,
    get_model_metadata_pb2.SignatureDefMap,
    get_model_status_pb2.GetModelStatusRequest,
    get_model_status_pb2.GetModelStatusResponse,
    input_pb2.ExampleListWithContext,
]

_ENUM_OR_INT = {FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32}  # the same on the wire


def many(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if repeated is None else repeated


def differences(ours: Descriptor, original: Descriptor) -> list[str]:
    """Fields, down to the innermost message, that are not on the wire what the original has."""
    found, seen, waiting = [], set(), [(ours, original)]
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
                found.append(f"{ours.full_name}.{field.name}")
            elif field.message_type is not None:
                waiting.append((field.message_type, same.message_type))
    return found


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
    for number, name in DATA_TYPES.items():
        assert types_pb2.DataType.Name(number) == f"DT_{name.upper()}"


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


def test_the_proto_file_takes_nothing_from_elsewhere_but_protobuf(repository: Path):
    text = (repository / "serving" / "protos" / "ranking.proto").read_text()
    imports = re.findall(r'^import "(.*)";', text, re.MULTILINE)
    assert imports == ["google/protobuf/any.proto", "google/protobuf/wrappers.proto"]


@pytest.mark.smoke
def test_the_client_comes_without_tensorflow_and_gets_on_with_it_afterwards(run_python):
    """The other order, TensorFlow's protos first, is that of this process."""
    done = run_python(
        "import sys\n"
        "from tfr_moe.serving.client import RankingClient\n"
        "from tfr_moe.serving.messages import PredictRequest\n"
        "from tfr_moe.serving.tensors import predict_request\n"
        "heavy = {'tensorflow', 'tensorflow_serving', 'keras', 'tf_keras', 'tensorflow_ranking'}\n"
        "assert not heavy & {name.split('.')[0] for name in sys.modules}, sys.modules.keys()\n"
        "from tensorflow_serving.apis import predict_pb2\n"
        "ours = predict_request('shop', 'rank', [b'x'], PredictRequest)\n"
        "theirs = predict_pb2.PredictRequest.FromString(ours.SerializeToString())\n"
        "assert theirs.model_spec.name == 'shop'\n"
        "assert theirs.SerializeToString(deterministic=True) "
        "== ours.SerializeToString(deterministic=True)\n"
    )
    assert done.returncode == 0, done.stderr
