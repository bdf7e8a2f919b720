"""Child processes: started, watched, restarted and stopped, and never outliving their parent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_USAGE, UserError

_FINAL_CODES = (EXIT_USAGE, EXIT_INTERRUPTED)
_MAX_RESTARTS = 3  # of a command without progress
_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0


def exit_with_parent() -> None:
    """Ends this process when its parent dies, however the parent dies.

    For commands that a `Supervisor` starts: the kernel closes their standard input with the parent.
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


@dataclass(frozen=True)
class ChildCommand:
    """A command line to run as a child process; its program calls `exit_with_parent`.

    The name is unique among the commands of a supervisor.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Runs commands as child processes and restarts each one that fails, up to three times.

    A user error (exit code 2) and Ctrl-C (130) are not retried. Leaving the `with` block, also by
    Ctrl-C, stops all children; they end too if this process is killed.

    Args:
        commands: what to run.
        progress: returns a value that changes when work gets done, from which restarts are counted.
        log: receives a line for each restart.
    """

    def __init__(
        self,
        commands: Sequence[ChildCommand],
        progress: Callable[[], object] = lambda: None,
        log: Callable[[str], None] = lambda line: None,
    ):
        self._commands = {command.name: command for command in commands}
        self._progress = progress
        self._log = log
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._failures: dict[str, list[object]] = {}

    def __enter__(self) -> Supervisor:
        for name in self._commands:
            self._start(name)
        return self

    def __exit__(self, *exception: object) -> None:
        for child in self._running.values():
            _stop(child)

    def run(self) -> None:
        """Waits until all commands are done; a UserError names a command that failed too often."""
        while self._running:
            for name, child in list(self._running.items()):
                code = child.poll()
                if code is None:
                    continue
                _stop(child)
                del self._running[name]
                if code != 0:
                    self._count_failure(name, code)
                    self._start(name)
            time.sleep(_POLL_SECONDS)

    def _start(self, name: str) -> None:
        command = self._commands[name]
        self._running[name] = subprocess.Popen(
            list(command.arguments),
            stdin=subprocess.PIPE,
            env={**os.environ, **command.environment},
            text=True,
            # Ctrl-C reaches this process alone.
            start_new_session=True,
        )

    def _count_failure(self, name: str, code: int) -> None:
        cause = f"{name} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        if code in _FINAL_CODES:
            raise UserError(cause)
        progress = self._progress()
        failures = [each for each in self._failures.get(name, []) if each == progress]
        self._failures[name] = [*failures, progress]
        if len(failures) >= _MAX_RESTARTS:
            times = f" after {len(failures)} restarts without progress" if failures else ""
            raise UserError(f"{cause}{times}; re-run the same command to resume")
        self._log(f"{cause}; restart {len(failures) + 1} of {_MAX_RESTARTS}")
