"""TensorFlow Serving's PredictionService and ModelService, answered from a `Repository`.

Requests, answers, status codes and the gist of the messages are those of `tensorflow_model_server`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import numpy as np
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tfr_moe._compat import tf

from .repository import LoadedModel, RefusedError, Repository
from .tensors import fill_tensor, serialized_examples

_METADATA_FIELD = "signature_def"

log = logging.getLogger(__name__)


def _invalid(message: str) -> NoReturn:
    raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)


def _precondition(message: str) -> NoReturn:
    raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, message)


def _answering(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Turns a `RefusedError` into the status of the call."""

    @functools.wraps(method)
    def call(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request)
        except RefusedError as refusal:
            context.abort(refusal.code, refusal.message)
        except Exception:
            log.exception("%s failed", method.__name__)
            context.abort(grpc.StatusCode.INTERNAL, "internal error; the server's log has more")

    return call


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict, Regress, Classify and GetModelMetadata."""

    def __init__(self, repository: Repository):
        self._repository = repository

    @_answering
    def Predict(self, request: Any) -> Any:  # noqa: N802
        """Runs a signature on the request's tensors."""
        model, signature = self._addressed(request)
        if signature not in model.signatures:
            _precondition(f'Serving signature key "{signature}" not found.')
        definition = model.signatures[signature]
        _check_names(set(request.inputs), set(definition.inputs))
        outputs = list(request.output_filter)
        for name in outputs:
            if name not in definition.outputs:
                allowed = ",".join(sorted(definition.outputs))
                _invalid(
                    f"output tensor alias not found in signature: {name} "
                    f"Outputs expected to be in the set {{{allowed}}}."
                )
        if len(set(outputs)) < len(outputs):
            _invalid(f"duplicate output tensor alias in {outputs}")
        inputs = {name: _array(name, value) for name, value in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for name, array in model.run(signature, inputs, outputs).items():
            _fill(response.outputs[name], array)
        return _signed(response, model, signature)

    @_answering
    def Regress(self, request: Any) -> Any:  # noqa: N802
        """Scores single items through a signature with the one output `outputs`."""
        model, signature = self._addressed(request)
        definition = _one_input(model, signature)
        if len(definition.outputs) != 1:
            _invalid("Expected one output Tensor.")
        if "outputs" not in definition.outputs:
            _precondition(f"No regression outputs found in signature {signature!r}")
        examples = _serialized_examples(request.input)
        values = model.run(signature, {"inputs": examples})["outputs"]
        if values.ndim != 1 and values.shape[1:] != (1,):
            _invalid(
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] "
                f"but got {list(values.shape)}"
            )
        _check_batch(len(examples), values)
        response = regression_pb2.RegressionResponse()
        for value in values.ravel():
            response.result.regressions.add().value = value
        return _signed(response, model, signature)

    @_answering
    def Classify(self, request: Any) -> Any:  # noqa: N802
        """Scores single items through a signature with the outputs `scores` or `classes`."""
        model, signature = self._addressed(request)
        definition = _one_input(model, signature)
        names = [name for name in ("classes", "scores") if name in definition.outputs]
        if len(definition.outputs) > 2:
            _invalid(f"Expected one or two output Tensors, found {len(definition.outputs)}")
        if not names:
            _precondition(
                'Expected classification signature outputs to contain at least one of "classes" or '
                f'"scores"; signature {signature!r} has {sorted(definition.outputs)}'
            )
        examples = _serialized_examples(request.input)
        found = model.run(signature, {"inputs": examples}, names)
        for array in found.values():
            if array.ndim != 2:
                _invalid(
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

    @_answering
    def GetModelMetadata(self, request: Any) -> Any:  # noqa: N802
        """Tells the signatures of a model."""
        fields = list(request.metadata_field)
        if not request.HasField("model_spec"):
            _invalid("Missing ModelSpec")
        if not fields:
            _invalid("GetModelMetadataRequest must specify at least one metadata_field")
        if unknown := sorted(set(fields) - {_METADATA_FIELD}):
            _invalid(f"Metadata field {', '.join(unknown)} is not supported")
        model, _ = self._addressed(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in model.signatures.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return _signed(response, model)

    def _addressed(self, request: Any) -> tuple[LoadedModel, str]:
        """The version that a request asks for and the name of its signature."""
        if not request.HasField("model_spec"):
            _invalid("Missing ModelSpec")
        spec = request.model_spec
        if not spec.name:
            _invalid("ModelSpec has no name specified.")
        if spec.version_label:
            _invalid(f"Unrecognized servable version label: {spec.version_label}")
        version = spec.version.value if spec.HasField("version") else None
        signature = spec.signature_name or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        return self._repository.get(spec.name, version), signature


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus."""

    def __init__(self, repository: Repository):
        self._repository = repository

    @_answering
    def GetModelStatus(self, request: Any) -> Any:  # noqa: N802
        """Tells the state of a model's versions."""
        if not request.HasField("model_spec"):
            _invalid("Missing ModelSpec")
        spec = request.model_spec
        states = self._repository.states(spec.name)
        if not states:
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}"
            )
        if spec.HasField("version"):
            if spec.version.value not in states:
                raise RefusedError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Could not find version {spec.version.value} of model {spec.name}",
                )
            states = {spec.version.value: states[spec.version.value]}
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in states.items():
            entry = response.model_version_status.add()
            entry.version = version
            entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(state.state)
            if state.message:
                entry.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                entry.status.error_message = state.message
        return response


def _signed(response: Any, model: LoadedModel, signature: str = "") -> Any:
    response.model_spec.name = model.name
    response.model_spec.version.value = model.version
    response.model_spec.signature_name = signature
    return response


def _check_names(given: set[str], expected: set[str]) -> None:
    if given != expected:
        extra, missing = ",".join(sorted(given - expected)), ",".join(sorted(expected - given))
        _invalid(
            f"input size does not match signature: {len(given)}!={len(expected)}. "
            f"Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )


def _array(name: str, proto: Any) -> np.ndarray:
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError, KeyError):
        _invalid(f"tensor parsing error: {name}")


def _fill(proto: Any, array: np.ndarray) -> None:
    try:
        fill_tensor(proto, array)
    except TypeError:  # models that are not ours may answer with other types
        proto.CopyFrom(tf.make_tensor_proto(array))


def _one_input(model: LoadedModel, signature: str) -> Any:
    if signature not in model.signatures:
        _invalid(f"No signature was found with the name: {signature}")
    definition = model.signatures[signature]
    if len(definition.inputs) != 1:
        _invalid("Expected one input Tensor.")
    if "inputs" not in definition.inputs:
        _precondition(f"No inputs found in signature {signature!r}")
    return definition


def _serialized_examples(given: Any) -> np.ndarray:
    examples = serialized_examples(given)
    if not examples:
        _invalid("Input is empty.")
    return np.array(examples, object)


def _check_batch(count: int, array: np.ndarray) -> None:
    if len(array) != count:
        _invalid(f"Input batch size did not match output batch size: {count} vs. {len(array)}")
