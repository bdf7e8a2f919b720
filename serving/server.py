"""A local gRPC server that speaks TensorFlow Serving's protocol, for development and tests.

Production runs the real TensorFlow Serving image on the same model folder: it gave twice the throughput
of a plain Python server at half the latency, and has TLS, REST and the monitoring. This one needs no
container and answers the same requests with the same tensors and the same status codes.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from tfr_moe.errors import UserError

from .calls import CallQueue, UnsupportedError
from .channel import PREDICT_PATH, message_limits
from .defaults import DEFAULT_BATCH_SIZE, DEFAULT_PORT
from .metrics import ServerMetrics, expose
from .model_service import ModelService
from .refusals import BadMessages
from .repository import Repository
from .services import PredictionService
from .signals import stop_signals

_GRACE_SECONDS = 5.0
# Of the methods that gRPC gives a thread to, even while a slow client sends.
_THREADS = 256
_SERVICES = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "grpc.health.v1.Health",
)

log = logging.getLogger(__name__)


class RankingServer:
    """Serves all models below a folder, all their versions, and picks up new ones.

    Args:
        models: the folder with NAME/<version>/ below it.
        host: the address to listen on; by default nobody but this machine can reach it.
        port: 0 picks a free one, which `port` then tells.
        poll_seconds: how often the folder is looked at for new versions.
        batch_size: lists that may be run together when requests have to wait; 1 never does.
        metrics_port: where Prometheus is answered over HTTP, 0 for a free port; None does not.
        notify: is told in a line of every version that is loaded, fails to load, or goes.

    Raises:
        UserError: if there is no model that can be loaded, or the port can't be had.

    Example:
        >>> with RankingServer(Path("models"), port=0) as server:  # doctest: +SKIP
        ...     client = RankingClient(server.target, "shop", schema)
    """

    def __init__(
        self,
        models: str | Path,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        poll_seconds: float = 2.0,
        batch_size: int = DEFAULT_BATCH_SIZE,
        metrics_port: int | None = None,
        notify: Callable[[str], None] = log.info,
    ):
        self.host = host
        self.port = _free_port(host, port)
        self._poll_seconds = poll_seconds
        self.metrics_port = metrics_port
        self._repository = Repository(Path(models), notify, batch_size)
        self._metrics = ServerMetrics(self._repository)
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="model-poller", daemon=True)
        self._health = health.HealthServicer()
        self._http: Any = None
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "rpc"),
            interceptors=[BadMessages()],
            # Two servers on one port would share its requests without a word.
            options=[*message_limits(), ("grpc.so_reuseport", 0)],
        )
        self._calls: CallQueue | None = None

    def _listen(self) -> None:
        prediction = PredictionService(self._repository, self._metrics)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            prediction, self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelService(self._repository, self._metrics), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for name in ("", *_SERVICES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        _register_descriptors()
        reflection.enable_server_reflection([*_SERVICES, reflection.SERVICE_NAME], self._server)
        try:
            self._calls = CallQueue(self._server, PREDICT_PATH, prediction.predict)
        except UnsupportedError as error:
            log.warning("Predict is answered by gRPC's own threads, at half the speed: %s", error)
        try:
            self.port = self._server.add_insecure_port(self.target)
        except RuntimeError as error:
            raise UserError(f"cannot listen on {self.target}: {error}") from error
        self._server.start()
        if self._calls is not None:
            self._calls.start()

    @property
    def target(self) -> str:
        """`HOST:PORT`, for clients."""
        return _address(self.host, self.port)

    def start(self) -> RankingServer:
        """Begins to answer; returns at once."""
        try:
            self._listen()
            if self.metrics_port is not None:
                self._http = expose(self._metrics, self.host, self.metrics_port)
                self.metrics_port = self._http.server_port
        except BaseException:
            self.stop(0)
            raise
        self._poller.start()
        return self

    def stop(self, grace: float = _GRACE_SECONDS) -> None:
        """Refuses new requests and gives those under way `grace` seconds to finish."""
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        # What is still under way after it can't be interrupted, and nobody hears the answer.
        self._server.stop(grace).wait(grace + _GRACE_SECONDS)
        if self._calls is not None:
            self._calls.stop(_GRACE_SECONDS)
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        if self._poller.is_alive():
            self._poller.join(grace)

    def __enter__(self) -> RankingServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _poll(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            try:
                self._repository.refresh()
            except OSError as error:
                log.warning("the models folder can't be read: %s", error)


def serve(
    models: str | Path,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    poll_seconds: float = 2.0,
    batch_size: int = DEFAULT_BATCH_SIZE,
    metrics_port: int | None = None,
    notify: Callable[[str], None] | None = None,
) -> None:
    """Runs a `RankingServer` until SIGTERM or SIGINT, then finishes the requests under way.

    What happens is told line by line to `notify`, by default on stderr. To be called from the main
    thread, since it handles signals; while models are loaded they do what they did before.

    Raises:
        UserError: as `RankingServer`.
    """
    tell = notify or (lambda line: print(line, file=sys.stderr, flush=True))
    server = RankingServer(
        models,
        host,
        port,
        poll_seconds=poll_seconds,
        batch_size=batch_size,
        metrics_port=metrics_port,
        notify=tell,
    )
    with stop_signals() as wait_for_stop, server:
        tell(
            f"listening on {server.target} (gRPC), for development and tests; "
            "production runs the TensorFlow Serving image on the same folder"
        )
        if server.metrics_port is not None:
            tell(f"metrics at http://{_address(host, server.metrics_port)}/metrics")
        wait_for_stop()
        tell("stopping: requests under way are finished first")


def _register_descriptors() -> None:
    """Lets reflection know the services. The stubs alone bring their messages only."""
    for name in ("prediction_service_pb2", "model_service_pb2"):
        # Those of tensorflow-serving-api 2.15 register what they describe and then fail at an
        # attribute that protobuf has no more.
        with contextlib.suppress(AttributeError):
            importlib.import_module(f"tensorflow_serving.apis.{name}")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _free_port(host: str, port: int) -> int:
    """Checks that the port can be had, before models are loaded for minutes in vain."""
    if not 0 <= port <= 65535:
        raise UserError(f"port must be 0 to 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return port
    except OSError as error:
        unknown_host = isinstance(error, socket.gaierror)
        reason = error.strerror if unknown_host else os.strerror(error.errno or 0)
        raise UserError(f"cannot listen on {_address(host, port)}: {reason}") from error
