"""Scorers by the model names of configs, tables and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.tower import TowerScorer, WideTowerScorer

_COMMON = ("embedding_dim", "embedding_l2", "expert_hidden_dims", "activation", "dropout", "seed")
_GATE = (
    "gate_features",
    "num_experts",
    "top_k",
    "importance_weight",
    "load_weight",
    "gate_learning_rate_multiplier",
    "noisy_gate",
)
_HSC = ("hsc_weight",)
_ADVERSARIAL = ("num_adversarial", "adversarial_weight")


class ModelFamily(NamedTuple):
    """A scorer class, the parameters that it takes from a run and those that its name fixes."""

    scorer: type[FeatureScorer]
    parameters: tuple[str, ...]
    fixed: Mapping[str, Any]


MODELS: dict[str, ModelFamily] = {
    "dnn": ModelFamily(TowerScorer, _COMMON, {}),
    "wide_dnn": ModelFamily(WideTowerScorer, (*_COMMON, "num_experts", "top_k"), {}),
    "moe": ModelFamily(
        MixtureScorer, (*_COMMON, *_GATE), {"hsc_weight": None, "num_adversarial": 0}
    ),
    "adv_moe": ModelFamily(MixtureScorer, (*_COMMON, *_GATE, *_ADVERSARIAL), {"hsc_weight": None}),
    "hsc_moe": ModelFamily(MixtureScorer, (*_COMMON, *_GATE, *_HSC), {"num_adversarial": 0}),
    "adv_hsc_moe": ModelFamily(MixtureScorer, (*_COMMON, *_GATE, *_HSC, *_ADVERSARIAL), {}),
}


def create(
    model: str, schema: FeatureSchema, tables: FeatureTables, parameters: Mapping[str, Any]
) -> FeatureScorer:
    """The scorer of a model name.

    Args:
        model: one of `MODELS`.
        schema: the schema of the data.
        tables: statistics and vocabularies of the training split.
        parameters: by their names in DESIGN and `RunConfig`; what the model does not have is not read.

    Raises:
        UserError: for an unknown name.
    """
    if model not in MODELS:
        raise UserError(f"model {model!r} is unknown; there are: {', '.join(MODELS)}")
    family = MODELS[model]
    taken = {name: parameters[name] for name in family.parameters if name in parameters}
    return family.scorer(schema, tables, **taken, **family.fixed)
