"""A sweep from its first trial to its last: alone, or as chief and workers; resumed by the same command."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.config import BASELINE_NAMES
from tfr_moe.data import DataFolder
from tfr_moe.data.parsed import SPLITS, write_parsed
from tfr_moe.errors import UserError
from tfr_moe.folders import make_folder
from tfr_moe.training.run import check_names

from .chief import Chief, LeasedServicer
from .config import SweepConfig, load_sweep_config
from .hypermodel import RankingHyperModel, check_objective, check_options
from .oracles import STATE_FILE, DurableOracle, make_oracle
from .plan import CACHE_FOLDER, FINISHED_FILE, WORK_FOLDER, Plan
from .processes import LocalWorkers, run_job_in_process
from .records import SWEEP_FILE, Trial, load_trials, set_aside, write_trial
from .roles import Role
from .say import Say, printer
from .trial import failed, run_job
from .tuner import SweepTuner, job_of
from .worker import run_worker

LOCK_FILE = ".lock"
# What does not change a result may be another when a sweep goes on.
_EXECUTION = {"process_per_trial", "lease", "cache", "max_failures"}
_CHIEF_WAIT = 600.0


def tune(
    data: str | Path,
    out: str | Path,
    config: SweepConfig,
    console: Console | None = None,
    workers: int = 1,
    role: Role | None = None,
) -> list[Trial]:
    """Runs a sweep, or goes on with one that was stopped or killed.

    Args:
        data: the data-set folder; its test split is never opened.
        out: the sweep's folder.
        config: the sweep's settings.
        console: where progress goes; None for stderr.
        workers: processes that run trials at once on this machine; 1 is this process.
        role: chief or worker of a sweep over several machines, which all see `out`.

    Returns:
        All recorded trials; a worker returns those recorded so far.

    Raises:
        UserError: for settings, data or a folder that don't fit, before anything is trained; or when
            too many trials in a row have failed.
    """
    console, role = console or Console(stderr=True), role or Role()
    sweep, folder = Path(out), DataFolder(data)
    for split in SPLITS:
        folder.files(split)
    config = resolve(config, folder)
    if workers > 1 and role.kind != "single":
        raise UserError("--workers starts a chief itself; leave it out with --tuner-id")
    if role.kind == "worker":
        _await_sweep(sweep, printer(console))
        _same(sweep, config)
        run_worker(Plan.open(sweep), role, printer(console, role.tuner_id))
        return load_trials(sweep)
    _prepare(sweep, config)
    with _only_one(sweep):
        config.save(sweep / SWEEP_FILE)
        _run(Plan.open(sweep), console, workers, role)
    return load_trials(sweep)


def resolve(config: SweepConfig, folder: DataFolder) -> SweepConfig:
    """The configuration with nothing left open: data, objective, monitored metric, space.

    Raises:
        UserError: for what does not fit the data or the model.
    """
    base = config.base
    check_names(base)
    objective = check_objective(config.objective, base, folder.schema)
    if "monitor" in base.model_fields_set and base.monitor != objective.name:
        raise UserError(
            f"base: monitor is {base.monitor!r}, the objective {objective.name!r}: the best epoch is "
            "chosen by the objective, leave monitor out"
        )
    base = base.model_copy(update={"monitor": objective.name})
    hypermodel = RankingHyperModel(folder, base, config.space)
    check_options(hypermodel)
    for model in hypermodel.space.models(base):
        if model in BASELINE_NAMES and config.algorithm == "hyperband":
            raise UserError(
                f"algorithm hyperband: gives promising trials more epochs, {model} has none; "
                "take grid, random or bayesian"
            )
        check_objective(objective, base.model_copy(update={"model": model}), folder.schema)
    return config.model_copy(
        update={
            "base": base,
            "objective": objective,
            "space": hypermodel.space.description,
            "data": str(folder.path.resolve()),
        }
    )


# ------------------------------------------------------------------------------------- the folder


def _same(sweep: Path, config: SweepConfig) -> None:
    before = load_sweep_config(sweep / SWEEP_FILE).model_dump(mode="json")
    now = config.model_dump(mode="json")
    for key in now:
        if key in _EXECUTION or before[key] == now[key]:
            continue
        was, name, new = before[key], key, now[key]
        if key == "base":
            name = next(setting for setting in new if was.get(setting) != new[setting])
            was, new, name = was.get(name), new[name], f"base.{name}"
        raise UserError(
            f"sweep {sweep}: was begun with {name}={was!r}, not {new!r}; go on with the same "
            "configuration or choose another --out"
        )


def _prepare(sweep: Path, config: SweepConfig) -> None:
    if (sweep / SWEEP_FILE).is_file():
        _same(sweep, config)
    elif sweep.exists() and not _is_empty(sweep):
        raise UserError(f"sweep {sweep}: exists and holds no sweep; choose another --out")
    make_folder(sweep, f"sweep {sweep}")


def _is_empty(folder: Path) -> bool:
    """Whether it holds nothing but hidden files, which a command that was killed at once leaves."""
    return folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir())


@contextmanager
def _only_one(sweep: Path) -> Iterator[None]:
    """Refuses a second command on the same sweep; the kernel lets go when the first one dies."""
    with open(sweep / LOCK_FILE, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"sweep {sweep}: another command is at work on it") from error
        yield


def _await_sweep(sweep: Path, say: Say) -> None:
    deadline = time.monotonic() + _CHIEF_WAIT
    while not (sweep / SWEEP_FILE).is_file():
        if time.monotonic() > deadline:
            raise UserError(f"sweep {sweep}: no chief has begun it in {_CHIEF_WAIT:.0f} s")
        say(f"waiting for the chief to begin {sweep}")
        time.sleep(5)


# ------------------------------------------------------------------------------- chief, or all alone


def _run(plan: Plan, console: Console, workers: int, role: Role) -> None:
    say, sweep = printer(console), plan.path
    oracle = _open_oracle(plan, say, keep_ongoing=role.kind == "chief")
    if (sweep / FINISHED_FILE).is_file():
        say(f"sweep {sweep}: is finished already")
        return
    if plan.config.cache:
        with console.status("parsing the data once for all trials"):
            write_parsed(plan.hypermodel.folder, sweep / CACHE_FOLDER)
    oracle.on_end = _Count(plan, oracle, say)
    run_one = run_job_in_process if plan.config.process_per_trial else run_job
    # Its constructor names the hyper-parameters to the oracle, which a chief needs too.
    tuner = SweepTuner(oracle, plan.hypermodel, sweep, lambda job: run_one(plan, job, say), say)
    if workers > 1 or role.kind == "chief":
        _lead(plan, oracle, say, workers, role)
    else:
        tuner.search()
    if oracle.gave_up:
        raise UserError(
            f"sweep {sweep}: stopped, because {oracle.failures} trials in a row failed; the last: "
            f"{_last_error(sweep, oracle)}; the same command goes on with the next trial"
        )
    (sweep / FINISHED_FILE).touch()
    for path in (sweep / WORK_FOLDER, sweep / CACHE_FOLDER, *sweep.glob(".*.partial-*")):
        shutil.rmtree(path, ignore_errors=True)


def _open_oracle(plan: Plan, say: Say, keep_ongoing: bool) -> DurableOracle:
    """The search algorithm as it was left; ended trials without a readable record run again."""
    sweep, config = plan.path, plan.config
    oracle = make_oracle(config, sweep)
    known = {trial.trial_id for trial in load_trials(sweep, lambda line: say(f"warning: {line}"))}
    state = sweep / STATE_FILE
    if not state.is_file():
        return oracle
    try:
        oracle.reload(keep_ongoing)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        say(
            f"warning: {state}: cannot be read ({type(error).__name__}: {error}); set aside as "
            f"{set_aside(state).name}; recorded trials are not run again"
        )
        (sweep / FINISHED_FILE).unlink(missing_ok=True)
        return make_oracle(config, sweep)
    for trial_id in [trial_id for trial_id in oracle.end_order if trial_id not in known]:
        say(f"trial {trial_id}: has no record and is run again")
        oracle.reopen(trial_id)
        (sweep / FINISHED_FILE).unlink(missing_ok=True)
    if oracle.end_order or oracle._retry_queue:
        say(f"going on with {sweep}: {len(oracle.end_order)} trials have ended")
    return oracle


def _last_error(sweep: Path, oracle: DurableOracle) -> str | None:
    last = oracle.end_order[-1]
    return next((t.error for t in load_trials(sweep) if t.trial_id == last), None)


class _Count:
    """After each trial: how many are done, the best so far, and the time that is left."""

    def __init__(self, plan: Plan, oracle: DurableOracle, say: Say):
        self._oracle = oracle
        self._config = config = plan.config
        size = plan.hypermodel.space.size
        limits = [config.max_trials, size if config.algorithm != "hyperband" else None]
        self._total = min((n for n in limits if n is not None), default=None)
        self._say = say
        self._started = time.monotonic()
        self._before = len(oracle.end_order)

    def __call__(self, trial: Any) -> None:
        done = len(self._oracle.end_order)
        text = f"{done} of at most {self._total} trials" if self._total else f"{done} trials"
        best = self._oracle.get_best_trials(1)
        if best and best[0].score is not None:
            name = self._config.objective.name
            text += f"; best {name} {best[0].score:.4f} (trial {best[0].trial_id})"
        if self._total and done > self._before:
            each = (time.monotonic() - self._started) / (done - self._before)
            text += f"; at most {each * (self._total - done) / 60:.1f} min to go"
        self._say(text)


def _lead(plan: Plan, oracle: DurableOracle, say: Say, workers: int, role: Role) -> None:
    """Serves the oracle; with local workers starts and watches them."""

    def poison(trial: Any) -> None:
        reason = "its worker was lost again and again; out of memory?"
        write_trial(plan.path, failed(plan.config, job_of(trial, plan.hypermodel), reason))

    servicer = LeasedServicer(oracle, plan.config.lease, poison, say)
    chief = Chief(servicer, role.address or "127.0.0.1:0")
    if role.kind == "chief":
        say(f"chief at {chief.address}")
        chief.run(say)
        return

    def ended() -> int:
        return len(oracle.end_order)

    with LocalWorkers(workers, plan.path, chief.address, servicer.lose, ended) as team:
        chief.run(say, team.watch)
