"""What a sweep writes down: one `trials/<trial_id>/trial.json` per trial, complete or not there.

```
SWEEP/
  sweep.yaml                    the resolved sweep configuration
  trials/0003/trial.json        a Trial, written under a temporary name and renamed when it ends
  trials/0003/trial.json.corrupt    what could not be read, set aside
```
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from tfr_moe.errors import UserError, describe
from tfr_moe.folders import write_json

SWEEP_FILE = "sweep.yaml"
TRIALS_FOLDER = "trials"
TRIAL_FILE = "trial.json"

Direction = Literal["max", "min"]
Status = Literal["completed", "failed"]


@dataclass(frozen=True)
class SeedResult:
    """One training within a trial.

    Attributes:
        seed: of initialisation, shuffling and noise.
        metrics: validation metrics of the best epoch by their names: `session_auc`, `loss`, ...
        best_epoch: counted from 1.
        epochs: how many were trained.
        seconds: of wall clock.
        history: an entry per epoch: `epoch`, training values (`loss`) and validation values
            (`val_loss`, `val_session_auc`).
    """

    seed: int
    metrics: dict[str, float]
    best_epoch: int
    epochs: int
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class ObjectiveResult:
    """The objective over the seeds of a trial.

    Attributes:
        name: of the metric, as in `SeedResult.metrics`.
        mean: over the seeds; None where the trial failed.
        std: sample standard deviation (n - 1) over the seeds; None with fewer than two.
        direction: `max` where higher is better.
    """

    name: str
    mean: float | None
    std: float | None
    direction: Direction


@dataclass(frozen=True)
class Trial:
    """One setting of the hyper-parameters and what came of it.

    Attributes:
        trial_id: name of its folder.
        hyperparameters: what the space varies, by name: settings of a run under their own names
            (`hsc_weight`, `num_experts`) and labels such as `gate_input: "TC+SC"`.
        status: `completed`, or `failed` with the reason in `error`.
        seeds: one result per seed, in order.
        objective: over the seeds.
        error: one line; None where the trial completed.
        settings: settings of `RunConfig` that the hyper-parameters come to; with the base settings
            of the sweep they are the configuration of the trial.
        budget: how long the search algorithm let it train where that differs between trials
            (Hyperband): `epochs`, `initial_epoch`, `bracket`, `round` and perhaps `continues`, the
            trial whose training it goes on with.
    """

    trial_id: str
    hyperparameters: dict[str, Any]
    status: Status
    seeds: list[SeedResult]
    objective: ObjectiveResult
    error: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)


_TRIAL: TypeAdapter[Trial] = TypeAdapter(Trial)


def summarize(name: str, direction: Direction, seeds: Sequence[SeedResult]) -> ObjectiveResult:
    """Mean and sample standard deviation of a metric over seeds.

    Example:
        >>> runs = [SeedResult(s, {"ndcg": v}, 1, 1, 0.0) for s, v in [(1, 0.5), (2, 0.7)]]
        >>> found = summarize("ndcg", "max", runs)
        >>> round(found.mean, 3), round(found.std, 3)
        (0.6, 0.141)
    """
    values = [seed.metrics[name] for seed in seeds]
    mean = statistics.fmean(values) if values else None
    std = statistics.stdev(values) if len(values) > 1 else None
    return ObjectiveResult(name, mean, std, direction)


def trial_file(sweep: Path, trial_id: str) -> Path:
    """Where a trial is recorded."""
    return sweep / TRIALS_FOLDER / trial_id / TRIAL_FILE


def write_trial(sweep: Path, trial: Trial) -> None:
    """Records a trial that has ended."""
    path = trial_file(sweep, trial.trial_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, dataclasses.asdict(trial))


def read_trial(path: Path) -> Trial:
    """Reads one record.

    Raises:
        UserError: in one line, if it is not JSON or not a trial.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _TRIAL.validate_python(data)
    except OSError as error:
        raise UserError(f"trial {path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise UserError(f"trial {path}: {describe(error, data)}") from error
    except ValueError as error:
        raise UserError(f"trial {path}: not valid JSON ({error})") from error


def set_aside(path: Path) -> Path:
    """Renames a file to `<name>.corrupt`, or `.corrupt-2` and so on where that is taken."""
    target, number = path.with_name(f"{path.name}.corrupt"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.corrupt-{number}")
    os.replace(path, target)
    return target


def _warn(sentence: str) -> None:
    Console(stderr=True).print(f"warning: {sentence}", highlight=False, soft_wrap=True)


def load_trials(sweep: str | Path, warn: Callable[[str], None] = _warn) -> list[Trial]:
    """All recorded trials of a sweep in the order of their ids.

    A record that cannot be read is named and set aside; the sweep's command runs that trial again.

    Args:
        sweep: the sweep's folder.
        warn: takes a sentence for each record that was set aside; by default it goes to stderr.

    Raises:
        UserError: if there is no such sweep.

    Example:
        >>> import tempfile
        >>> sweep = Path(tempfile.mkdtemp())
        >>> _ = (sweep / "sweep.yaml").write_text("")
        >>> write_trial(sweep, Trial("00", {"hsc_weight": 0.1}, "completed", [],
        ...                          ObjectiveResult("ndcg", 0.6, None, "max")))
        >>> [trial.objective.mean for trial in load_trials(sweep)]
        [0.6]
    """
    sweep = Path(sweep)
    if not (sweep / SWEEP_FILE).is_file():
        raise UserError(f"sweep {sweep}: no such sweep ({SWEEP_FILE} is missing)")
    trials = []
    for path in sorted((sweep / TRIALS_FOLDER).glob(f"*/{TRIAL_FILE}")):
        try:
            trials.append(read_trial(path))
        except UserError as error:
            warn(f"{error}; set aside as {set_aside(path).name}")
    return trials
