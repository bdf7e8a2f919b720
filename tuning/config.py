"""The configuration of a sweep, from YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfr_moe.config import SETTINGS, RunConfig, make_config
from tfr_moe.errors import UserError, did_you_mean, validated
from tfr_moe.utils.io import write_text
from tfr_moe.utils.settings import parse_pair, read_mapping


class SweepConfig(BaseModel):
    """The settings of a sweep; the table of docs/tuning.md describes each.

    `data` and `data_fingerprint` are filled in when the sweep starts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    base: RunConfig
    space: dict[str, Any]
    algorithm: Literal["grid", "random", "hyperband", "bayesian"] = "grid"
    objective: str = "session_auc"
    seeds: tuple[int, ...] = ()
    max_trials: int | None = Field(None, ge=1)
    search_seed: int = Field(1, ge=1)
    hyperband_factor: int = Field(3, ge=2)
    hyperband_iterations: int = Field(1, ge=1)
    initial_points: int | None = Field(None, ge=1)
    max_failures: int = Field(3, ge=1)
    cache: bool = True
    data: str | None = None
    data_fingerprint: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        settings = dict(settings)
        base = settings.get("base") or {}
        if isinstance(base, dict):
            base = make_config(base, "base")
        if not isinstance(base, RunConfig):
            return settings
        settings["base"], first = base, base.seed
        count = settings.get("seeds", 1)
        if isinstance(count, int) and not isinstance(count, bool):
            if count < 1:
                raise ValueError(f"seeds must be >= 1 or a list, got {count}")
            settings["seeds"] = tuple(range(first, first + count))
        return settings

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers >= 0, got {list(self.seeds)}")
        if self.algorithm == "hyperband" and self.max_trials is not None:
            raise ValueError("max_trials is not for hyperband: it follows from base.num_epochs")
        if self.algorithm in ("random", "bayesian") and self.max_trials is None:
            raise ValueError(f"max_trials is needed by algorithm {self.algorithm!r}")
        if self.algorithm != "bayesian" and self.initial_points is not None:
            raise ValueError("initial_points is for algorithm 'bayesian'")
        return self

    @property
    def direction(self) -> Literal["max", "min"]:
        """Whether higher or lower values of the objective are better."""
        return "min" if self.objective == "loss" else "max"

    def save(self, path: Path) -> None:
        """Writes all settings as YAML."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))


def make_sweep_config(settings: dict[str, Any], where: str = "sweep config") -> SweepConfig:
    """A SweepConfig from a mapping; a `UserError` names the invalid key."""
    for key in settings:
        if key not in SweepConfig.model_fields:
            hint = f"allowed: {', '.join(SweepConfig.model_fields)}"
            if key in ("model", *SETTINGS):
                hint = "it is a setting of runs: set it in base"
            hint = did_you_mean(key, SweepConfig.model_fields) or hint
            raise UserError(f"{where}: unknown key {key!r}; {hint}")
    return validated(SweepConfig, settings, where)


def _override(settings: dict[str, Any], pair: str) -> None:
    key, value = parse_pair(pair)
    here = settings
    *above, last = key.split(".")
    for step in above:
        here = here.setdefault(step, {})
        if not isinstance(here, dict):
            raise UserError(f"{pair!r}: {step} is not a mapping")
    here[last] = value


def load_sweep_config(path: str | Path, overrides: Sequence[str] = ()) -> SweepConfig:
    """Reads a sweep's YAML and applies `key=value` overrides such as `base.top_k=2`."""
    settings = read_mapping(Path(path), "sweep config")
    for pair in overrides:
        _override(settings, pair)
    return make_sweep_config(settings, f"sweep config {path}")
