"""TensorFlow Serving's PredictionService, answered from a `Repository`.

Requests, answers, status codes and the gist of the messages are those of `tensorflow_model_server`.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import grpc
import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tfr_moe._compat import tf

from .batching import Answer
from .calls import Call
from .channel import PREDICT_PATH
from .loaded import LoadedModel
from .metrics import ServerMetrics
from .refusals import Outcome, answering, invalid, outcome_of, parsed, precondition
from .repository import Repository
from .tensors import fill_tensor, serialized_examples

_METADATA_FIELD = "signature_def"
_MAX_ELEMENTS = 1 << 24


class _Asked(NamedTuple):
    """What a `PredictRequest` asks for, checked."""

    model: LoadedModel
    signature: str
    inputs: dict[str, np.ndarray]
    outputs: list[str]

    def response(self, found: Answer) -> Any:
        """The `PredictResponse`; raises an answer that is an error."""
        if isinstance(found, Exception):
            raise found
        response = predict_pb2.PredictResponse()
        for name in self.outputs or found:
            _fill(response.outputs[name], found[name])
        return _signed(response, self.model, self.signature)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict, Regress, Classify and GetModelMetadata."""

    def __init__(self, repository: Repository, metrics: ServerMetrics):
        self.metrics = metrics
        self._repository = repository

    @answering
    def Predict(self, request: Any) -> Any:  # noqa: N802
        """Runs a signature on the request's tensors."""
        asked = self._asked(request)
        return asked.response(asked.model.run(asked.signature, asked.inputs))

    def predict(self, call: Call) -> None:
        """`Predict` for a call of a `CallQueue`, run together with others that wait."""
        started = time.perf_counter()
        request = predict_pb2.PredictRequest()

        def finish(outcome: Outcome) -> None:
            seconds = time.perf_counter() - started
            self.metrics.count("Predict", request.model_spec.name, outcome.code.name, seconds)
            call.finish(*outcome)

        def read() -> _Asked:
            parsed(request.ParseFromString, call.message, PREDICT_PATH)
            return self._asked(request)

        def answer(found: Answer) -> None:
            finish(outcome_of("Predict", lambda: asked.response(found).SerializeToString()))

        reading = outcome_of("Predict", read)
        if reading.code != grpc.StatusCode.OK:
            finish(reading)
            return
        asked = reading.answer
        asked.model.submit(asked.signature, asked.inputs, answer, lambda: call.gone)

    @answering
    def Regress(self, request: Any) -> Any:  # noqa: N802
        """Scores single items through a signature with the one output `outputs`."""
        model, signature = self._addressed(request)
        definition = _one_input(model, signature)
        if len(definition.outputs) != 1:
            invalid("Expected one output Tensor.")
        if "outputs" not in definition.outputs:
            precondition(f"No regression outputs found in signature {signature!r}")
        examples = _serialized_examples(request.input)
        values = model.run(signature, {"inputs": examples})["outputs"]
        if values.ndim != 1 and values.shape[1:] != (1,):
            invalid(
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] "
                f"but got {list(values.shape)}"
            )
        _check_batch(len(examples), values)
        response = regression_pb2.RegressionResponse()
        for value in values.ravel():
            response.result.regressions.add().value = value
        return _signed(response, model, signature)

    @answering
    def Classify(self, request: Any) -> Any:  # noqa: N802
        """Scores single items through a signature with the outputs `scores` or `classes`."""
        model, signature = self._addressed(request)
        definition = _one_input(model, signature)
        names = [name for name in ("classes", "scores") if name in definition.outputs]
        if len(definition.outputs) > 2:
            invalid(f"Expected one or two output Tensors, found {len(definition.outputs)}")
        if not names:
            precondition(
                'Expected classification signature outputs to contain at least one of "classes" or '
                f'"scores"; signature {signature!r} has {sorted(definition.outputs)}'
            )
        examples = _serialized_examples(request.input)
        found = model.run(signature, {"inputs": examples}, names)
        for array in found.values():
            if array.ndim != 2:
                invalid(
                    f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}"
                )
            _check_batch(len(examples), array)
        response = classification_pb2.ClassificationResponse()
        for row in range(len(examples)):
            classes = response.result.classifications.add().classes
            for column in range(found[names[0]].shape[1]):
                entry = classes.add()
                if "classes" in found:
                    entry.label = found["classes"][row, column]
                if "scores" in found:
                    entry.score = found["scores"][row, column]
        return _signed(response, model, signature)

    @answering
    def GetModelMetadata(self, request: Any) -> Any:  # noqa: N802
        """Tells the signatures of a model."""
        fields = list(request.metadata_field)
        if not request.HasField("model_spec"):
            invalid("Missing ModelSpec")
        if not fields:
            invalid("GetModelMetadataRequest must specify at least one metadata_field")
        if unknown := sorted(set(fields) - {_METADATA_FIELD}):
            invalid(f"Metadata field {', '.join(unknown)} is not supported")
        model, _ = self._addressed(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in model.signatures.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return _signed(response, model)

    def _asked(self, request: Any) -> _Asked:
        model, signature = self._addressed(request)
        if signature not in model.signatures:
            precondition(f'Serving signature key "{signature}" not found.')
        definition = model.signatures[signature]
        _check_names(set(request.inputs), set(definition.inputs))
        outputs = list(request.output_filter)
        for name in outputs:
            if name not in definition.outputs:
                allowed = ",".join(sorted(definition.outputs))
                invalid(
                    f"output tensor alias not found in signature: {name} "
                    f"Outputs expected to be in the set {{{allowed}}}."
                )
        if len(set(outputs)) < len(outputs):
            invalid(f"duplicate output tensor alias in {outputs}")
        inputs = {name: _array(name, value) for name, value in request.inputs.items()}
        model.check(signature, inputs)
        return _Asked(model, signature, inputs, outputs)

    def _addressed(self, request: Any) -> tuple[LoadedModel, str]:
        """The version that a request asks for and the name of its signature."""
        if not request.HasField("model_spec"):
            invalid("Missing ModelSpec")
        spec = request.model_spec
        if not spec.name:
            invalid("ModelSpec has no name specified.")
        version = spec.version.value if spec.HasField("version") else None
        if spec.version_label:
            version = self._repository.labelled(spec.name, spec.version_label)
        signature = spec.signature_name or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        return self._repository.get(spec.name, version), signature


def _signed(response: Any, model: LoadedModel, signature: str = "") -> Any:
    response.model_spec.name = model.name
    response.model_spec.version.value = model.version
    response.model_spec.signature_name = signature
    return response


def _check_names(given: set[str], expected: set[str]) -> None:
    if given != expected:
        extra, missing = ",".join(sorted(given - expected)), ",".join(sorted(expected - given))
        invalid(
            f"input size does not match signature: {len(given)}!={len(expected)}. "
            f"Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )


def _array(name: str, proto: Any) -> np.ndarray:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    # One value may stand for all of a tensor, whose shape would then take any amount of memory.
    if min(sizes, default=0) < 0 or math.prod(sizes) > _MAX_ELEMENTS:
        invalid(f"tensor parsing error: {name}")
    if proto.dtype == types_pb2.DT_STRING and sizes == [len(proto.string_val)]:
        return np.array(
            list(proto.string_val), object
        )  # as make_ndarray, which every request would pay
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError, KeyError):
        invalid(f"tensor parsing error: {name}")


def _fill(proto: Any, array: np.ndarray) -> None:
    try:
        fill_tensor(proto, array)
    except TypeError:  # models that are not ours may answer with other types
        proto.CopyFrom(tf.make_tensor_proto(array))


def _one_input(model: LoadedModel, signature: str) -> Any:
    if signature not in model.signatures:
        invalid(f"No signature was found with the name: {signature}")
    definition = model.signatures[signature]
    if len(definition.inputs) != 1:
        invalid("Expected one input Tensor.")
    if "inputs" not in definition.inputs:
        precondition(f"No inputs found in signature {signature!r}")
    return definition


def _serialized_examples(given: Any) -> np.ndarray:
    examples = serialized_examples(given)
    if not examples:
        invalid("Input is empty.")
    return np.array(examples, object)


def _check_batch(count: int, array: np.ndarray) -> None:
    if len(array) != count:
        invalid(f"Input batch size did not match output batch size: {count} vs. {len(array)}")
