"""The signatures of a SavedModel as functions of arrays, run by a session as TensorFlow Serving runs them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf

from .graph import signatures_of

# RunOptions.inter_op_thread_pool: the thread that asks runs the graph itself. Requests then hand
# nothing from thread to thread and don't wait for each other's ops; a large op still uses all cores.
_OWN_THREAD = -1


class ModelSession:
    """A SavedModel in memory.

    Against `tf.saved_model.load` a call saves the work that eager tensors and functions make in
    Python, which keeps all other threads waiting.

    Args:
        folder: the SavedModel's.

    Attributes:
        definitions: the `SignatureDef`s by name.

    Raises:
        tf.errors.OpError, OSError, ValueError, RuntimeError: if it can't be loaded.

    Example:
        >>> import tempfile
        >>> module = tf.Module()
        >>> module.double = tf.function(lambda x: {"twice": 2 * x}, [tf.TensorSpec([None], name="x")])
        >>> with tempfile.TemporaryDirectory() as name:
        ...     tf.saved_model.save(module, name, {"double": module.double})
        ...     session = ModelSession(Path(name))
        >>> session.run("double", {"x": np.array([1.0, 2.0], np.float32)})["twice"].tolist()
        [2.0, 4.0]
    """

    def __init__(self, folder: Path):
        session = tf.compat.v1.Session(graph=tf.Graph())
        # Unwrapped, because it warns of its age; what it names instead has no session.
        load = inspect.unwrap(tf.compat.v1.saved_model.load)
        meta_graph = load(session, [tf.saved_model.SERVING], str(folder))
        self.definitions: dict[str, Any] = signatures_of(meta_graph)
        self._functions = {
            name: _Function(session, definition) for name, definition in self.definitions.items()
        }

    def run(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs of a signature by name; strings are arrays of bytes objects.

        Any thread may call it at any time.

        Raises:
            tf.errors.OpError: what TensorFlow makes of the inputs.
        """
        return self._functions[signature](inputs)


class _Function:
    """One signature: what its inputs and outputs are called in the graph, and the call itself."""

    def __init__(self, session: Any, definition: Any):
        self._session = session
        self._definition = definition
        self._inputs = sorted(definition.inputs)
        self._outputs = sorted(definition.outputs)

    @functools.cached_property
    def _call(self) -> Callable[..., list[Any]]:
        """Made at the first call, since TensorFlow optimises the graph for each signature anew."""
        from tensorflow.core.protobuf import config_pb2

        definition = self._definition
        options = config_pb2.CallableOptions(
            feed=[definition.inputs[name].name for name in self._inputs],
            fetch=[definition.outputs[name].name for name in self._outputs],
            run_options=tf.compat.v1.RunOptions(inter_op_thread_pool=_OWN_THREAD),
        )
        # Session.make_callable, the public way, takes 0.2 ms more a call: it goes through Session.run.
        return self._session._make_callable_from_options(options)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self._call(*(inputs[name] for name in self._inputs))
        return dict(zip(self._outputs, map(np.asarray, found), strict=True))
