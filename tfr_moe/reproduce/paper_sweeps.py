"""Tables VII and VIII and Fig. 6 of Adv & HSC-MoE: sweeps with the paper's sizes, beside its numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import Field
from rich.console import RenderableType

from tfr_moe.folders import write_json
from tfr_moe.reproduce.fair_runs import MIXTURE_CONFIGS, SMALL
from tfr_moe.reproduce.mixture_tables import need_hierarchy
from tfr_moe.reproduce.settings import StudySettings
from tfr_moe.reproduce.study import Place, Study

SWEEPS = {f"adv-hsc-moe-{name}": name for name in ("table7", "table8", "fig6")}


class SweepSettings(StudySettings):
    """How a sweep is run.

    Attributes:
        runs: seeds of each trial.
        with_settings: settings of every trial, above those of the config.
        space: in the place of the config's, such as `{preset: gate_input, query: [], user: [age]}`.
        process_per_trial: train each trial in a process of its own.
        configs: the folder of the configs.
    """

    runs: int = Field(3, ge=1)
    with_settings: dict[str, Any] = Field(default_factory=dict)
    space: str | dict[str, Any] | None = None
    process_per_trial: bool = False
    configs: str = str(MIXTURE_CONFIGS)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {"runs": 2, "with_settings": {**SMALL, "learning_rate": 1e-3, "num_epochs": 3}},
    }


def sweep_pairs(settings: SweepSettings) -> list[str]:
    """The settings as the `key=value` pairs of a sweep.

    Example:
        >>> sweep_pairs(SweepSettings(runs=2, with_settings={"num_epochs": 1}))
        ['seeds=2', 'process_per_trial=false', 'base.num_epochs=1']
    """
    values: dict[str, Any] = {
        "seeds": settings.runs,
        "process_per_trial": settings.process_per_trial,
        **{f"base.{name}": value for name, value in settings.with_settings.items()},
    }
    if settings.space is not None:
        values["space"] = settings.space
    return [f"{name}={_in_line(value)}" for name, value in values.items()]


def _in_line(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def run(name: str, settings: SweepSettings, place: Place) -> Sequence[RenderableType]:
    """Runs the sweep in `OUT/sweep`, or what is left of it; prints its table as Markdown."""
    from tfr_moe.reproduce.sweep_tables import sweep_lines
    from tfr_moe.tuning.config import load_sweep_config
    from tfr_moe.tuning.report import write_report
    from tfr_moe.tuning.sweep import tune

    assert place.data is not None
    need_hierarchy(place.data)
    path = Path(settings.configs) / f"{SWEEPS[name]}.yaml"
    config = load_sweep_config(path, sweep_pairs(settings))
    sweep = place.out / "sweep"
    tune(place.data, sweep, config, place.console, workers=place.processes)
    page = write_report(sweep)
    lines = sweep_lines(sweep)
    write_json(place.out / "results.json", {"table": lines})
    return [f"{name}: validation {config.objective.name}", "", *lines, "", f"page: {page}"]


STUDIES = {
    name: Study(SweepSettings, functools.partial(run, name), needs_data=True) for name in SWEEPS
}
