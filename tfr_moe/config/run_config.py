"""RunConfig: all settings of a training run, from YAML files, mappings and `key=value` pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, model_serializer, model_validator

from tfr_moe.config.models import MODELS, ORDINAL_MODELS, ModelSpec, preset_settings
from tfr_moe.config.settings import GROUPS, SETTINGS, Group, SettingGroups
from tfr_moe.config.tasks import Task, check_conditions, resolve_tasks
from tfr_moe.errors import UserError, did_you_mean, validated
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.io import write_text
from tfr_moe.utils.settings import parse_pairs, read_mapping

_RETIRED: dict[str, Any] = {"category_groups": None, "wide_crosses": None}
"""Removed settings with their last default, as YAML has it: files that hold it still load."""


class RunConfig(SettingGroups):
    """The settings of one training run.

    Settings live in groups by concern (`config.gate.top_k`); files and the command line use their
    flat names (`top_k`). Defaults are the settings that docs/results.md recommends, or the model's
    own (`ModelSpec.defaults`); those of the first paper are the preset `paper`.

    Raises:
        pydantic.ValidationError: for an unknown setting, one that the model does not use, or a
            value that does not fit.

    Example:
        >>> config = make_config({"model": "adv_hsc_moe", "top_k": 2, "learning_rate": 1e-3})
        >>> config.gate.top_k, config.optimization.learning_rate
        (2, 0.001)
    """

    model: str = "adv_hsc_moe"
    seed: int = Field(
        1, ge=0, lt=2**32, description="seed of initialization, shuffling, noise and draws"
    )

    @model_validator(mode="before")
    @classmethod
    def _into_groups(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        settings = _ungrouped(data)
        name = settings.pop("model", "adv_hsc_moe")
        if not isinstance(name, str) or name not in MODELS:
            if hint := did_you_mean(name, MODELS):
                raise ValueError(f"model {name!r} is unknown; {hint}")
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}")
        for retired, default in _RETIRED.items():
            if (value := settings.pop(retired, default)) != default:
                raise ValueError(
                    f"{retired} was removed; only its last default, {default!r}, is accepted, "
                    f"got {value!r}"
                )
        preset = settings.pop("preset", None)
        presets = {} if preset is None else preset_settings(str(preset), name)
        settings = {**MODELS[name].defaults, **presets, **settings}
        tree: dict[str, Any] = {"model": name, **{group: {} for group in GROUPS}}
        if "seed" in settings:
            tree["seed"] = settings.pop("seed")
        for setting, value in settings.items():
            if setting not in SETTINGS:
                hint = did_you_mean(setting, ["model", "seed", *MODELS[name].settings])
                hint = hint or f"`tfr-moe settings {name}` lists the settings"
                raise ValueError(f"unknown key {setting!r}; {hint}")
            if setting not in MODELS[name].settings:
                raise ValueError(
                    f"{setting} is not used by model {name!r}, whose settings are listed by "
                    f"`tfr-moe settings {name}`"
                )
            tree[SETTINGS[setting].group][setting] = value
        return tree

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        self._check_experts()
        self._check_attention()
        self._check_tasks()
        self._check_monitor()
        return self

    def _check_experts(self) -> None:
        count, selected = self.gate.num_experts, self.gate.top_k
        if not self.spec.dense_gate and selected > count:
            raise ValueError(f"top_k must be <= num_experts = {count}, got {selected}")
        idle, drawn = count - selected, self.adversarial.num_adversarial
        if "num_adversarial" in self.spec.settings and drawn > idle:
            raise ValueError(
                f"num_adversarial must be <= num_experts - top_k = {idle}, got {drawn}"
            )
        layers = len(self.experts.expert_hidden_dims)
        if self.model == "ple" and self.domains.num_levels > layers:
            raise ValueError(
                f"num_levels must be <= {layers}, the number of expert_hidden_dims, "
                f"got {self.domains.num_levels}"
            )

    def _check_attention(self) -> None:
        encoder = self.attention
        if self.spec.attention and encoder.trunk != "attention":
            raise ValueError(f"trunk must be attention for {self.model}, got {encoder.trunk!r}")
        attends = encoder.trunk == "attention" or self.spec.attention
        if attends and not self.spec.wide_heads and encoder.attention_dim % encoder.attention_heads:
            raise ValueError(
                f"attention_heads must divide attention_dim = {encoder.attention_dim}, "
                f"got {encoder.attention_heads}"
            )

    def _check_tasks(self) -> None:
        needs_layer = self.spec.kind == "multi_task" or self.model == "click_model"
        if needs_layer and not self.experts.expert_hidden_dims:
            raise ValueError(f"expert_hidden_dims must have a layer for {self.model}")
        tasks = self.multi_task.tasks or {}
        check_conditions({name: task.conditioned_on for name, task in tasks.items()})
        losses = [self.objective.loss, *(task.loss for task in tasks.values())]
        if "ordinal" in losses and self.model not in ORDINAL_MODELS:
            raise ValueError(
                f"loss ordinal is for {', '.join(ORDINAL_MODELS)}, not for {self.model}"
            )

    def _check_monitor(self) -> None:
        # Which tasks there are, only the data can tell where none are named.
        open_tasks = self.spec.kind == "multi_task"
        monitor, metrics = self.training.monitor, self.training.metrics
        if monitor != "loss" and monitor not in metrics and not open_tasks:
            raise ValueError(
                f"monitor must be loss or one of metrics ({', '.join(metrics)}), got {monitor!r}"
            )

    @property
    def spec(self) -> ModelSpec:
        """What the model is, and which settings it uses."""
        return MODELS[self.model]

    def flat(self) -> dict[str, Any]:
        """All settings by their flat names, also those that the model does not use."""
        flat = {"model": self.model, "seed": self.seed}
        for group in GROUPS:
            flat |= dict(getattr(self, group))
        return flat

    @model_serializer
    def _serialize(self) -> dict[str, Any]:
        """The settings that the model uses, flat as files and the command line have them."""
        used = {"model", "seed", *self.spec.settings}
        return {name: value for name, value in self.flat().items() if name in used}

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the model's defaults, and the model, as JSON values.

        Example:
            >>> make_config({"model": "dnn", "dropout": 0.1}).changed()
            {'model': 'dnn', 'dropout': 0.1}
        """
        dumped = self.model_dump(mode="json")
        defaults = RunConfig.model_validate({"model": self.model}).model_dump(mode="json")
        return {n: v for n, v in dumped.items() if n == "model" or v != defaults[n]}

    def replace(self, **changes: Any) -> RunConfig:
        """The same settings with some changed, by their flat names.

        Example:
            >>> RunConfig().replace(top_k=3).gate.top_k
            3
        """
        return RunConfig.model_validate({**self.model_dump(), **changes})

    @property
    def num_outputs(self) -> int:
        """Number of logits of an item: one for each grade under `ordinal`."""
        return self.objective.max_label or 1 if self.objective.loss == "ordinal" else 1

    def tasks_over(self, schema: FeatureSchema) -> tuple[Task, ...]:
        """The tasks of this run on data of that schema; none where the model has a single score.

        Raises:
            UserError: for a task that is not a label, or a monitor that no task has.
        """
        if self.spec.kind != "multi_task":
            return ()
        monitor, metrics = self.training.monitor, self.training.metrics
        tasks = resolve_tasks(self.multi_task.tasks, schema, self.objective.loss, metrics)
        if tasks:
            means = [metric for task in tasks for metric in task.metrics]
            names = [f"{task.name}_{metric}" for task in tasks for metric in task.metrics]
            metrics = tuple(dict.fromkeys([*means, *names]))
        if monitor not in ("loss", *metrics):
            raise UserError(f"monitor must be loss or one of {', '.join(metrics)}, got {monitor!r}")
        return tasks

    def save(self, path: Path) -> None:
        """Writes the settings that the model uses as YAML; `load_config` reads them back equal."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))


def _ungrouped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in groups by their flat names; a ValueError for one that is given twice."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        named = value.model_dump(exclude_unset=True) if isinstance(value, Group) else value
        if key not in GROUPS:
            named = {key: value}
        elif not isinstance(named, Mapping):
            raise ValueError(f"{key} must be a mapping of setting to value, got {value!r}")
        for name in named:
            if key in GROUPS and name not in GROUPS[key].model_fields:
                raise ValueError(f"unknown key {name!r} in {key}")
            if name in flat:
                group = SETTINGS[name].group
                raise ValueError(f"{name} is given twice, by itself and in {group}")
        flat |= named
    return flat


_Flat = Annotated[dict[str, Any], BeforeValidator(_ungrouped)]


def make_config(settings: Mapping[str, Any], where: str = "config") -> RunConfig:
    """A RunConfig from a mapping.

    Settings are by flat name or in groups. The key `preset` names settings
    (`tfr_moe.config.models`) over which those of the mapping take precedence; an error names
    `where`.

    Raises:
        UserError: in one line, with the setting and, for an unknown one, the nearest known.
    """
    return validated(RunConfig, settings, where, hidden=GROUPS)


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), **settings: Any
) -> RunConfig:
    """Reads a YAML file, then applies `settings`, then the `key=value` pairs.

    Raises:
        UserError: see `make_config`.

    Example:
        >>> config = load_config(overrides=["top_k=2", "expert_hidden_dims=[64, 32]"])
        >>> config.experts.expert_hidden_dims
        (64, 32)
    """
    where = f"config {path}" if path else "config"
    data = validated(_Flat, read_mapping(Path(path), "config") if path else {}, where)
    pairs = validated(_Flat, parse_pairs(overrides), "settings")
    model = pairs.get("model", settings.get("model"))
    if settings.get("model", model) != model:
        raise UserError(f"model is given twice, as {settings['model']} and as {model}")
    if path and overrides:
        where += " with settings"
    return make_config(data | validated(_Flat, settings, where) | pairs, where)
