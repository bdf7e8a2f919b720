"""Runs trials of a sweep, in this process or in worker processes that are restarted.

As a program, `python -m tfr_moe.tuning.workers SWEEP DATA NAME`, it is such a worker process.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tfr_moe.errors import EXIT_INTERRUPTED, EXIT_USAGE, UserError, error_line
from tfr_moe.utils.console import make_log
from tfr_moe.utils.formats import mean, setting
from tfr_moe.utils.processes import ChildCommand, Supervisor, exit_with_parent, share_of_cores

from .search import Search
from .sweep_folder import TRIAL_FILE, TRIALS_FOLDER, Trial, TrialJob
from .trial import Log, SweepContext, run_job

_POLL_SECONDS = 0.5


def worker_name(number: int) -> str:
    """The name of a worker and, after `@`, of the command that started it."""
    return f"worker-{number}@{socket.gethostname()}:{os.getpid()}"


def run_jobs(context: SweepContext, search: Search, worker: str, log: Log) -> None:
    """Runs trials until the search is over, as the worker of a `worker_name`."""
    waiting = False
    while True:
        with search.next_job(worker) as job:
            if job == "stop":
                return
            if isinstance(job, TrialJob):
                waiting = False
                log(_description(job))
                trial = run_job(context, job, log)
                log(_outcome(trial, context.config.objective))
                log(search.end_job(job.trial_id, trial.mean))
                continue
        if not waiting:
            log("waiting for trials of other workers")
        waiting = True
        time.sleep(_POLL_SECONDS)


def _description(job: TrialJob) -> str:
    values = "  ".join(f"{name} {setting(v)}" for name, v in job.hyperparameters.items())
    rounds = f", up to epoch {job.budget['epochs']}" if job.budget else ""
    return f"trial {job.trial_id}: {values}{rounds}"


def _outcome(trial: Trial, objective: str) -> str:
    if trial.mean is None:
        return f"trial {trial.trial_id} failed: {trial.error}"
    seconds = sum(seed.seconds for seed in trial.seeds)
    result = f"{objective} {mean(trial.mean, trial.std)}"
    return f"trial {trial.trial_id}: {result} in {seconds:.0f} s"


def run_workers(count: int, context: SweepContext, log: Log) -> None:
    """Runs trials in processes on this machine until the search is over.

    A worker that dies is restarted; it may die three times without a trial having ended.

    Raises:
        UserError: if a worker cannot run.
    """

    def ended() -> int:
        return len(list((context.path / TRIALS_FOLDER).glob(f"*/{TRIAL_FILE}")))

    program = [sys.executable, "-m", "tfr_moe.tuning.workers"]
    folders = [str(context.path), str(context.hypermodel.folder.path)]
    names = [worker_name(number) for number in range(1, count + 1)]
    commands = [
        ChildCommand(name, [*program, *folders, name], share_of_cores(count)) for name in names
    ]
    with Supervisor(commands, progress=ended, log=log) as supervisor:
        supervisor.run()


def main(arguments: Sequence[str]) -> None:
    """Runs the trials of a worker process."""
    sweep, data, worker = arguments
    exit_with_parent()
    log = make_log(Console(stderr=True), worker.partition("@")[0])
    context = SweepContext.open(Path(sweep), Path(data))
    run_jobs(context, Search(context, log), worker, log)


if __name__ == "__main__":
    code = 0
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        code = EXIT_USAGE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.stderr.flush()
    # The thread of `exit_with_parent` would delay a normal exit.
    os._exit(code)
