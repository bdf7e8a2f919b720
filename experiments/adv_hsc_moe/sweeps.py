"""Tables VII and VIII and Fig. 6 of Adv & HSC-MoE: sweeps beside the paper's numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
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
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.report import write_sweep_report
from tfr_moe.schema import FeatureSchema
from tfr_moe.tuning import load_sweep_config, tune
from tfr_moe.utils import write_json

SWEEPS = {f"adv-hsc-moe-{name}": name for name in ("table7", "table8", "fig6")}


class SweepSettings(StudySettings):
    """How a sweep is run.

    Attributes:
        configs: folder of the configs.
        runs: seeds of each trial.
        with_settings: settings of every trial that override those of the config.
        gate_groups: context features of the rows `query` and `user` of Table VII; [] omits the row.
            By default those whose names begin with `query` and `user`.
    """

    configs: str = str(CONFIGS)
    runs: int = Field(3, ge=1)
    with_settings: dict[str, Any] = Field(default_factory=dict)
    gate_groups: dict[str, list[str]] = Field(default_factory=dict)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "modest": {"configs": str(CONFIGS / "modest"), "runs": 2},
        "small": {"runs": 2, "with_settings": {**SMALL, "learning_rate": 1e-3, "num_epochs": 3}},
    }


def gate_inputs(schema: FeatureSchema, groups: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Returns the rows of Table VII: their names and the features that the gate sees.

    Raises:
        UserError: for a group without features, or a name that is no context feature.

    Example:
        >>> schema = FeatureSchema.model_validate({
        ...     "list_id": "q", "labels": ["y"], "hierarchy": {"child": "sub", "parent": "top"},
        ...     "features": [{"name": name, "scope": "context", "kind": "categorical"}
        ...                  for name in ("top", "sub", "user_age")]})
        >>> gate_inputs(schema, {"query": []})["user+TC+SC"]
        ['user_age', 'top', 'sub']
    """
    assert schema.hierarchy is not None
    sub, top = schema.hierarchy.child, schema.hierarchy.parent
    context = [feature.name for feature in schema.select("context")]
    rows = {"SC": [sub], "TC+SC": [top, sub]}
    for group in ("query", "user"):
        names = groups.get(group, [name for name in context if name.startswith(group)])
        for name in names:
            if name not in context:
                raise UserError(
                    f"gate_groups: {group}: {name!r} is not a context feature; "
                    f"allowed: {', '.join(context)}"
                )
        if not names and group not in groups:
            raise UserError(
                f"gate_groups: no context feature name begins with {group!r}; set {group} to a "
                f"list of features, or to [] to omit its row; allowed: {', '.join(context)}"
            )
        if names:
            rows[f"{group}+TC+SC"] = list(dict.fromkeys([*names, top, sub]))
    return {**rows, "all": ["all"]}


def sweep_pairs(settings: SweepSettings, space: Mapping[str, Any] | None = None) -> list[str]:
    """Returns the settings as `key=value` pairs of a sweep config; `space` replaces its space.

    Example:
        >>> sweep_pairs(SweepSettings(runs=2, with_settings={"num_epochs": 1}))
        ['seeds=2', 'base.num_epochs=1']
    """
    values: dict[str, Any] = {
        "seeds": settings.runs,
        **{f"base.{name}": value for name, value in settings.with_settings.items()},
    }
    if space is not None:
        values["space"] = space
    return [f"{name}={_in_line(value)}" for name, value in values.items()]


def _in_line(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def run(name: str, settings: SweepSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs the sweep in `OUT/sweep`, or what is missing of it; returns its table as Markdown."""
    data = context.need_data()
    need_hierarchy(data)
    path = Path(settings.configs) / f"{SWEEPS[name]}.yaml"
    rows, space = {}, None
    if SWEEPS[name] == "table7":
        rows = gate_inputs(DataFolder(data).schema, settings.gate_groups)
        space = {"gate_features": list(rows.values())}
    config = load_sweep_config(path, sweep_pairs(settings, space))
    sweep = context.out / "sweep"
    workers = context.processes if context.processes > 1 else 0
    tune(data, sweep, config, context.console, workers)
    page = write_sweep_report(sweep)
    lines = sweep_lines(sweep, rows)
    write_json(context.out / "results.json", {"table": lines})
    return [f"{name}: validation {config.objective}", "", *lines, "", f"page: {page}"]


STUDIES = {
    name: Study(SweepSettings, functools.partial(run, name), needs_data=True) for name in SWEEPS
}
