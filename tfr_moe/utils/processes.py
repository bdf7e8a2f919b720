"""Child processes: started, watched, restarted and stopped, and never outliving their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_USAGE, UserError

_FINAL_CODES = (EXIT_USAGE, EXIT_INTERRUPTED)
_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0
# A lost peer may be noticed before the process that died.
_SETTLE_SECONDS = 3.0
_LEADER_GRACE_SECONDS = 60.0


def exit_with_parent() -> None:
    """Ends this process when its parent dies, however the parent dies.

    For commands that a `Supervisor` or `ChildProcess` starts: the kernel closes their standard
    input with the parent. Also works as the `initializer` of a process pool.
    """
    parent = multiprocessing.parent_process()

    def wait() -> None:
        try:
            if parent is not None:
                parent.join()
            else:
                while sys.stdin.read(1):
                    pass
        finally:
            os._exit(1)

    threading.Thread(target=wait, name="exit-with-parent", daemon=True).start()


def stop(process: subprocess.Popen[Any], patience: float = _STOP_SECONDS) -> None:
    """Stops a process by closing its standard input, and kills it if that takes too long.

    Args:
        process: started with a pipe as standard input; its program has called `exit_with_parent`.
        patience: seconds until it is killed.
    """
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def share_of_cores(num_processes: int) -> dict[str, str]:
    """Environment variables by which TensorFlow processes share this machine.

    Variables that are set already keep their values.

    Example:
        >>> sorted(share_of_cores(2))
        ['TF_FORCE_GPU_ALLOW_GROWTH', 'TF_NUM_INTRAOP_THREADS']
    """
    cores = max((os.cpu_count() or 1) // num_processes, 1)
    shared = {"TF_NUM_INTRAOP_THREADS": str(cores), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {name: os.environ.get(name, value) for name, value in shared.items()}


def describe_exit(code: int) -> str:
    """How a process ended.

    Example:
        >>> describe_exit(3), describe_exit(-9)
        ('exit code 3', 'signal 9')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True)
class ChildCommand:
    """A command to run as a child process.

    Attributes:
        name: unique among the commands of a supervisor.
        arguments: the command line; its program calls `exit_with_parent`.
        environment: variables that are added to those of this process.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class ChildProcess:
    """A running command, in a session of its own so that Ctrl-C reaches this process alone.

    Args:
        command: what to run.
        prefix_output: copy the lines that it prints to stderr, each after `[name] `.
        first_line: written to its standard input.
    """

    def __init__(self, command: ChildCommand, prefix_output: bool = False, first_line: str = ""):
        output: dict[str, Any] = {}
        if prefix_output:
            output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._name = command.name
        self._process = subprocess.Popen(
            list(command.arguments),
            stdin=subprocess.PIPE,
            env={**os.environ, **command.environment},
            text=True,
            errors="replace",
            start_new_session=True,
            **output,
        )
        self._reader = threading.Thread(target=self._copy_output, daemon=True)
        self._reader.start()
        if first_line and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(first_line + "\n")
                self._process.stdin.flush()

    def _copy_output(self) -> None:
        for line in self._process.stdout or ():
            if line.strip():
                print(f"[{self._name}] {line.rstrip()}", file=sys.stderr, flush=True)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Waits for its end, at most for this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)

    def stop(self) -> None:
        """Stops it and waits for its last lines."""
        stop(self._process)
        self._reader.join(timeout=5)


class Supervisor:
    """Runs commands as child processes and restarts those that fail.

    Without a leader the commands are independent, and each is restarted alone. With one they form a
    group: when any fails, all are stopped and started again, and the group is done when the leader
    has exited with code 0. A user error (exit code 2) and Ctrl-C (130) are not retried. Leaving the
    `with` block, also by Ctrl-C, stops all children; they end too if this process is killed.

    Args:
        commands: what to run.
        leader: name of the command whose success ends the group; None for independent commands.
        max_processes: how many independent commands run at a time; None for all.
        max_restarts: restarts of a command, or of the group, without progress.
        progress: returns a value that changes when work gets done; None counts all restarts.
        prefix_output: copy the children's lines to stderr, each after `[name] `.
        on_failure: called with the name of an independent command that failed, before its restart.
        log: receives a line for each restart.

    Example:
        >>> hello = ChildCommand("hello", [sys.executable, "-c", "print('hello')"])
        >>> with Supervisor([hello], prefix_output=True) as supervisor:
        ...     supervisor.run()
    """

    def __init__(
        self,
        commands: Sequence[ChildCommand],
        leader: str | None = None,
        max_processes: int | None = None,
        max_restarts: int = 3,
        progress: Callable[[], object] = lambda: None,
        prefix_output: bool = False,
        on_failure: Callable[[str], None] = lambda name: None,
        log: Callable[[str], None] = lambda line: None,
    ):
        self._commands = {command.name: command for command in commands}
        self._leader = leader
        self._max_processes = max_processes
        self._max_restarts = max_restarts
        self._progress = progress
        self._prefix_output = prefix_output
        self._on_failure = on_failure
        self._log = log
        self._waiting = list(self._commands)
        self._running: dict[str, ChildProcess] = {}
        self._failures: dict[str, list[object]] = {}
        self._deadline: float | None = None

    def __enter__(self) -> Supervisor:
        self._start_waiting()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops all children."""
        for child in self._running.values():
            child.stop()

    def run(self) -> None:
        """Waits until all commands are done.

        Raises:
            UserError: naming a command that failed too often.
        """
        while not self.poll():
            time.sleep(_POLL_SECONDS)

    def poll(self) -> bool:
        """Restarts what has failed and starts what is due; True once everything is done.

        Raises:
            UserError: naming a command that failed too often.
        """
        return self._poll_each() if self._leader is None else self._poll_group(self._leader)

    def _start_waiting(self) -> None:
        limit = self._max_processes or len(self._commands)
        while self._waiting and len(self._running) < limit:
            command = self._commands[self._waiting.pop(0)]
            self._running[command.name] = ChildProcess(command, self._prefix_output)

    def _poll_each(self) -> bool:
        for name, child in list(self._running.items()):
            code = child.exit_code
            if code is None:
                continue
            child.stop()
            del self._running[name]
            if code != 0:
                self._on_failure(name)
                self._count_failure(name, name, code)
                self._waiting.insert(0, name)
        self._start_waiting()
        return not self._running

    def _poll_group(self, leader: str) -> bool:
        codes = self._exit_codes()
        if any(code not in (None, 0) for code in codes.values()):
            time.sleep(_SETTLE_SECONDS if EXIT_PEER_LOST in codes.values() else _POLL_SECONDS)
            codes = self._exit_codes()
        if codes[leader] == 0:
            self._deadline = self._deadline or time.monotonic() + _LEADER_GRACE_SECONDS
            return None not in codes.values() or time.monotonic() > self._deadline
        failed = {name: code for name, code in codes.items() if code not in (None, 0)}
        if failed:
            # Blame a process that failed by itself rather than one that lost it.
            name = min(failed, key=lambda name: (failed[name] == EXIT_PEER_LOST, failed[name]))
            self.stop()
            self._count_failure("group", name, failed[name] or 0)
            self._running, self._waiting = {}, list(self._commands)
            self._start_waiting()
        return False

    def _exit_codes(self) -> dict[str, int | None]:
        return {name: child.exit_code for name, child in self._running.items()}

    def _count_failure(self, counter: str, name: str, code: int) -> None:
        cause = f"{name} ended with {describe_exit(code)}"
        if code in _FINAL_CODES:
            raise UserError(cause)
        progress = self._progress()
        failures = [each for each in self._failures.get(counter, []) if each == progress]
        self._failures[counter] = [*failures, progress]
        if len(failures) >= self._max_restarts:
            times = f" after {len(failures)} restarts without progress" if failures else ""
            raise UserError(f"{cause}{times}; re-run the same command to resume")
        self._log(f"{cause}; restart {len(failures) + 1} of {self._max_restarts}")
