"""The models that the local server answers for: loaded from MODELS/NAME/<version>/, kept current."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError

from .graph import load_meta_graph, signatures_of
from .versions import models_of, versions_of
from .warmup import EXTRA, WARMUP_FILE, read_warmup

_CODES = {code.value[0]: code for code in grpc.StatusCode}

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """An answer that is an error: the gRPC status code and its message."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def refusal_of(error: tf.errors.OpError) -> RefusedError:
    """TensorFlow's errors carry gRPC's codes; the preamble of a traceback is cut off."""
    message = str(error.message).split("<stack traces unavailable>")[-1].strip()
    return RefusedError(_CODES.get(error.error_code, grpc.StatusCode.UNKNOWN), message)


class LoadedModel:
    """One version of a model in memory, run through its signatures alone.

    Raises:
        tf.errors.OpError, OSError, ValueError, UserError, RefusedError: if it can't be loaded, or can't
            answer its own warm-up requests.
    """

    def __init__(self, folder: Path):
        self.name = folder.parent.name
        self.version = int(folder.name)
        self.signatures: dict[str, Any] = signatures_of(load_meta_graph(folder))
        # The functions live only as long as what they were loaded with.
        self._saved_model = tf.saved_model.load(str(folder))
        warmup = folder / EXTRA / WARMUP_FILE
        for request in read_warmup(warmup) if warmup.is_file() else []:
            tensors = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            self.run(request.model_spec.signature_name, tensors)

    def run(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: one of `signatures`.
            inputs: an array for each input of the signature.
            outputs: the outputs to return, all when empty.

        Raises:
            RefusedError: with the code that TensorFlow Serving gives.
        """
        expected = self.signatures[signature].inputs
        for name, array in inputs.items():
            info = expected[name]
            dtype, shape = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
            given = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            if given != dtype or not shape.is_compatible_with(array.shape):
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"input {name!r} expects {dtype.name} of shape {shape}, "
                    f"got {given.name} of shape {array.shape}",
                )
        try:
            tensors = {name: tf.constant(array) for name, array in inputs.items()}
            answer = self._saved_model.signatures[signature](**tensors)
        except tf.errors.OpError as error:
            raise refusal_of(error) from error
        return {name: _to_numpy(answer[name]) for name in outputs or answer}


def _to_numpy(tensor: tf.Tensor) -> np.ndarray:
    return np.asarray(tensor.numpy(), object if tensor.dtype == tf.string else None)


class VersionState(NamedTuple):
    """What ModelService says of a version: the state's name, and why a load failed."""

    state: str
    message: str = ""


class Repository:
    """All models below a root folder, each in all its versions.

    `refresh` is called by one thread at a time; `get` and `states` by any.
    """

    def __init__(self, root: Path, notify: Callable[[str], None] = log.info):
        models_of(root)
        self._root = root
        self._notify = notify
        self._models: dict[str, dict[int, LoadedModel]] = {}
        self._states: dict[str, dict[int, VersionState]] = {}
        self.refresh()
        if not any(self._models.values()):
            reasons = "; ".join(
                f"{name}/{version}: {state.message}"
                for name, versions in self._states.items()
                for version, state in versions.items()
            )
            raise UserError(f"models folder {root}: no version could be loaded ({reasons})")

    def refresh(self) -> None:
        """Loads what is new below the root and drops what is gone.

        A version that failed is not tried again until it is published under another number. Requests
        that hold a dropped version finish with it.
        """
        found = {p.name: versions_of(p) for p in sorted(self._root.iterdir()) if p.is_dir()}
        for name, versions in found.items():
            for version in reversed(versions):
                if version not in self._states.get(name, {}):
                    self._load(name, version)
        for name, loaded in list(self._models.items()):
            for version in set(loaded) - set(found.get(name, [])):
                self._put(name, version, None, VersionState("END"))
                self._notify(f"unloaded {name} version {version}")

    def _load(self, name: str, version: int) -> None:
        self._put(name, version, None, VersionState("LOADING"))
        try:
            model = LoadedModel(self._root / name / str(version))
        except Exception as error:  # whatever is wrong with one version, the others go on serving
            reason = " ".join(str(error).split())
            self._put(name, version, None, VersionState("END", reason))
            self._notify(f"could not load {name} version {version}: {reason}")
        else:
            self._put(name, version, model, VersionState("AVAILABLE"))
            self._notify(f"serving {name} version {version}")

    def _put(self, name: str, version: int, model: LoadedModel | None, state: VersionState) -> None:
        # Readers take no lock: they see a model's old dictionary or its new one, never one in change.
        loaded = {v: m for v, m in self._models.get(name, {}).items() if v != version}
        if model is not None:
            loaded[version] = model
        self._models = {**self._models, name: loaded}
        states = {**self._states.get(name, {}), version: state}
        self._states = {**self._states, name: states}

    def get(self, name: str, version: int | None = None) -> LoadedModel:
        """A model's newest version, or the one asked for.

        Raises:
            RefusedError: NOT_FOUND if it is not there.
        """
        versions = self._models.get(name, {})
        wanted = max(versions, default=None) if version is None else version
        if wanted is None or wanted not in versions:
            which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {which}"
            )
        return versions[wanted]

    def states(self, name: str) -> dict[int, VersionState]:
        """The states of a model's versions, newest first; empty for an unknown model."""
        return dict(sorted(self._states.get(name, {}).items(), reverse=True))
