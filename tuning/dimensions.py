"""The hyper-parameters of a space: how KerasTuner sees each, and which settings of a run it stands for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError, describe

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


_LIBRARY = "library_parameters."


def settings_above(base: RunConfig, *above: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run, with others above them; `library_parameters.depth` is an entry of that mapping.

    Example:
        >>> base = RunConfig(model="xgboost", library_parameters={"eta": 0.1, "max_depth": 6})
        >>> settings_above(base, {"library_parameters.eta": 0.3})["library_parameters"]
        {'eta': 0.3, 'max_depth': 6}
    """
    settings = base.model_dump()
    for key, value in (entry for given in above for entry in given.items()):
        name, dot, part = key.partition(".")
        settings[name] = {**settings[name], part: value} if dot else value
    return settings


@dataclass(frozen=True)
class Choice:
    """A choice between listed values.

    Attributes:
        name: of the hyper-parameter.
        options: pairs of what KerasTuner sees (str, int or float, all of one type) and the settings
            that it stands for.
        joint: whether the settings are what a record shows, instead of the option.
    """

    name: str
    options: tuple[tuple[str | int | float, dict[str, Any]], ...]
    joint: bool = False

    @property
    def size(self) -> int:
        """How many values a grid has here."""
        return len(self.options)

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that are varied."""
        return tuple(self.options[0][1])

    def suggest(self, hp: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings, and what a record shows, for the value that `hp` holds."""
        value = hp.Choice(self.name, [option for option, _ in self.options])
        settings = dict(self.options)[value]
        return settings, (settings if self.joint else {self.name: value})


@dataclass(frozen=True)
class Interval:
    """A range of numbers.

    Attributes:
        name: of the setting.
        low: smallest value.
        high: largest value.
        step: distance of values, or their ratio for log sampling; None for any number in between.
        sampling: linear, log or reverse_log.
        integer: whether only whole numbers count.
    """

    name: str
    low: float
    high: float
    step: float | None
    sampling: str
    integer: bool

    @property
    def size(self) -> int | None:
        """None: KerasTuner decides how many values a grid has here."""
        return None

    @property
    def keys(self) -> tuple[str, ...]:
        """The setting that is varied."""
        return (self.name,)

    def suggest(self, hp: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings, and what a record shows, for the value that `hp` holds."""
        make = hp.Int if self.integer else hp.Float
        value = make(self.name, self.low, self.high, step=self.step, sampling=self.sampling)
        return {self.name: value}, {self.name: value}


Dimension = Choice | Interval


def typed(name: str, value: Any) -> Any:
    """A value as the setting of that name takes it: `"1e-3"` becomes 0.001.

    Raises:
        UserError: if there is no such setting, it may not vary, or does not take the value.
    """
    check_name(name)
    if "." in name:
        return value
    field = RunConfig.model_fields[name]
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[(kind, *field.metadata)]
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UserError(f"space: {name}: {describe(error, {})}, got {value!r}") from error


def check_name(name: str) -> None:
    """Refuses what is no setting, or what has to be the same in all trials.

    Raises:
        UserError: in one line.
    """
    if name.startswith(_LIBRARY) and name != _LIBRARY:
        return
    if name not in RunConfig.model_fields:
        close = difflib.get_close_matches(str(name), RunConfig.model_fields, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "see docs/tuning.md"
        raise UserError(f"space: unknown setting {name!r}; {hint}")
    if name in BUDGET:
        raise UserError(
            f"space: {name} belongs to the budget and is the same in all trials: give it below base"
        )


def label(value: Any) -> str:
    """How a value that KerasTuner does not take is called: `[64, 32]` -> `64-32`."""
    if isinstance(value, (list, tuple)):
        return "-".join(map(label, value)) or "none"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def listed(name: str, values: Sequence[Any]) -> Choice:
    """A choice between values of one setting.

    Raises:
        UserError: for an unknown setting, no values, the same value twice or one that is refused.

    Example:
        >>> listed("expert_hidden_dims", [[64, 32], [16]]).options[1]
        ('16', {'expert_hidden_dims': (16,)})
    """
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise UserError(f"space: {name}: must be a list of values or a range, got {values!r}")
    found = [typed(name, value) for value in values]
    if len({label(value) for value in found}) < len(found):
        raise UserError(f"space: {name}: a value is listed twice in {list(values)!r}")
    plain = len({type(value) for value in found}) == 1 and type(found[0]) in (int, float, str)
    return Choice(name, tuple((v if plain else label(v), {name: v}) for v in found))


class _Range(BaseModel):
    model_config = ConfigDict(extra="forbid")

    min: float
    max: float
    step: float | None = Field(None, gt=0)
    sampling: Literal["linear", "log", "reverse_log"] = "linear"

    @model_validator(mode="after")
    def _check(self) -> _Range:
        if self.min >= self.max:
            raise ValueError(f"min must be < max, got {self.min:g} and {self.max:g}")
        if self.sampling != "linear" and self.min <= 0:
            raise ValueError(f"min must be > 0 for {self.sampling} sampling, got {self.min:g}")
        if self.sampling != "linear" and self.step is not None and self.step <= 1:
            raise ValueError(f"step is a ratio > 1 for {self.sampling} sampling, got {self.step:g}")
        return self


def interval(name: str, data: dict[str, Any]) -> Interval:
    """A range of one numeric setting from `{min, max, step, sampling}`.

    Raises:
        UserError: for an unknown setting, one that is no number, or a bad range.
    """
    try:
        given = _Range.model_validate(data)
    except ValidationError as error:
        raise UserError(f"space: {name}: {describe(error, data)}") from error
    low, high = typed(name, given.min), typed(name, given.max)
    if type(low) not in (int, float):
        raise UserError(f"space: {name}: takes no range; list its values")
    # Of a library's own parameters nobody here knows the types: whole limits mean whole numbers.
    integer = isinstance(low, int) or ("." in name and low == int(low) and high == int(high))
    if integer:
        low, high = int(low), int(high)
    step: float | None = given.step
    if integer and step is not None:
        if step != int(step):
            raise UserError(f"space: {name}: step must be a whole number, got {step:g}")
        step = int(step)
    return Interval(name, low, high, step, given.sampling, integer)


def keys_of(dimensions: Iterable[Dimension]) -> list[str]:
    """All settings that are varied."""
    return [key for dimension in dimensions for key in dimension.keys]
