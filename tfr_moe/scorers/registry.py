"""Scorers by the model names of configs, tables and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.multitask import CategoryMMoEScorer, MultiTaskScorer
from tfr_moe.scorers.tower import TowerScorer, WideTowerScorer

_COMMON = ("embedding_dim", "embedding_l2", "expert_hidden_dims", "activation", "dropout", "seed")
_SINGLE = (*_COMMON, "num_outputs")
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
"""Parameters of a run -> arguments of `SelfAttentionEncoder`."""
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
_TASKS = (*_COMMON, "tasks", "category_groups", "tower_hidden_dims", "parameter_budget")
_CATEGORY_GATES = (
    "num_experts",
    "top_k",
    "hsc_weight",
    "gate_learning_rate_multiplier",
    "noisy_gate",
)


class ModelFamily(NamedTuple):
    """A scorer class, the parameters that it takes from a run and those that its name fixes.

    Those of `settings` it takes together, as the argument of that name.
    """

    scorer: type[FeatureScorer]
    parameters: tuple[str, ...]
    fixed: Mapping[str, Any]
    settings: tuple[str, ...] = ()


def _multitask(network: str, *settings: str) -> ModelFamily:
    return ModelFamily(MultiTaskScorer, _TASKS, {"network": network}, settings)


MODELS: dict[str, ModelFamily] = {
    "dnn": ModelFamily(TowerScorer, _SINGLE, {}),
    "wide_dnn": ModelFamily(WideTowerScorer, (*_SINGLE, "num_experts", "top_k"), {}),
    "moe": ModelFamily(
        MixtureScorer, (*_SINGLE, *_GATE), {"hsc_weight": None, "num_adversarial": 0}
    ),
    "adv_moe": ModelFamily(MixtureScorer, (*_SINGLE, *_GATE, *_ADVERSARIAL), {"hsc_weight": None}),
    "hsc_moe": ModelFamily(MixtureScorer, (*_SINGLE, *_GATE, *_HSC), {"num_adversarial": 0}),
    "adv_hsc_moe": ModelFamily(MixtureScorer, (*_SINGLE, *_GATE, *_HSC, *_ADVERSARIAL), {}),
    "single_task": _multitask("single_task"),
    "shared_bottom": _multitask("shared_bottom"),
    "l2_constrained": _multitask("l2_constrained", "l2_weight"),
    "cross_stitch": _multitask("cross_stitch", "own_share"),
    "tensor_factorization": _multitask("tensor_factorization", "tensor_ranks"),
    "omoe": _multitask("omoe", "num_experts"),
    "mmoe": _multitask("mmoe", "num_experts"),
    "category_mmoe": ModelFamily(CategoryMMoEScorer, _TASKS, {}, _CATEGORY_GATES),
}


def create(
    model: str, schema: FeatureSchema, tables: FeatureTables, parameters: Mapping[str, Any]
) -> FeatureScorer:
    """The scorer of a model name.

    Args:
        model: one of `MODELS`.
        schema: the schema of the data.
        tables: statistics and vocabularies of the training split.
        parameters: by their names in `RunConfig`; what the model does not have is not read. With
            `trunk: attention` any model gets a self-attention encoder before its towers.

    Raises:
        UserError: for an unknown name.
    """
    if model not in MODELS:
        raise UserError(f"model {model!r} is unknown; there are: {', '.join(MODELS)}")
    family = MODELS[model]
    taken = {name: parameters[name] for name in family.parameters if name in parameters}
    settings = {name: parameters[name] for name in family.settings if name in parameters}
    if settings:
        taken["settings"] = settings
    if parameters.get("trunk", "none") == "attention":
        taken["trunk"] = {
            argument: parameters[name] for name, argument in _ENCODER.items() if name in parameters
        }
    return family.scorer(schema, tables, **taken, **family.fixed)
