"""Child processes: started, watched, restarted and stopped, and never outliving their parent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_USAGE, UserError

_FINAL_CODES = (EXIT_USAGE, EXIT_INTERRUPTED)
_MAX_RESTARTS = 3  # of a command without progress
_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0


def exit_with_parent() -> None:
    """Ends this process when its parent dies, however the parent dies.

    For commands that `supervise` starts: the kernel closes their standard input with the parent.
    """

    def wait() -> None:
        try:
            while sys.stdin.read(1):
                pass
        finally:
            os._exit(1)

    threading.Thread(target=wait, name="exit-with-parent", daemon=True).start()


def _stop(process: subprocess.Popen[Any]) -> None:
    """Stops a child by closing its standard input, and kills it if that takes too long."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def share_of_cores(num_processes: int) -> dict[str, str]:
    """Environment variables by which TensorFlow processes share this machine; set ones stay."""
    cores = max((os.cpu_count() or 1) // num_processes, 1)
    shared = {"TF_NUM_INTRAOP_THREADS": str(cores), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {name: os.environ.get(name, value) for name, value in shared.items()}


def supervise(
    commands: Mapping[str, Sequence[str]],
    progress: Callable[[], Hashable],
    log: Callable[[str], None],
) -> None:
    """Runs commands as child processes until all are done, and restarts those that fail.

    They share the cores of this machine. A command is restarted up to three times without progress.
    A user error (exit code 2) and Ctrl-C (130) are not retried. All children are stopped at the
    end, also by Ctrl-C; they end too if this process is killed.

    Args:
        commands: name -> command line, of programs that call `exit_with_parent`.
        progress: returns a value that changes when work gets done, from which restarts are counted.
        log: receives a line for each restart.

    Raises:
        UserError: naming a command that failed too often.
    """
    running: dict[str, subprocess.Popen[str]] = {}
    failures: Counter[tuple[str, Hashable]] = Counter()
    environment = {**os.environ, **share_of_cores(len(commands))}

    def start(name: str) -> None:
        running[name] = subprocess.Popen(
            list(commands[name]),
            stdin=subprocess.PIPE,
            env=environment,
            text=True,
            # Ctrl-C reaches this process alone.
            start_new_session=True,
        )

    try:
        for name in commands:
            start(name)
        while running:
            for name, child in list(running.items()):
                code = child.poll()
                if code is None:
                    continue
                _stop(child)
                del running[name]
                if code != 0:
                    state = name, progress()
                    log(_restart(name, code, failures[state]))
                    failures[state] += 1
                    start(name)
            time.sleep(_POLL_SECONDS)
    finally:
        for child in running.values():
            _stop(child)


def _restart(name: str, code: int, restarts: int) -> str:
    """Describes a failure after `restarts`; raises a UserError if it is the last."""
    cause = f"{name} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
    if code in _FINAL_CODES:
        raise UserError(cause)
    if restarts == _MAX_RESTARTS:
        raise UserError(
            f"{cause} after {restarts} restarts without progress; re-run the same command to resume"
        )
    return f"{cause}; restart {restarts + 1} of {_MAX_RESTARTS}"
