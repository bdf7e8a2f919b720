"""The folder of a sweep: its files, the records of its trials, and its locks.

```
SWEEP/
  sweep.yaml                    the resolved sweep configuration
  trials/0003/trial.json        a `Trial`, written in one step when it ends
  oracle.json                   state of the search
  work/                         while the sweep runs
  work/0003.lock                locked by the worker that runs the trial, and names who has tried
```
"""

from __future__ import annotations

import dataclasses
import fcntl
import math
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError, validated
from tfr_moe.utils.io import make_folder, read_json, write_json

from .config import SweepConfig, load_sweep_config

SWEEP_FILE = "sweep.yaml"
TRIALS_FOLDER = "trials"
_TRIAL_FILE = "trial.json"
WORK_FOLDER = "work"

# Settings that do not change a result may change when a sweep is resumed.
_EXECUTION = {"data", "cache", "max_failures"}


@dataclass(frozen=True)
class TrialJob:
    """A trial to run; `hyperparameters` and `budget` are those of its `Trial`.

    `attempts` counts the workers of this command that have started it, this one included.
    """

    trial_id: str
    hyperparameters: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1


@dataclass(frozen=True)
class SeedResult:
    """One training run of a trial.

    Attributes:
        metrics: validation metrics of the best epoch by name: `session_auc`, `loss`, ...
        best_epoch: counted from 1.
        history: an entry per epoch: `epoch`, training values (`loss`, `gate_entropy`) and
            validation values (`val_loss`, `val_session_auc`).
    """

    seed: int
    metrics: dict[str, float]
    best_epoch: int
    epochs: int
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """One point of the search space with its results.

    Attributes:
        hyperparameters: the `RunConfig` settings that the space varies, by name.
        seeds: one result per seed; empty if the trial failed.
        mean: of the objective over the seeds; None if the trial failed.
        std: sample standard deviation (n - 1) over the seeds; None with fewer than two.
        error: the reason for a failure in one line; None if the trial completed.
        budget: epochs that Hyperband granted: `epochs`, `initial_epoch`, `bracket`, `round` and
            `continues`, the trial whose training it continues.
    """

    trial_id: str
    hyperparameters: dict[str, Any]
    seeds: list[SeedResult]
    mean: float | None
    std: float | None
    error: str | None = None
    budget: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it has no finite result."""
        return self.error is not None or self.mean is None or not math.isfinite(self.mean)


def ended_trial(
    job: TrialJob, objective: str, seeds: list[SeedResult], error: str | None = None
) -> Trial:
    """The record of a job with the mean and deviation of the objective over its seeds."""
    values = [seed.metrics[objective] for seed in seeds]
    mean = statistics.fmean(values) if values else None
    std = statistics.stdev(values) if len(values) > 1 else None
    return Trial(job.trial_id, job.hyperparameters, seeds, mean, std, error, job.budget)


def trial_file(sweep: Path, trial_id: str) -> Path:
    """Path of a trial's record."""
    return sweep / TRIALS_FOLDER / trial_id / _TRIAL_FILE


def trial_files(sweep: Path) -> list[Path]:
    """Paths of the records so far, in the order of their IDs."""
    return sorted((sweep / TRIALS_FOLDER).glob(f"*/{_TRIAL_FILE}"))


def write_trial(sweep: Path, trial: Trial) -> None:
    """Records a trial that has ended."""
    path = trial_file(sweep, trial.trial_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, dataclasses.asdict(trial))


def read_trial(path: Path) -> Trial:
    """Reads one record; a `UserError` if it is not JSON or not a trial."""
    try:
        return validated(Trial, read_json(path, Any), str(path))
    except UserError as error:
        raise UserError(f"trial {error}; delete it to run the trial again") from error


def load_trials(sweep: str | Path) -> list[Trial]:
    """Loads all recorded trials of a sweep, ordered by ID.

    Raises:
        UserError: if there is no such sweep, or a record is not valid.
    """
    sweep = Path(sweep)
    if not (sweep / SWEEP_FILE).is_file():
        raise UserError(f"sweep {sweep}: no such sweep ({SWEEP_FILE} is missing)")
    return [read_trial(path) for path in trial_files(sweep)]


def _check_same_config(sweep: Path, config: SweepConfig) -> None:
    """Rejects a configuration other than the one that the sweep was started with."""
    before = load_sweep_config(sweep / SWEEP_FILE).model_dump(mode="json")
    now = config.model_dump(mode="json")
    check_same_data(sweep, before["data_fingerprint"], config.data_fingerprint)
    # The objective also changes `base.monitor`.
    for key in ("objective", *now):
        if key in _EXECUTION or before[key] == now[key]:
            continue
        name, old, new = key, before[key], now[key]
        if key == "base":
            setting = next(each for each in new if old.get(each) != new[each])
            name, old, new = f"base.{setting}", old.get(setting), new[setting]
        raise UserError(
            f"sweep {sweep}: was started with {name}={old!r}. Received: {name}={new!r}; use the "
            "same configuration or another folder"
        )


def check_same_data(sweep: Path, before: str | None, now: str | None) -> None:
    """Rejects a data set with another fingerprint than at the start: results would not compare."""
    if before != now:
        raise UserError(
            f"sweep {sweep}: was started with another data set, or the data set was built again "
            "since; use another folder for the sweep"
        )


def prepare_folder(sweep: Path, config: SweepConfig) -> None:
    """Makes the folder with its `sweep.yaml`, or rejects one that holds anything but this sweep."""
    # A command that was killed early leaves hidden files only.
    others = not sweep.is_dir() or any(path.name[0] != "." for path in sweep.iterdir())
    if sweep.exists() and others and not (sweep / SWEEP_FILE).is_file():
        raise UserError(f"sweep {sweep}: exists and is not a sweep; use another folder")
    make_folder(sweep, f"sweep {sweep}")
    with locked(sweep):
        if (sweep / SWEEP_FILE).is_file():
            _check_same_config(sweep, config)
        config.save(sweep / SWEEP_FILE)


@contextmanager
def locked(sweep: Path) -> Iterator[None]:
    """Waits for the lock on a sweep and holds it; the kernel unlocks it when the process dies."""
    with open(sweep / ".lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def try_lock(path: Path, held: ExitStack, worker: str) -> int:
    """Locks a file until `held` is left, and notes the worker in it, `NAME@COMMAND`.

    Returns how many workers of the same command have locked the file, this one included; 0 if it is
    locked by another process.
    """
    path.parent.mkdir(exist_ok=True)
    with ExitStack() as opened:
        file = opened.enter_context(open(path, "a+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        file.write(f"{worker}\n")
        file.flush()
        file.seek(0)
        command = worker.rpartition("@")[2]
        held.push(opened.pop_all())
        return sum(line.rstrip("\n").rpartition("@")[2] == command for line in file)
