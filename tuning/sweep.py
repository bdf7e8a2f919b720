"""Runs a sweep from its first trial to its last; resumable, by any number of commands at a time.

Trials run in this process, or in worker processes that are restarted: as a program, `python -m
tfr_moe.tuning.sweep SWEEP DATA NAME`, it is such a worker.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tfr_moe.baselines.run import MODULES
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import EXIT_USAGE, UserError, error_line
from tfr_moe.metrics.naming import check_columns
from tfr_moe.schema import FeatureSchema
from tfr_moe.training.run import check_names, make_scorer
from tfr_moe.utils.console import make_log
from tfr_moe.utils.formats import mean, setting
from tfr_moe.utils.processes import exit_with_parent, supervise

from .config import SweepConfig
from .hypermodel import RankingHyperModel
from .search import Search
from .sweep_folder import WORK_FOLDER, Trial, TrialJob, load_trials, prepare_folder, trial_files
from .trial import Log, SweepContext, run_job

_POLL_SECONDS = 0.5


def tune(
    data: str | Path,
    out: str | Path,
    config: SweepConfig,
    console: Console | None = None,
    workers: int = 0,
) -> list[Trial]:
    """Runs a sweep, resumes an interrupted one, or joins a running one; returns all its trials.

    Args:
        data: the data-set folder; its test split is not opened.
        out: the sweep's folder. Several machines that see it share the trials.
        workers: number of processes that run trials, restarted if they crash; 0 runs the trials in
            this process.

    Raises:
        UserError: for a configuration, data set or folder that do not fit, before anything is
            trained; or after too many failed trials in a row.
    """
    sweep, folder = Path(out), DataFolder(data)
    log = make_log(console or Console(stderr=True))
    prepare_folder(sweep, resolve(config, folder))
    context = SweepContext.open(sweep, folder.path)
    search = Search(context)
    for trial_id in search.reopen_unrecorded():
        log(f"trial {trial_id}: has no record and is run again")
    if search.ended_before:
        log(f"resuming {sweep}: {search.ended_before} trials have ended")
    if workers:
        run_workers(workers, context, log)
    else:
        run_jobs(context, search, worker_name(0), log)
    trials, failures = load_trials(sweep), search.failures()
    if failures:
        error = next((t.error for t in trials if t.trial_id == failures[-1]), None)
        raise UserError(
            f"sweep {sweep}: stopped after {len(failures)} failed trials in a row; the last: "
            f"{error}; re-run the same command to continue with the next trial"
        )
    shutil.rmtree(sweep / WORK_FOLDER, ignore_errors=True)
    return trials


def resolve(config: SweepConfig, folder: DataFolder) -> SweepConfig:
    """The configuration with data, objective, monitored metric and space filled in.

    Raises a UserError for what does not fit the data or the model.
    """
    base, objective = config.base, config.objective
    _check_objective(objective, base, folder.schema)
    if "monitor" in base.training.model_fields_set and base.training.monitor != objective:
        raise UserError(
            f"base: monitor must be the objective {objective!r} or omitted. Received: "
            f"monitor={base.training.monitor!r}"
        )
    if "monitor" in base.spec.settings:
        base = base.replace(monitor=objective)
    hypermodel = RankingHyperModel(folder, base, config.space)
    space = hypermodel.space
    _check_run(folder, config, hypermodel.make_config({"model": space.models(base)[0]}))
    for name, options in space.choices.items():
        for value, settings in options.items():
            try:
                _check_run(folder, config, hypermodel.make_config(settings))
            except UserError as error:
                raise UserError(f"space: {name} = {value}: {error}") from error
    return config.model_copy(
        update={
            "base": base,
            "data": str(folder.path.resolve()),
            "data_fingerprint": folder.fingerprint,
        }
    )


def _check_run(folder: DataFolder, config: SweepConfig, run: RunConfig) -> None:
    """Rejects a run that does not fit the data, the objective or the algorithm."""
    check_names(run, folder.schema)
    _check_objective(config.objective, run, folder.schema)
    if run.model not in BASELINE_NAMES:
        make_scorer(folder, run)
        return
    if config.algorithm == "hyperband":
        raise UserError(
            f"algorithm hyperband needs epochs, {run.model} has none; use grid, random or bayesian"
        )
    MODULES[run.model].settings_of(run.baseline.library_parameters, run.seed)


def _check_objective(objective: str, base: RunConfig, schema: FeatureSchema) -> None:
    """Rejects an objective that runs do not report.

    With several tasks they report the metrics of each (`click_ndcg`) and their means (`ndcg`).
    Baselines are evaluated by any metric.
    """
    if base.model in BASELINE_NAMES:
        if objective == "loss":
            raise UserError(f"objective 'loss': not reported by runs of {base.model}")
        check_columns([objective], schema.position, schema.weight)
        return
    tasks = base.replace(monitor="loss").tasks_over(schema)
    names = [f"{task.name}_{metric}" for task in tasks for metric in task.metrics]
    names += [metric for task in tasks for metric in task.metrics]
    names = names if tasks else list(base.training.metrics)
    names += ["loss"]
    if objective not in names:
        raise UserError(
            f"objective {objective!r}: not reported by runs of {base.model}; allowed: "
            f"{', '.join(dict.fromkeys(names))} (base.metrics adds others)"
        )


def worker_name(number: int) -> str:
    """The name of a worker and, after `@`, of the command that started it."""
    return f"worker-{number}@{socket.gethostname()}:{os.getpid()}"


def run_jobs(context: SweepContext, search: Search, worker: str, log: Log) -> None:
    """Runs trials until the search is over, as the worker of a `worker_name`."""
    # The objects of the frameworks stay; to search them after each trial takes 0.3 s.
    gc.freeze()
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
    """
    program = [sys.executable, "-m", "tfr_moe.tuning.sweep"]
    folders = [str(context.path), str(context.hypermodel.folder.path)]
    names = [worker_name(number) for number in range(1, count + 1)]
    commands = {name: [*program, *folders, name] for name in names}
    supervise(commands, progress=lambda: len(trial_files(context.path)), log=log)


def main(arguments: Sequence[str]) -> None:
    """Runs the trials of a worker process."""
    sweep, data, worker = arguments
    exit_with_parent()
    log = make_log(Console(stderr=True), worker.partition("@")[0])
    context = SweepContext.open(Path(sweep), Path(data))
    run_jobs(context, Search(context), worker, log)


if __name__ == "__main__":
    code = 0
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        code = EXIT_USAGE
    sys.stderr.flush()
    # The thread of `exit_with_parent` would delay a normal exit.
    os._exit(code)
