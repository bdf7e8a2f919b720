"""One version of a model in memory: MODELS/NAME/<version>/ as a function of arrays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf

from .batching import Batcher
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
            (signature, name): (tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape))
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

    async def answer(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """`run` in another thread, with other requests of the same signature that wait.

        Raises:
            RefusedError: as `run`.
        """
        rows = inputs.get("inputs")
        if signature not in self._batchers or rows is None or rows.ndim != 1:
            return await asyncio.to_thread(self.run, signature, inputs, outputs)
        self._check(signature, inputs)
        found = await self._batchers[signature](rows)
        return {name: found[name] for name in outputs or found}

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
        self._check(signature, inputs)
        try:
            answer = self._session.run(signature, inputs)
        except tf.errors.OpError as error:
            raise refusal_of(error) from error
        except UnicodeDecodeError as error:  # the words of TensorFlow quote bytes of the request
            invalid(bytes(error.object).decode("utf-8", "replace"))
        return {name: answer[name] for name in outputs or answer}

    def _check(self, signature: str, inputs: Mapping[str, np.ndarray]) -> None:
        for name, array in inputs.items():
            dtype, shape = self._expected[signature, name]
            given = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            if given != dtype or not shape.is_compatible_with(array.shape):
                invalid(
                    f"input {name!r} expects {dtype.name} of shape {shape}, "
                    f"got {given.name} of shape {array.shape}"
                )
