"""Tables VII and VIII and Fig. 6 of Adv & HSC-MoE: sweeps beside the paper's numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import Field
from rich.console import RenderableType

from experiments.adv_hsc_moe.model_tables import CONFIGS, need_hierarchy
from experiments.adv_hsc_moe.sweep_tables import sweep_lines
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from experiments.common.tuned_runs import SMALL
from tfr_moe.report import write_sweep_report
from tfr_moe.tuning import load_sweep_config, tune
from tfr_moe.utils import write_json

SWEEPS = {f"adv-hsc-moe-{name}": name for name in ("table7", "table8", "fig6")}


class SweepSettings(StudySettings):
    """How a sweep is run.

    Attributes:
        configs: folder of the configs.
        runs: seeds of each trial.
        with_settings: settings of every trial that override those of the config.
        space: replaces the config's space, such as `{preset: gate_input, query: [], user: [age]}`.
    """

    configs: str = str(CONFIGS)
    runs: int = Field(3, ge=1)
    with_settings: dict[str, Any] = Field(default_factory=dict)
    space: str | dict[str, Any] | None = None

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "modest": {"configs": str(CONFIGS / "modest"), "runs": 2},
        "small": {"runs": 2, "with_settings": {**SMALL, "learning_rate": 1e-3, "num_epochs": 3}},
    }


def sweep_pairs(settings: SweepSettings) -> list[str]:
    """Returns the settings as `key=value` pairs of a sweep config.

    Example:
        >>> sweep_pairs(SweepSettings(runs=2, with_settings={"num_epochs": 1}))
        ['seeds=2', 'base.num_epochs=1']
    """
    values: dict[str, Any] = {
        "seeds": settings.runs,
        **{f"base.{name}": value for name, value in settings.with_settings.items()},
    }
    if settings.space is not None:
        values["space"] = settings.space
    return [f"{name}={_in_line(value)}" for name, value in values.items()]


def _in_line(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def run(name: str, settings: SweepSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs the sweep in `OUT/sweep`, or what is missing of it; returns its table as Markdown."""
    data = context.need_data()
    need_hierarchy(data)
    path = Path(settings.configs) / f"{SWEEPS[name]}.yaml"
    config = load_sweep_config(path, sweep_pairs(settings))
    sweep = context.out / "sweep"
    workers = context.processes if context.processes > 1 else 0
    tune(data, sweep, config, context.console, workers)
    page = write_sweep_report(sweep)
    lines = sweep_lines(sweep)
    write_json(context.out / "results.json", {"table": lines})
    return [f"{name}: validation {config.objective.name}", "", *lines, "", f"page: {page}"]


STUDIES = {
    name: Study(SweepSettings, functools.partial(run, name), needs_data=True) for name in SWEEPS
}
