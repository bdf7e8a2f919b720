"""All tasks of a cluster as processes of this machine: to try a training on several workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfr_moe.children import stop
from tfr_moe.cluster import TF_CONFIG, Cluster, Task
from tfr_moe.errors import UserError

LOST = 75
"""Exit code of a worker that lost the others: it is not the one to blame."""
_POLL = 0.1
_BLAME = 3.0
_LEAVE = 60.0


class _Worker:
    """A running task whose lines are passed on with its name before them."""

    def __init__(self, task: Task, command: Sequence[str], environment: dict[str, str]):
        self.task = task
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
            # Ctrl-C is for the process that started them, which ends them in order.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._pass_on, args=(sys.stderr,), daemon=True)
        self._reader.start()

    def _pass_on(self, target: Any) -> None:
        for line in self.process.stdout or ():
            if line.strip():
                print(f"[{self.task}] {line.rstrip()}", file=target, flush=True)

    def end(self) -> None:
        """Ends it, and waits for its last lines."""
        stop(self.process)
        self._reader.join(timeout=5)


def _environment(cluster: Cluster) -> dict[str, str]:
    cores = max((os.cpu_count() or 1) // len(cluster.tasks), 1)
    shared = {"TF_NUM_INTRAOP_THREADS": str(cores), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**shared, **os.environ, TF_CONFIG: cluster.to_json(), "PYTHONUNBUFFERED": "1"}


def run_local_workers(cluster: Cluster, command: Callable[[Task], Sequence[str]]) -> None:
    """Runs a command per task until the leader is done; when one fails, all are ended.

    Each process finds its place in `TF_CONFIG`, and must call `tfr_moe.children.end_with_parent`. What
    they print goes to stderr, each line with the task before it.

    Args:
        cluster: on this machine, see `tfr_moe.cluster.local_cluster`.
        command: gives the command line of a task.

    Raises:
        UserError: naming the task that failed and how.
    """
    running: list[_Worker] = []
    try:
        for task in cluster.tasks:
            environment = _environment(cluster.of(task))
            running.append(_Worker(task, list(command(task)), environment))
        _wait(cluster, running)
    finally:
        for worker in running:
            worker.end()


def _wait(cluster: Cluster, running: Sequence[_Worker]) -> None:
    deadline: float | None = None
    while True:
        codes = {worker.task: worker.process.poll() for worker in running}
        if any(code not in (None, 0) for code in codes.values()):
            # The first to be seen gone may only have lost the one that failed.
            time.sleep(_BLAME if LOST in codes.values() else _POLL)
            raise _failure({w.task: w.process.poll() for w in running})
        if codes[cluster.leader] == 0:
            deadline = deadline or time.monotonic() + _LEAVE
            if None not in codes.values() or time.monotonic() > deadline:
                return
        time.sleep(_POLL)


def _failure(codes: dict[Task, int | None]) -> UserError:
    failed = {task: code for task, code in codes.items() if code not in (None, 0)}
    task = min(failed, key=lambda task: (failed[task] == LOST, failed[task]))
    code = failed[task] or 0
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return UserError(f"{task} {how}, so the others were ended; the same command goes on")
