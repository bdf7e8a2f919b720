"""Processes below a sweep's command: one per trial, and the workers of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfr_moe.children import stop
from tfr_moe.errors import INTERRUPTED, UserError

from .plan import Plan
from .records import Trial, write_trial
from .roles import Role
from .say import Say
from .trial import Check, Job, failed, recorded

_POLL = 0.2
_RESTARTS = 3
_INTERRUPTED = (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


def _start(kind: str, sweep: Path, environment: dict[str, str] | None = None) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "tfr_moe.tuning.child", kind, str(sweep)],
        stdin=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        text=True,
    )


def run_job_in_process(plan: Plan, job: Job, say: Say, check: Check = lambda: None) -> Trial:
    """Like `run_job`, in a process of its own: its memory goes with it, and a crash fails one trial."""
    sweep = plan.path
    done = recorded(sweep, job, say)
    if done is not None:
        return done
    process = _start("trial", sweep)
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
            process.stdin.flush()
        while process.poll() is None:
            check()
            try:
                process.wait(timeout=_POLL)
            except subprocess.TimeoutExpired:
                continue
    finally:
        stop(process)
    done = recorded(sweep, job, say)
    if done is not None:
        return done
    if process.returncode in _INTERRUPTED:
        raise KeyboardInterrupt
    ended = process.returncode
    how = f"by signal {-ended}" if ended < 0 else f"with exit code {ended}"
    trial = failed(plan.config, job, f"its process ended {how}; out of memory?")
    write_trial(sweep, trial)
    return trial


class LocalWorkers:
    """Workers of a chief on this machine; one that is gone is started again.

    Args:
        count: how many.
        sweep: the sweep's folder.
        address: HOST:PORT of the chief.
        on_gone: called with the name of a worker that has died.
        progress: number of trials that have ended; workers that die without any are given up.

    Example:
        with LocalWorkers(2, sweep, chief.address, servicer.lose, ended) as workers:
            chief.run(say, workers.watch)
    """

    def __init__(
        self,
        count: int,
        sweep: Path,
        address: str,
        on_gone: Callable[[str], None],
        progress: Callable[[], int],
    ):
        self._sweep = sweep
        self._on_gone = on_gone
        self._progress = progress
        self._deaths: dict[str, list[int]] = {}
        cores = max((os.cpu_count() or 1) // count, 1)
        self._environments = {
            role.tuner_id: {
                **role.environment(),
                "TF_NUM_INTRAOP_THREADS": os.environ.get("TF_NUM_INTRAOP_THREADS", str(cores)),
                "TF_FORCE_GPU_ALLOW_GROWTH": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
            }
            for role in (Role("worker", f"worker-{n}", address) for n in range(1, count + 1))
        }
        self.running: dict[str, Any] = {}

    def __enter__(self) -> LocalWorkers:
        for name in self._environments:
            self._launch(name)
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.running.values():
            stop(process)

    def _launch(self, name: str) -> None:
        self.running[name] = _start("worker", self._sweep, self._environments[name])

    def watch(self) -> None:
        """Looks after the workers; to be called again and again.

        Raises:
            UserError: if a worker dies again and again while no trial ends.
        """
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            if process.returncode == 0:
                continue
            self._on_gone(name)
            ended = self._progress()
            deaths = [n for n in self._deaths.get(name, []) if n == ended] + [ended]
            self._deaths[name] = deaths
            if len(deaths) > _RESTARTS:
                raise UserError(
                    f"{name}: died {len(deaths)} times (exit code {process.returncode}) and no "
                    "trial ended meanwhile; the same command goes on once the cause is gone"
                )
            self._launch(name)
