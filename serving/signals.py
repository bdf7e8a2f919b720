"""Waiting for the signals that end a program."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals() -> Iterator[Callable[[], None]]:
    """Gives a function that returns once the process was sent SIGTERM or SIGINT, now or before.

    To be entered in the main thread; what handled the signals before does so again afterwards.

    Example:
        >>> import os
        >>> with stop_signals() as wait:
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     wait()
    """
    # Not an event that a handler sets. Python runs handlers in the main thread, between two of its
    # instructions: one that comes while that thread is about to wait would wait for itself, and one
    # that the system gives to another thread does not end the wait. A byte in a socket does.
    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        previous = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}

        def wait() -> None:
            while heard.recv(1)[0] not in STOP_SIGNALS:
                pass

        try:
            yield wait
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
