"""Search spaces: ready ones by name, a user's own from YAML, or a Python function."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfr_moe.config import RunConfig, make_config
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers import MODELS

from .dimensions import (
    Choice,
    Dimension,
    check_name,
    interval,
    keys_of,
    listed,
    settings_above,
)

EXPERTS = ("num_experts", "top_k", "num_adversarial")
POWERS_OF_TEN = (0.1, 0.01, 0.001, 0.0001)


@dataclass(frozen=True)
class Space:
    """What a sweep varies.

    Attributes:
        description: the space as YAML gives it, defaults written out.
        dimensions: its hyper-parameters; empty where a function decides.
        function: takes KerasTuner's `HyperParameters` and returns settings of a run.
    """

    description: dict[str, Any]
    dimensions: tuple[Dimension, ...] = ()
    function: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def size(self) -> int | None:
        """The number of points of its grid, where it is known beforehand."""
        sizes = [dimension.size for dimension in self.dimensions]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if sizes and len(known) == len(sizes) else None

    def models(self, base: RunConfig) -> list[str]:
        """The models that it holds: those that it lists, else that of the base settings."""
        for dimension in self.dimensions:
            if dimension.name == "model" and isinstance(dimension, Choice):
                return [settings["model"] for _, settings in dimension.options]
        return [base.model]

    def suggest(self, hp: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of a run, and what a record shows, for the values that `hp` holds.

        Raises:
            UserError: if the function returns what is no setting.
        """
        if self.function is not None:
            settings = dict(self.function(hp))
            for key in settings:
                check_name(key)
            shown = {k: v for k, v in hp.values.items() if not k.startswith("tuner/")}
            return settings, shown
        settings, shown = {}, {}
        for dimension in self.dimensions:
            found = dimension.suggest(hp)
            settings.update(found[0])
            shown.update(found[1])
        return settings, shown


def make_space(
    description: str | Mapping[str, Any], base: RunConfig, schema: FeatureSchema
) -> Space:
    """The space that a configuration describes.

    Args:
        description: the name of a ready space; `{preset: NAME, ...}` with other values than its own;
            `{function: FILE.py:NAME}`; or a mapping of settings to values or ranges.
        base: the settings that all trials share.
        schema: of the data, for the features of the gate.

    Raises:
        UserError: in one line, before anything is trained.

    Example:
        >>> schema = FeatureSchema(list_id="q", labels=["y"], features=[
        ...     {"name": "a", "scope": "context", "kind": "categorical"}])
        >>> make_space("lambda_grid", RunConfig(), schema).size
        16
        >>> make_space({"learning_rate": [1e-3, 1e-4], "top_k": [2, 4]}, RunConfig(), schema).size
        4
    """
    given = {"preset": description} if isinstance(description, str) else dict(description)
    if not given:
        raise UserError("space: varies nothing")
    if "function" in given:
        return _from_function(given)
    space = _from_preset(given, base, schema) if "preset" in given else _own(given, base)
    _check(space, base)
    return space


# ------------------------------------------------------------------------------------ a user's own


def _own(given: dict[str, Any], base: RunConfig) -> Space:
    together = [key for key in EXPERTS if isinstance(given.get(key), Sequence)]
    dimensions: list[Dimension] = []
    if len(together) > 1:
        dimensions.append(_experts({key: given[key] for key in together}, base))
    for name, values in given.items():
        check_name(name)
        if len(together) > 1 and name in together:
            continue
        is_range = isinstance(values, Mapping)
        dimensions.append(interval(name, dict(values)) if is_range else listed(name, values))
    return Space(given, tuple(dimensions))


def load_function(reference: str) -> Callable[..., Any]:
    """The function that `FILE.py:NAME` or `MODULE:NAME` stands for.

    Raises:
        UserError: if it can't be found or fails at import.
    """
    where, _, name = reference.rpartition(":")
    if not where or not name:
        raise UserError(f"space: function {reference!r}: must be FILE.py:NAME or MODULE:NAME")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            if spec is None or spec.loader is None:
                raise ImportError("cannot be loaded")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        found = getattr(module, name)
    except Exception as error:
        raise UserError(f"space: function {reference}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UserError(f"space: function {reference}: is not a function")
    return found


def _from_function(given: Mapping[str, Any]) -> Space:
    if set(given) != {"function"}:
        others = ", ".join(sorted(set(given) - {"function"}))
        raise UserError(f"space: function stands alone, got {others} beside it")
    reference = str(given["function"])
    function = load_function(reference)
    where, _, name = reference.rpartition(":")
    if where.endswith(".py"):
        reference = f"{Path(where).resolve()}:{name}"
    return Space({"function": reference}, function=function)


# --------------------------------------------------------------------------------------- ready ones


def _parameters(base: RunConfig) -> tuple[str, ...]:
    family = MODELS.get(base.model)
    return () if family is None else family.parameters


def _of_model(name: str, values: Mapping[str, Any], base: RunConfig) -> dict[str, Any]:
    found = {key: value for key, value in values.items() if key in _parameters(base)}
    if not found:
        raise UserError(f"space {name}: model {base.model!r} has none of {', '.join(values)}")
    return found


def _experts(values: Mapping[str, Sequence[Any]], base: RunConfig) -> Choice:
    choices = [listed(key, options) for key, options in values.items()]
    valid = []
    for combination in itertools.product(*(choice.options for choice in choices)):
        settings = {key: value for _, part in combination for key, value in part.items()}
        try:
            make_config(settings_above(base, settings))
        except UserError:
            continue
        valid.append(("-".join(str(value) for value in settings.values()), settings))
    if not valid:
        raise UserError(
            f"space: no combination of {', '.join(values)} is valid: top_k <= num_experts and "
            "num_adversarial <= num_experts - top_k"
        )
    return Choice("experts", tuple(valid), joint=True)


def _lambda_grid(values: Mapping[str, Any], base: RunConfig, schema: FeatureSchema) -> Any:
    return [listed(k, v) for k, v in _of_model("lambda_grid", values, base).items()]


def _expert_numbers(values: Mapping[str, Any], base: RunConfig, schema: FeatureSchema) -> Any:
    return [_experts(_of_model("experts", values, base), base)]


def _architecture(values: Mapping[str, Any], base: RunConfig, schema: FeatureSchema) -> Any:
    found = _of_model("architecture", values, base)
    if MODELS[base.model].attention:
        # It has the encoder whatever `trunk` says: every trial would be run twice.
        del found["trunk"]
    return [listed(k, v) for k, v in found.items()]


def _group(group: str, names: Any, schema: FeatureSchema) -> list[str]:
    """The context features of the query or of the user; by default by their names' beginning."""
    context = [feature.name for feature in schema.select("context")]
    if names is None:
        found = [name for name in context if name.startswith(group)]
        if not found:
            raise UserError(
                f"space gate_input: no context feature is called {group}...; name them "
                f"({group}: [...]) or leave that row out ({group}: []); "
                f"there are: {', '.join(context)}"
            )
        return found
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in context:
            raise UserError(
                f"space gate_input: {group}: {name!r} is no context feature; "
                f"there are: {', '.join(context)}"
            )
    return names


def _gate_input(values: dict[str, Any], base: RunConfig, schema: FeatureSchema) -> Any:
    _of_model("gate_input", {"gate_features": None}, base)
    if schema.hierarchy is None:
        raise UserError("space gate_input: the schema names no hierarchy of categories")
    sub, top = schema.hierarchy.child, schema.hierarchy.parent
    for group in ("query", "user"):
        values[group] = _group(group, values[group], schema)
    rows = {
        "SC": (sub,),
        "TC+SC": (top, sub),
        "query+TC+SC": (*values["query"], top, sub),
        "user+TC+SC": (*values["user"], top, sub),
        "all": ("all",),
    }
    options = {label: tuple(dict.fromkeys(features)) for label, features in rows.items()}
    for group in ("query", "user"):
        if not values[group]:
            del options[f"{group}+TC+SC"]
    return [Choice("gate_input", tuple((k, {"gate_features": v}) for k, v in options.items()))]


PRESETS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    # Table VIII.
    "lambda_grid": (
        _lambda_grid,
        {"hsc_weight": list(POWERS_OF_TEN), "adversarial_weight": list(POWERS_OF_TEN)},
    ),
    # Fig. 6.
    "experts": (
        _expert_numbers,
        {"num_experts": [10, 16, 32], "top_k": [2, 4], "num_adversarial": [1, 2]},
    ),
    # Table VII.
    "gate_input": (_gate_input, {"query": None, "user": None}),
    "architecture": (
        _architecture,
        {
            "expert_hidden_dims": [[1024, 512, 256], [512, 256, 128], [256, 128, 64], [64, 32]],
            "embedding_dim": [8, 16, 32],
            "activation": ["relu", "gelu"],
            "trunk": ["none", "attention"],
        },
    ),
}


def _from_preset(given: Mapping[str, Any], base: RunConfig, schema: FeatureSchema) -> Space:
    name = given["preset"]
    if name not in PRESETS:
        raise UserError(f"space {name!r} is unknown; there are: {', '.join(PRESETS)}")
    make, defaults = PRESETS[name]
    for key in given:
        if key != "preset" and key not in defaults:
            raise UserError(f"space {name}: takes no {key!r}; it takes {', '.join(defaults)}")
    values = {**defaults, **{key: value for key, value in given.items() if key != "preset"}}
    dimensions = tuple(make(values, base, schema))
    return Space({"preset": name, **values}, dimensions)


# ------------------------------------------------------------------------------------------- checks


def _check(space: Space, base: RunConfig) -> None:
    """Refuses settings that the model does not have, and values that no run takes."""
    models = space.models(base)
    of_some_model = {name for family in MODELS.values() for name in family.parameters}
    for key in keys_of(space.dimensions):
        have = [name for name, family in MODELS.items() if key in family.parameters]
        if key in of_some_model and not set(have) & set(models):
            raise UserError(
                f"space: {key}: model {', '.join(map(repr, models))} has none; "
                f"those that have: {', '.join(have)}"
            )
    if "batch_size" in keys_of(space.dimensions) and base.steps_per_epoch is not None:
        raise UserError(
            "space: batch_size varies while base.steps_per_epoch is set: trials would see more "
            "lists or fewer; leave steps_per_epoch out"
        )
    for dimension in space.dimensions:
        for _, settings in dimension.options if isinstance(dimension, Choice) else ():
            make_config(settings_above(base, settings), "space")
