"""The models of the development server: versions in memory, updated from their folder."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import grpc
from tensorflow_serving.apis import predict_pb2

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.utils.failures import load_saved_model, reason_of

from .client.protos import fill_tensor
from .versions import EXTRA, WARMUP_FILE, read_log, signatures_of, versions_of

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class RejectedError(Exception):
    """A request that is answered with a gRPC status code other than OK."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def reject_argument(message: str) -> NoReturn:
    """Raises a `RejectedError` with INVALID_ARGUMENT."""
    raise RejectedError(grpc.StatusCode.INVALID_ARGUMENT, message)


class ServedModel:
    """MODELS/NAME/<version> in memory; raises an error of any kind if it cannot be loaded."""

    def __init__(self, folder: Path):
        self.name = folder.parent.name
        self.version = int(folder.name)
        self._loaded = load_saved_model(folder)
        self.signatures = signatures_of(folder)
        warmup = folder / EXTRA / WARMUP_FILE
        for one in read_log(warmup, "warm-up file") if warmup.is_file() else []:
            self.predict(one.request)

    def predict(self, request: Any) -> Any:
        """Answers a `PredictRequest` for this version with a `PredictResponse`."""
        signature = request.model_spec.signature_name or "serving_default"
        if signature not in self.signatures:
            raise RejectedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{signature}" not found.',
            )
        definition = self.signatures[signature]
        names = _output_names(request.output_filter, definition.outputs)
        outputs = self.run(signature, _inputs(request, definition.inputs))
        response = predict_pb2.PredictResponse()
        for name in names:
            fill_tensor(response.outputs[name], outputs[name].numpy())
        self.describe(response.model_spec, signature)
        return response

    def describe(self, model_spec: Any, signature: str = "") -> None:
        """Writes the name and version that answered into a `ModelSpec`."""
        model_spec.name = self.name
        model_spec.version.value = self.version
        model_spec.signature_name = signature

    def run(self, signature: str, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Runs a signature on its inputs by name; a RejectedError if it cannot read them."""
        try:
            return self._loaded.signatures[signature](**inputs)
        except tf.errors.OpError as error:
            code = _CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
            raise RejectedError(code, reason_of(error)) from error
        except UnicodeDecodeError as error:  # TensorFlow's message quotes bytes of the request
            reject_argument(reason_of(ValueError(bytes(error.object).decode("utf-8", "replace"))))


def _inputs(request: Any, expected: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    sent, received = request.inputs, request.ByteSize()
    if set(sent) != set(expected):
        reject_argument(f"inputs must be {sorted(expected)}, got {sorted(sent)}")
    return {name: _tensor(name, sent[name], expected[name], received) for name in expected}


def _tensor(name: str, proto: Any, info: Any, received: int) -> tf.Tensor:
    """Reads a `TensorProto` for an input with this `TensorInfo`; `received` is in bytes."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if min(sizes, default=0) < 0 or _claimed_bytes(proto, sizes) > received:
        reject_argument(f"tensor parsing error: {name} (shape {sizes} in {received} bytes)")
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError, KeyError):
        reject_argument(f"tensor parsing error: {name}")
    dtype, shape = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    given = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    if given != dtype or not shape.is_compatible_with(array.shape):
        reject_argument(
            f"input {name!r} expects {dtype.name} of shape {shape}, "
            f"got {given.name} of shape {array.shape}"
        )
    return tf.constant(array, dtype)


def _claimed_bytes(proto: Any, sizes: Sequence[int]) -> int:
    """The fewest bytes that spell out a tensor of these sizes.

    A `TensorProto` may give its last value for any number of elements. More of them than the
    request has bytes only serve to allocate memory that was never sent.
    """
    count = math.prod(max(size, 1) for size in sizes)
    if not proto.string_val:
        return count
    repeated = max(0, count - len(proto.string_val))
    return max(count, repeated * len(proto.string_val[-1]))


def _output_names(wanted: Any, outputs: Mapping[str, Any]) -> list[str]:
    names = list(wanted)
    if len(set(names)) < len(names) or not set(names) <= set(outputs):
        reject_argument(f"output_filter must be different ones of {sorted(outputs)}, got {names}")
    return names or list(outputs)


class Version(NamedTuple):
    """A version: its state in TensorFlow Serving's terms, and its model or why it failed to load.

    `files` has their bytes before it was loaded, by which a copy that goes on is noticed.
    """

    state: str
    files: Mapping[str, int] = {}
    model: ServedModel | None = None
    error: str = ""


class ModelStore:
    """The models below `root` (NAME/<version>/), all their versions. Threads may share it.

    `notify` receives a line for each version that is loaded, fails to load or is unloaded. Raises a
    UserError if no version can be loaded.
    """

    def __init__(self, root: Path, notify: Callable[[str], None]):
        if not root.is_dir():
            reason = "is a file, must be a folder" if root.exists() else "does not exist"
            raise UserError(f"models folder {root}: {reason}")
        if versions_of(root):
            raise UserError(
                f"models folder {root}: is the folder of one model; give its parent, {root.parent}"
            )
        self._root = root
        self._notify = notify
        self._versions: dict[tuple[str, int], Version] = {}
        self.refresh()
        if not self._versions:
            raise UserError(f"models folder {root}: has no model; a model is NAME/<version>/")
        if not any(each.model for each in self._versions.values()):
            reasons = "; ".join(f"{n}/{v}: {each.error}" for (n, v), each in self._versions.items())
            raise UserError(f"models folder {root}: no version could be loaded ({reasons})")

    def refresh(self) -> None:
        """Loads new versions, then unloads the removed ones; a failed one is retried once changed.

        Requests that are running on an unloaded version finish on it. The last loaded version of a
        model answers until another one of its folder is loaded.
        """
        present = {(p.name, version) for p in self._root.iterdir() for version in versions_of(p)}
        for key in sorted(present, reverse=True):
            if key not in self._versions or self._versions[key].model is None:
                self._load(*key)
        answering = {key[0] for key in present if self._versions[key].model}
        awaited = {name for name, _ in present} - answering
        for name, version in sorted(self._versions.keys() - present):
            loaded = self._models(name)
            if name in awaited and version == max(loaded, default=None):
                continue
            self._versions[name, version] = Version("END")
            if version in loaded:
                self._notify(f"unloaded {name} version {version}")
                del loaded
                gc.collect()  # TensorFlow's functions refer to each other in cycles

    def _load(self, name: str, version: int) -> None:
        """Loads a version, unless it has failed before and its files are the same."""
        folder = self._root / name / str(version)
        files = {str(path): path.stat().st_size for path in folder.rglob("*")}
        known = self._versions.get((name, version))
        if known is not None and known.files == files:
            return
        self._versions[name, version] = Version("LOADING")
        try:
            loaded = Version("AVAILABLE", files, ServedModel(folder))
            line = f"serving {name} version {version}"
        except Exception as error:  # whatever is wrong with one version, the others keep serving
            loaded = Version("END", files, error=reason_of(error))
            line = f"could not load {name} version {version}: {loaded.error}"
        self._versions[name, version] = loaded
        self._notify(line)

    def _models(self, name: str) -> dict[int, ServedModel]:
        """The loaded versions of a model; other threads may change them meanwhile."""
        versions = self._versions.copy().items()
        return {v: each.model for (n, v), each in versions if n == name and each.model is not None}

    def get(self, spec: Any) -> ServedModel:
        """The version that a `ModelSpec` requests, by default the newest; else a RejectedError."""
        if not spec.name:
            reject_argument("ModelSpec has no name specified.")
        models = self._models(spec.name)
        fixed = spec.HasField("version")
        version = spec.version.value if fixed else max(models, default=-1)
        if version not in models:
            which = f"Specific({spec.name}, {version})" if fixed else f"Latest({spec.name})"
            raise RejectedError(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {which}"
            )
        return models[version]

    def states(self, spec: Any) -> dict[int, Version]:
        """The versions of a model by number, newest first, or the one that the spec requests."""
        known = {v: each for (n, v), each in self._versions.copy().items() if n == spec.name}
        if spec.HasField("version"):
            known = {v: each for v, each in known.items() if v == spec.version.value}
        if not known:
            raise RejectedError(
                grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}"
            )
        return dict(sorted(known.items(), reverse=True))
