"""A gRPC server with TensorFlow Serving's API, for development and tests.

It answers Predict, GetModelMetadata, GetModelStatus and the gRPC health protocol for every model
below a folder, with the status codes of TensorFlow Serving. Run the TensorFlow Serving image in
production: it reads the same folder and adds batching, REST, TLS and monitoring.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from tfr_moe.errors import UserError

from .client.channel import MESSAGE_LIMITS
from .model_store import ModelStore, RejectedError, reject_argument

_GRACE_SECONDS = 5.0
_THREADS = 64
_SERVICES = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
_METADATA_FIELD = "signature_def"

log = logging.getLogger(__name__)


def _rpc(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Makes a gRPC method of `method(self, request)`; a `RejectedError` becomes its status."""

    @functools.wraps(method)
    def answer(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            if not request.HasField("model_spec"):
                reject_argument("Missing ModelSpec")
            if label := request.model_spec.version_label:
                reject_argument(f"Unrecognized servable version label: {label}")
            return method(self, request)
        except RejectedError as rejected:
            context.abort(rejected.code, rejected.message)
        except Exception:
            log.exception("%s failed", method.__name__)
            context.abort(grpc.StatusCode.INTERNAL, "internal error; the server's log has more")

    return answer


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """The methods that the server has; gRPC answers UNIMPLEMENTED for all others."""

    def __init__(self, store: ModelStore):
        self._store = store

    @_rpc
    def Predict(self, request: Any) -> Any:  # noqa: N802
        return self._store.get(request.model_spec).predict(request)

    @_rpc
    def GetModelMetadata(self, request: Any) -> Any:  # noqa: N802
        if list(request.metadata_field) != [_METADATA_FIELD]:
            reject_argument(
                f"metadata_field must be [{_METADATA_FIELD!r}], got {list(request.metadata_field)}"
            )
        model = self._store.get(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in model.signatures.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata[_METADATA_FIELD].Pack(signatures)
        model.describe(response.model_spec)
        return response

    @_rpc
    def GetModelStatus(self, request: Any) -> Any:  # noqa: N802
        response = get_model_status_pb2.GetModelStatusResponse()
        for number, version in self._store.states(request.model_spec).items():
            entry = response.model_version_status.add()
            entry.version = number
            entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(version.state)
            if version.error:
                entry.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                entry.status.error_message = version.error
        return response


class DevServer:
    """Serves all models below a folder, in all their versions, and picks up new versions.

    Args:
        models: the folder with NAME/<version>/ below it.
        host: the address to listen on; the default is reachable from this machine only.
        port: 0 picks a free port, see `target`.
        poll_seconds: time between two polls of the folder.
        notify: receives a line for each version that is loaded, fails to load or is unloaded.

    Raises:
        UserError: if no model can be loaded, or the port is in use.

    Example:
        >>> with DevServer(Path("models"), port=0) as server:  # doctest: +SKIP
        ...     client = RankingClient(server.target, "shop", schema)
    """

    def __init__(
        self,
        models: str | Path,
        host: str = "127.0.0.1",
        port: int = 8500,
        *,
        poll_seconds: float = 2.0,
        notify: Callable[[str], None] = log.info,
    ):
        if not 0 <= port <= 65535:
            raise UserError(f"port must be 0 to 65535. Received: port={port}")
        # Without the last option two servers on one port would share its requests.
        options = [*MESSAGE_LIMITS, ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "rpc"), options=options)
        address = f"[{host}]" if ":" in host else host
        try:  # before models are loaded for minutes
            self.target = f"{address}:{self._server.add_insecure_port(f'{address}:{port}')}"
        except RuntimeError as error:
            raise UserError(
                f"cannot listen on {address}:{port}: the port is in use or the address is invalid"
            ) from error
        try:
            self._store = ModelStore(Path(models), notify)
        except BaseException:
            self._server.stop(None)
            raise
        services = _Services(self._store)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(services, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._poll_seconds = poll_seconds
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="model-poller", daemon=True)

    def start(self) -> DevServer:
        """Begins to answer; returns at once."""
        self._server.start()
        for name in ("", *_SERVICES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._poller.start()
        return self

    def stop(self) -> None:
        """Rejects new requests and gives running ones a few seconds to finish."""
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(_GRACE_SECONDS).wait()
        if self._poller.is_alive():
            self._poller.join(_GRACE_SECONDS)

    def __enter__(self) -> DevServer:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _poll(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            try:
                self._store.refresh()
            except OSError as error:
                log.warning("cannot read the models folder: %s", error)


def serve(
    models: str | Path, host: str = "127.0.0.1", port: int = 8500, poll_seconds: float = 2.0
) -> None:
    """Runs a `DevServer` until SIGTERM or SIGINT, then finishes the requests that are running.

    Call it from the main thread, since it handles signals. Progress is printed to stderr.
    """
    write = functools.partial(print, file=sys.stderr, flush=True)
    received: list[int] = []
    # Ends the process while models are loaded: there TensorFlow can swallow a KeyboardInterrupt.
    previous = {s: signal.signal(s, signal.SIG_DFL) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        server = DevServer(models, host, port, poll_seconds=poll_seconds, notify=write)
        for number in previous:
            signal.signal(number, lambda number, _: received.append(number))
        with server:
            write(
                f"listening on {server.target} (gRPC), for development; "
                "production runs the TensorFlow Serving image on the same folder"
            )
            # A handler that sets an event could run while the main thread holds the event's lock.
            while not received:
                time.sleep(0.1)
            write("stopping: running requests are finished first")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
