"""SweepConfig: all settings of a sweep, typed, from YAML."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError, describe

from .records import Direction

Algorithm = Literal["grid", "random", "hyperband", "bayesian"]
UNLIMITED = ("grid", "hyperband")


class Objective(BaseModel):
    """What is to be best.

    Attributes:
        name: of a validation metric that the run computes, or `loss`.
        direction: `max` or `min`; None where it is still to be found out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    direction: Direction | None = None


class SweepConfig(BaseModel):
    """The settings of a sweep.

    Attributes:
        base: settings of `RunConfig` that all trials share: the model, the budget, ...
        space: what varies; see `tfr_moe.tuning.spaces.make_space`.
        algorithm: grid, random, hyperband or bayesian.
        objective: the validation metric to be best, as a name or with its direction.
        seeds: how many seeds each trial is trained with, counted up from that of `base`, or a list.
        max_trials: trials at most; needed by random and bayesian, None for the whole grid.
            Hyperband takes none: its number follows from the epochs.
        search_seed: seed of the search algorithm.
        hyperband_factor: one in so many trials goes on to the next round of Hyperband.
        hyperband_iterations: how often Hyperband is run in full.
        initial_points: random trials before the Bayesian search models anything; None for three
            for each hyper-parameter.
        max_failures: the sweep stops when so many trials in a row have failed.
        cache: whether the data is parsed once and kept below the sweep, read into memory by each
            process. False reads the records anew in each epoch, for data larger than memory.
        process_per_trial: train each trial in a process of its own.
        lease: seconds after which a worker that gives no sign of life loses its trial to another.
        data: the data-set folder; given at the command line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    base: RunConfig
    space: str | dict[str, Any]
    algorithm: Algorithm = "grid"
    objective: Objective = Objective(name="session_auc")
    seeds: tuple[int, ...] = ()
    max_trials: int | None = Field(None, ge=1)
    search_seed: int = Field(1, ge=1)
    hyperband_factor: int = Field(3, ge=2)
    hyperband_iterations: int = Field(1, ge=1)
    initial_points: int | None = Field(None, ge=1)
    max_failures: int = Field(3, ge=1)
    cache: bool = True
    process_per_trial: bool = False
    lease: float = Field(60.0, gt=0)
    data: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = dict(given)
        if isinstance(given.get("objective"), str):
            given["objective"] = {"name": given["objective"]}
        base = given.get("base", {})
        if isinstance(base, dict):
            given["base"] = make_config(base, "base")
        first = given["base"].seed
        count = given.get("seeds", 1)
        if isinstance(count, int) and not isinstance(count, bool):
            if count < 1:
                raise ValueError(f"seeds must be >= 1 or a list, got {count}")
            given["seeds"] = tuple(range(first, first + count))
        return given

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers >= 0, got {list(self.seeds)}")
        if self.algorithm == "hyperband" and self.max_trials is not None:
            raise ValueError("max_trials is not for hyperband: base.num_epochs decides")
        if self.algorithm not in UNLIMITED and self.max_trials is None:
            raise ValueError(f"max_trials is needed by algorithm {self.algorithm!r}")
        if self.algorithm != "bayesian" and self.initial_points is not None:
            raise ValueError("initial_points is for algorithm 'bayesian'")
        return self

    def save(self, path: Path) -> None:
        """Writes all settings as YAML; `load_sweep_config` reads them back equal."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def make_sweep_config(settings: Any, where: str = "sweep config") -> SweepConfig:
    """A SweepConfig from a mapping.

    Raises:
        UserError: in one line, with the key at fault.

    Example:
        >>> config = make_sweep_config({"space": "lambda_grid", "seeds": 2})
        >>> config.seeds, config.objective.name
        ((1, 2), 'session_auc')
        >>> make_sweep_config({"spaces": "lambda_grid"})
        Traceback (most recent call last):
        tfr_moe.errors.UserError: sweep config: unknown key 'spaces'; did you mean 'space'?
    """
    if not isinstance(settings, dict):
        raise UserError(f"{where}: must be a mapping with at least a space")
    for key in settings:
        if key not in SweepConfig.model_fields:
            close = difflib.get_close_matches(str(key), SweepConfig.model_fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else _below_base(str(key))
            raise UserError(f"{where}: unknown key {key!r}; {hint}")
    try:
        return SweepConfig.model_validate(settings)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except ValidationError as error:
        raise UserError(f"{where}: {describe(error, settings)}") from error


def _below_base(key: str) -> str:
    if key in RunConfig.model_fields:
        return "it is a setting of the runs: put it below base"
    return f"there are: {', '.join(SweepConfig.model_fields)}"


def _override(settings: dict[str, Any], pair: str) -> None:
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {pair!r}: must be key=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"--set {pair!r}: the value is not valid YAML") from None
    here = settings
    *above, last = key.strip().split(".")
    for step in above:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise UserError(f"--set {pair!r}: {step} holds no settings")
    here[last] = value


def load_sweep_config(path: str | Path, overrides: Sequence[str] = ()) -> SweepConfig:
    """Reads a sweep's YAML, then applies `key=value` pairs, where a dot goes down: `base.top_k=2`.

    Raises:
        UserError: if the file can't be read, or see `make_sweep_config`.
    """
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"sweep config {path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"sweep config {path}: not valid YAML ({line})") from error
    data = {} if data is None else data
    if isinstance(data, dict):
        for pair in overrides:
            _override(data, pair)
    return make_sweep_config(data, f"sweep config {path}")
