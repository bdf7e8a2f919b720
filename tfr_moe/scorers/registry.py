"""Scorers by the model names of configs, tables and the command line."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from tfr_moe.config import MODELS
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer

_ENCODER = {
    "attention_dim": "dim",
    "attention_blocks": "num_blocks",
    "attention_heads": "num_heads",
    "attention_hidden_dim": "hidden_dim",
    "attention_residual": "residual",
    "positional_encoding": "positional_encoding",
    "max_positions": "max_positions",
    "dropout": "dropout",
}
"""Settings of a run -> arguments of `SelfAttentionEncoder`."""


def create(
    model: str, schema: FeatureSchema, tables: FeatureTables, parameters: Mapping[str, Any]
) -> FeatureScorer:
    """Creates the scorer of a model name.

    Args:
        model: a name of `tfr_moe.config.MODELS` that is not a baseline.
        parameters: settings by their flat names (`RunConfig.flat`), and `num_outputs`. Those that
            are not arguments of the scorer are ignored.

    Raises:
        UserError: for an unknown name.
    """
    scorers = {name: spec for name, spec in MODELS.items() if spec.scorer is not None}
    if model not in scorers:
        raise UserError(f"model {model!r} is unknown; allowed: {', '.join(scorers)}")
    spec = scorers[model]
    module, _, name = str(spec.scorer).partition(":")
    scorer = getattr(importlib.import_module(module), name)
    names = {field.name for field in dataclasses.fields(scorer)} - {"trunk"}
    arguments = {name: value for name, value in parameters.items() if name in names}
    if spec.attention or parameters.get("trunk") == "attention":
        arguments["trunk"] = {
            argument: parameters[name] for name, argument in _ENCODER.items() if name in parameters
        }
    return scorer(schema, tables, **{**arguments, **spec.fixed})
