"""Processes that live no longer than the one that started them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import Any


def end_with_parent() -> None:
    """Ends this process when its standard input is closed.

    The kernel closes it when the parent dies, however it dies.
    """

    def wait() -> None:
        try:
            while sys.stdin.read(1):
                pass
        finally:
            os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def stop(process: Any, patience: float = 5.0) -> None:
    """Ends a process that was started with a pipe to its standard input.

    Args:
        process: a `subprocess.Popen` whose program has called `end_with_parent`.
        patience: seconds after which it is killed.
    """
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
