"""Calls of a gRPC server that are answered in the thread that takes them from gRPC's queue.

gRPC's own servers in Python hand a call from thread to thread, and each hand-over waits for a processor
to wake up and for the interpreter's lock: more than a small model takes. Here threads wait on a
completion queue, as servers in C++ do, and whoever takes a request from it runs the model and answers.
The parts of gRPC below are those that `grpc.server` itself is made of; they are not documented, so
whoever makes a `CallQueue` must be ready for an `UnsupportedError`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

try:
    from grpc._cython import cygrpc
except ImportError:
    cygrpc = None

_PARTS = (
    "CompletionQueue",
    "CompletionType",
    "ReceiveCloseOnServerOperation",
    "ReceiveMessageOperation",
    "SendInitialMetadataOperation",
    "SendMessageOperation",
    "SendStatusFromServerOperation",
)
_SERVER_PARTS = ("register_completion_queue", "register_method", "request_registered_call")
_NO_FLAGS = 0

log = logging.getLogger(__name__)


class UnsupportedError(RuntimeError):
    """This version of gRPC does not have what a `CallQueue` needs."""


class Call:
    """A client's request to a method of one message and one answer.

    Attributes:
        message: the bytes of the request.
        gone: whether the client no longer waits: it hung up, or its deadline is over.
    """

    def __init__(self, core: Any, when_finished: Callable[[], None]):
        self._core = core
        self._when_finished = when_finished
        self._finished = False
        self.message = b""
        self.gone = False

    def finish(self, code: grpc.StatusCode, details: str, answer: bytes | None = None) -> None:
        """Answers, from any thread; nobody hears it when the client is gone. Only the first counts."""
        if self._finished:
            return
        self._finished = True
        operations: list[Any] = [cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS)]
        if answer is not None:
            operations.append(cygrpc.SendMessageOperation(answer, _NO_FLAGS))
        status = cygrpc.SendStatusFromServerOperation(
            (), code.value[0], details.encode(), _NO_FLAGS
        )
        try:
            self._core.start_server_batch((*operations, status), _sent)
        finally:
            self._when_finished()


class CallQueue:
    """Answers one method of a `grpc.Server`, whatever other handlers the server has for it.

    Args:
        server: that has not been started.
        path: of the method, `/package.Service/Method`.
        handle: is given every call and must see to it that it is finished, then or later. An
            exception is INTERNAL to the client.
        limit: of threads. There are as many as calls are handled at once, and one more.

    Raises:
        UnsupportedError: with this version of gRPC; the server is then as it was.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> server = grpc.server(ThreadPoolExecutor(1))
        >>> queue = CallQueue(
        ...     server, "/a.B/Same", lambda call: call.finish(grpc.StatusCode.OK, "", call.message)
        ... )
        >>> port = server.add_insecure_port("127.0.0.1:0")
        >>> server.start()
        >>> queue.start()
        >>> with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ...     channel.unary_unary("/a.B/Same")(b"hello")
        b'hello'
        >>> server.stop(None).wait()
        True
        >>> queue.stop()
    """

    def __init__(
        self, server: grpc.Server, path: str, handle: Callable[[Call], None], limit: int = 64
    ):
        self._server = _core_of(server)
        missing = [name for name in _PARTS if not hasattr(cygrpc, name)]
        missing += [name for name in _SERVER_PARTS if not hasattr(self._server, name)]
        if missing:
            raise UnsupportedError(f"gRPC {grpc.__version__} has no {', '.join(missing)}")
        self._path = path
        self._handle = handle
        self._limit = limit
        self._lock = threading.Lock()
        self._looked_after = True
        self._open_calls = 0
        self._ended = False
        self._idle: list[threading.Semaphore] = []
        self._threads: list[threading.Thread] = []
        self._queue = cygrpc.CompletionQueue()
        self._server.register_completion_queue(self._queue)
        self._server.register_method(path)

    def start(self) -> None:
        """Begins to take calls. The server has to be started before."""
        self._request()
        with self._lock:
            self._add_thread()

    def stop(self, timeout: float = 60.0) -> None:
        """Waits until all calls are finished and the threads are gone. The server has to be stopped before.

        Args:
            timeout: in seconds; threads that hang in a handler are left alone after it.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="calls", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        turn = threading.Semaphore(0)
        while call := self._next_call():
            self._pass_on(may_add=True)
            try:
                self._handle(call)
            except Exception:
                log.exception("%s failed", self._path)
                call.finish(grpc.StatusCode.INTERNAL, "internal error; the server's log has more")
            del call  # or it would be kept until the next has come
            self._wait_for(turn)
        self._pass_on(may_add=False)

    def _next_call(self) -> Call | None:
        """The next call whose message is there; None when there will be no more."""
        while True:
            event = self._queue.poll()
            if event.completion_type == cygrpc.CompletionType.queue_shutdown:
                return None
            call = self._taken(event)
            del event  # or its call would be kept alive by it during the next poll
            if call is not None:
                return call

    def _pass_on(self, may_add: bool) -> None:
        """Has another thread look after the queue: the last that did, whose memory is still in the caches.

        One does at a time: if all did, the events that a call is made of would each wake up another.
        """
        with self._lock:
            if self._idle:
                self._idle.pop().release()
                return
            if may_add and len(self._threads) < self._limit:
                with contextlib.suppress(RuntimeError):  # the system has no more threads
                    self._add_thread()
                    return
            self._looked_after = False

    def _wait_for(self, turn: threading.Semaphore) -> None:
        """Returns when it is this thread's turn to look after the queue, at once if nobody does."""
        with self._lock:
            if not self._looked_after:
                self._looked_after = True
                return
            self._idle.append(turn)
        turn.acquire()

    def _taken(self, event: Any) -> Call | None:
        """What the operation that is over was started for: its tag is a function of the event."""
        try:
            return event.tag(event)
        except Exception:
            log.exception("%s failed", self._path)
            return None

    def _request(self) -> None:
        """Asks for the next call. Without that gRPC lets calls wait."""
        try:
            self._server.request_registered_call(
                self._queue, self._queue, self._path, self._requested
            )
        except ValueError:  # the server is being stopped
            self._end()

    def _requested(self, event: Any) -> None:
        if not event.success:  # the server is being stopped
            self._end()
            return
        with self._lock:
            self._open_calls += 1
        self._request()
        call = Call(event.call, self._finished)
        # Operations hold what they receive, so each call has its own.
        close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
        event.call.start_server_batch(close, functools.partial(_closed, call))
        message = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        event.call.start_server_batch(message, functools.partial(_received, call))

    def _finished(self) -> None:
        with self._lock:
            self._open_calls -= 1
            self._shut_down_after_the_last()

    def _end(self) -> None:
        """There will be no more calls."""
        with self._lock:
            self._ended = True
            self._shut_down_after_the_last()

    def _shut_down_after_the_last(self) -> None:
        # Not a moment before: gRPC aborts the process when a call is answered after it. A server can be
        # stopped, its calls cancelled, while their handlers still run.
        if self._ended and not self._open_calls:
            self._queue.shutdown()


def _core_of(server: grpc.Server) -> Any:
    return getattr(server, "_cy_server", None)


def _closed(call: Call, event: Any) -> None:
    call.gone = bool(event.batch_operations[0].cancelled())


def _received(call: Call, event: Any) -> Call | None:
    message = event.batch_operations[0].message()
    if message is None:  # or more than is allowed, or the client is gone
        call.finish(grpc.StatusCode.UNIMPLEMENTED, "the method takes one message, there was none")
        return None
    call.message = message
    return call


def _sent(event: Any) -> None:
    """Whether an answer has reached the client is not known here, nor asked for."""
