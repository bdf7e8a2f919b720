"""One version of a model in memory: MODELS/NAME/<version>/ as a function of arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf

from .batching import Answer, Batcher
from .refusals import invalid, refusal_of
from .session import ModelSession
from .warmup import EXTRA, WARMUP_FILE, read_warmup

_BATCHED = {"inputs"}


class LoadedModel:
    """One version of a model in memory, run through its signatures alone.

    Args:
        folder: of the version.
        name: of the model; by default that of the folder above.
        batch_size: lists that may be run together when requests have to wait; 1 never does.

    Raises:
        tf.errors.OpError, OSError, ValueError, UserError, RefusedError: if it can't be loaded, or can't
            answer its own warm-up requests.
    """

    def __init__(self, folder: Path, name: str | None = None, batch_size: int = 1):
        self.name = name or folder.parent.name
        self.version = int(folder.name)
        self._session = ModelSession(folder)
        self.signatures: dict[str, Any] = self._session.definitions
        self._expected = {
            (signature, name): _Input(tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape))
            for signature, definition in self.signatures.items()
            for name, info in definition.inputs.items()
        }
        warmup = folder / EXTRA / WARMUP_FILE
        for request in read_warmup(warmup) if warmup.is_file() else []:
            tensors = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
            self.run(request.model_spec.signature_name, tensors)
        self._batchers = {
            signature: Batcher(self._runner(signature), os.cpu_count() or 1, batch_size)
            for signature, definition in self.signatures.items()
            if batch_size > 1 and set(definition.inputs) == _BATCHED
        }

    def _runner(self, signature: str) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
        return lambda rows: self.run(signature, {"inputs": rows})

    def submit(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        done: Callable[[Answer], None],
        gone: Callable[[], bool],
    ) -> None:
        """Runs a signature, with other requests for it that wait, in this thread or theirs.

        Args:
            signature: one of `signatures`.
            inputs: an array for each input of the signature, that `check` takes.
            done: is told all outputs by name, or what went wrong.
            gone: whether nobody wants the answer any more.
        """
        rows = inputs.get("inputs")
        if signature in self._batchers and rows is not None and rows.ndim == 1:
            self._batchers[signature](rows, done, gone)
            return
        try:
            answer: Answer = self.run(signature, inputs)
        except Exception as error:
            answer = error
        done(answer)

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
        self.check(signature, inputs)
        try:
            answer = self._session.run(signature, inputs)
        except tf.errors.OpError as error:
            raise refusal_of(error) from error
        except UnicodeDecodeError as error:  # the words of TensorFlow quote bytes of the request
            invalid(bytes(error.object).decode("utf-8", "replace"))
        return {name: answer[name] for name in outputs or answer}

    def check(self, signature: str, inputs: Mapping[str, np.ndarray]) -> None:
        """Checks types and shapes.

        Raises:
            RefusedError: INVALID_ARGUMENT for an input that the signature can't take.
        """
        for name, array in inputs.items():
            expected = self._expected[signature, name]
            if not expected.takes(array):
                given = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
                invalid(
                    f"input {name!r} expects {expected.dtype.name} of shape {expected.shape}, "
                    f"got {given.name} of shape {array.shape}"
                )


class _Input:
    """What an input of a signature must be, in NumPy's terms: every request is held against it."""

    def __init__(self, dtype: tf.DType, shape: tf.TensorShape):
        self.dtype = dtype
        self.shape = shape
        self._numpy = np.dtype(dtype.as_numpy_dtype)
        self._sizes = None if shape.rank is None else shape.as_list()

    def takes(self, array: np.ndarray) -> bool:
        """Whether the array has the type, and a shape with all sizes that are known."""
        if array.dtype != self._numpy:
            return False
        if self._sizes is None:
            return True
        return len(self._sizes) == array.ndim and all(
            wanted in (None, size) for wanted, size in zip(self._sizes, array.shape, strict=True)
        )
