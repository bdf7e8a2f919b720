"""A local gRPC server that speaks TensorFlow Serving's protocol, for development and tests.

Production runs the real TensorFlow Serving image on the same model folder: it batches, runs at
about twice the throughput and half the latency, and has the monitoring. This one needs no container
and answers the same requests with the same tensors and the same status codes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from tfr_moe.errors import UserError

from .channel import MESSAGE_LIMITS
from .repository import Repository
from .services import ModelService, PredictionService

DEFAULT_PORT = 8500
_THREADS = 16
_GRACE_SECONDS = 5.0

log = logging.getLogger(__name__)


class RankingServer:
    """Serves all models below a folder, all their versions, and picks up new ones.

    Args:
        models: the folder with NAME/<version>/ below it.
        host: the address to listen on; by default nobody but this machine can reach it.
        port: 0 picks a free one, which `port` then tells.
        poll_seconds: how often the folder is looked at for new versions.
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
        notify: Callable[[str], None] = log.info,
    ):
        self.host = host
        self.port = _free_port(host, port)
        self._poll_seconds = poll_seconds
        self._repository = Repository(Path(models), notify)
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="model-poller", daemon=True)
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "rpc"),
            # Two servers on one port would share its requests without a word.
            options=[*MESSAGE_LIMITS, ("grpc.so_reuseport", 0)],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            PredictionService(self._repository), self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelService(self._repository), self._server
        )

    @property
    def target(self) -> str:
        """`HOST:PORT`, for clients."""
        return _address(self.host, self.port)

    def start(self) -> RankingServer:
        """Begins to answer; returns at once."""
        try:
            self.port = self._server.add_insecure_port(self.target)
        except RuntimeError as error:
            raise UserError(f"cannot listen on {self.target}: {error}") from error
        self._server.start()
        self._poller.start()
        return self

    def stop(self, grace: float = _GRACE_SECONDS) -> None:
        """Refuses new requests and gives those under way `grace` seconds to finish."""
        self._stopped.set()
        self._server.stop(grace).wait()
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
    notify: Callable[[str], None] | None = None,
) -> None:
    """Runs a `RankingServer` until SIGTERM or SIGINT, then finishes the requests under way.

    What happens is told line by line to `notify`, by default on stderr. To be called from the main
    thread, since it handles signals.

    Raises:
        UserError: as `RankingServer`.
    """
    tell = notify or (lambda line: print(line, file=sys.stderr, flush=True))
    stop = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        server = RankingServer(models, host, port, poll_seconds=poll_seconds, notify=tell)
        with server:
            tell(
                f"listening on {server.target} (gRPC), for development and tests; "
                "production runs the TensorFlow Serving image on the same folder"
            )
            stop.wait()
            tell("stopping: requests under way are finished first")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
