"""Search spaces: the values or the ranges of the settings that a sweep varies."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tfr_moe.config import MODELS, SETTINGS, RunConfig, applicable, make_config
from tfr_moe.errors import UserError, describe, did_you_mean, validated

EXPERTS = ("num_experts", "top_k", "num_adversarial")
BUDGET = (
    "seed",
    "deterministic",
    "monitor",
    "metrics",
    "num_epochs",
    "steps_per_epoch",
    "early_stopping_patience",
    "strategy",
)
"""Settings that must be equal in all trials."""
_LIBRARY = "library_parameters."


Options: TypeAlias = dict[str | int | float, dict[str, Any]]
"""What each value of a choice of KerasTuner stands for: settings as JSON has them."""


class Range(BaseModel):
    """A range of numbers.

    `step` is a difference, for log sampling a ratio; None for any number between.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: FiniteFloat
    max: FiniteFloat
    step: FiniteFloat | None = Field(None, gt=0)
    sampling: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.min >= self.max:
            raise ValueError(f"min must be < max, got {self.min:g} and {self.max:g}")
        if self.sampling == "log" and self.min <= 0:
            raise ValueError(f"min must be > 0 for log sampling, got {self.min:g}")
        if self.sampling == "log" and self.step is not None and self.step <= 1:
            raise ValueError(f"step is a ratio > 1 for log sampling, got {self.step:g}")
        return self


@dataclass(frozen=True)
class SearchSpace:
    """What a sweep varies: its description as in YAML, and its hyper-parameters."""

    description: dict[str, Any]
    dimensions: dict[str, Options | Range]

    @property
    def size(self) -> int | None:
        """The number of points of its grid; None with a range."""
        sizes = [len(options) for options in self.choices.values()]
        return math.prod(sizes) if len(sizes) == len(self.dimensions) else None

    @property
    def choices(self) -> dict[str, Options]:
        """The hyper-parameters with listed values."""
        return {name: d for name, d in self.dimensions.items() if not isinstance(d, Range)}

    def models(self, base: RunConfig) -> list[str]:
        """The models that it lists, else that of the base settings."""
        return list(self.description.get("model", [base.model]))

    def suggest(self, hp: Any) -> dict[str, Any]:
        """Run settings for the values in `hp`, which also registers all hyper-parameters."""
        settings: dict[str, Any] = {}
        for name, values in self.dimensions.items():
            if isinstance(values, Range):
                # Whole limits give whole numbers.
                number = hp.Int if isinstance(values.min, int) else hp.Float
                settings[name] = number(name, values.min, values.max, values.step, values.sampling)
            else:
                settings |= values[hp.Choice(name, list(values))]
        return settings


def settings_above(base: RunConfig, *overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run with overrides; `library_parameters.depth` sets one entry of it."""
    settings = base.flat()
    for key, value in (entry for each in overrides for entry in each.items()):
        name, dot, part = key.partition(".")
        settings[name] = {**settings[name], part: value} if dot else value
    return applicable(settings["model"], settings)


def make_space(description: Mapping[str, Any], base: RunConfig) -> SearchSpace:
    """Makes the space of settings with lists of values or ranges `{min, max, step, sampling}`.

    Raises:
        UserError: if it does not fit the model.

    Example:
        >>> make_space({"learning_rate": [1e-3, 1e-4], "top_k": [2, 4]}, RunConfig()).size
        4
    """
    settings = dict(description)
    if not settings:
        raise UserError("space: is empty")
    for name in settings:
        _check_name(name)
    joint = {key: settings[key] for key in EXPERTS if isinstance(settings.get(key), Sequence)}
    joint = joint if len(joint) > 1 else {}
    dimensions: dict[str, Options | Range] = {"experts": _experts(joint, base)} if joint else {}
    for name, values in settings.items():
        if isinstance(values, Mapping):
            dimensions[name] = number_range(name, values)
        elif name not in joint:
            dimensions[name] = choice(name, values)
    space = SearchSpace(settings, dimensions)
    _check(space, base)
    return space


def _check_name(name: str) -> None:
    """Rejects names that are not settings, and settings that must be equal in all trials."""
    if name.startswith(_LIBRARY) and name != _LIBRARY:
        return
    names = ["model", "seed", *SETTINGS]
    if name not in names:
        hint = did_you_mean(name, names) or "see docs/tuning.md"
        raise UserError(f"space: unknown setting {name!r}; {hint}")
    if name in BUDGET:
        raise UserError(f"space: {name} must be the same in all trials: set it in base")


def _parse(name: str, value: Any) -> Any:
    """Converts a value to the type of a setting: `"1e-3"` becomes 0.001."""
    if "." in name:
        return value
    field = SETTINGS[name].field if name in SETTINGS else RunConfig.model_fields[name]
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[(kind, *field.metadata)]
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        reason = describe(error, {})
        reason += "" if "Received" in reason else f". Received: {value!r}"
        raise UserError(f"space: {name}: {reason}") from error


def choice(name: str, values: Sequence[Any]) -> Options:
    """A choice between values of one setting."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise UserError(f"space: {name}: must be a list of values or a range. Received: {values!r}")
    parsed = [_parse(name, value) for value in values]
    texts = [json.dumps(value) for value in parsed]
    if len(set(texts)) < len(texts):
        raise UserError(f"space: {name}: values must differ. Received: {list(values)!r}")
    plain = len({type(value) for value in parsed}) == 1 and type(parsed[0]) in (int, float, str)
    keys = parsed if plain else texts
    return {key: {name: json.loads(text)} for key, text in zip(keys, texts, strict=True)}


def _experts(values: Mapping[str, Sequence[Any]], base: RunConfig) -> Options:
    """The valid combinations of N, K and D."""
    choices = [choice(key, options).values() for key, options in values.items()]
    valid: Options = {}
    for combination in itertools.product(*choices):
        settings = {key: value for part in combination for key, value in part.items()}
        try:
            make_config(settings_above(base, settings))
        except UserError:
            continue
        valid["-".join(map(str, settings.values()))] = settings
    if not valid:
        raise UserError(
            f"space: no combination of {', '.join(values)} is valid: top_k <= num_experts and "
            "num_adversarial <= num_experts - top_k"
        )
    return valid


def number_range(name: str, data: Mapping[str, Any]) -> Range:
    """A range of one numeric setting from `{min, max, step, sampling}`."""
    limits = validated(Range, dict(data), f"space: {name}")
    low, high, step = _parse(name, limits.min), _parse(name, limits.max), limits.step
    if type(low) not in (int, float):
        raise UserError(f"space: {name}: is not a number; list its values")
    # The types of a library's parameters are unknown: whole limits mean whole numbers.
    if isinstance(low, int) or ("." in name and low == int(low) and high == int(high)):
        low, high = int(low), int(high)
        if step is not None and step != int(step):
            raise UserError(f"space: {name}: step must be a whole number, got {step:g}")
        step = None if step is None else int(step)
    return limits.model_copy(update={"min": low, "max": high, "step": step})


def _check(space: SearchSpace, base: RunConfig) -> None:
    """Rejects settings that no model of the space has, and invalid values."""
    models = space.models(base)
    for name in models:
        make_config({"model": name}, "space")
    for key in space.description:
        owners = [name for name, family in MODELS.items() if key in family.settings]
        if owners and not set(owners) & set(models):
            raise UserError(
                f"space: {key}: model {', '.join(map(repr, models))} does not have it; "
                f"models that do: {', '.join(owners)}"
            )
    if "batch_size" in space.description and base.training.steps_per_epoch is not None:
        raise UserError(
            "space: batch_size cannot vary while base.steps_per_epoch is set: trials would use "
            "different numbers of lists"
        )
    for options in space.choices.values():
        for settings in options.values():
            make_config(settings_above(base, settings), "space")
