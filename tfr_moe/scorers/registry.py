"""Scorers by the model names of configs, tables and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfr_moe.errors import UserError
from tfr_moe.layers.mixture_options import OPTIONS
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.domains import PLEScorer, StarScorer
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.multitask import CategoryMMoEScorer, MultiTaskScorer
from tfr_moe.scorers.pointwise import ClickModelScorer, WideDeepScorer
from tfr_moe.scorers.reranking import DLCMScorer, PRMScorer
from tfr_moe.scorers.tower import TowerScorer, WideTowerScorer

_ENCODER = {
    "attention_dim": "dim",
    "attention_blocks": "num_blocks",
    "attention_heads": "num_heads",
    "attention_hidden_dim": "hidden_dim",
    "attention_residual": "residual",
    "attention_points": "num_points",
    "positional_encoding": "positional_encoding",
    "max_positions": "max_positions",
    "dropout": "dropout",
}
"""Parameters of a run -> arguments of `SelfAttentionEncoder`."""
_TRUNK = ("trunk", *(name for name in _ENCODER if name != "dropout"))
_FEATURES = ("embedding_dim", "embedding_l2", "ignored_features", "dropout", "seed", *_TRUNK)
_COMMON = ("expert_hidden_dims", "activation", *_FEATURES)
_SINGLE = (*_COMMON, "num_outputs", "expert_norm")
_LISTWISE = (*_FEATURES, "num_outputs")
_GATE = (
    "gate_features",
    "num_experts",
    "top_k",
    "importance_weight",
    "load_weight",
    "gate_learning_rate_multiplier",
    "noisy_gate",
    "dispatch",
    "expert_capacity",
    "jit_compile",
)
_HSC = ("hsc_weight",)
_GATE_OPTIONS = tuple(n for n, (part, *_) in OPTIONS.items() if part in ("gate", "mixture"))
_HSC_OPTIONS = tuple(n for n, (part, *_) in OPTIONS.items() if part == "hsc")
_ADVERSARIAL_OPTIONS = tuple(n for n, (part, *_) in OPTIONS.items() if part == "adversarial")
_ADVERSARIAL = ("num_adversarial", "adversarial_weight")
_TASKS = (
    *_COMMON,
    "num_outputs",
    "tasks",
    "graded_tasks",
    "category_groups",
    "tower_hidden_dims",
    "parameter_budget",
)
_DOMAINS = (*_COMMON, "num_outputs", "category_groups", "unknown_share")
_LEVELS = ("tower_hidden_dims", "num_levels", "num_domain_experts", "num_shared_experts")
_CATEGORY_GATES = (
    "num_experts",
    "top_k",
    "hsc_weight",
    "gate_learning_rate_multiplier",
    "noisy_gate",
)


class ModelFamily(NamedTuple):
    """A scorer class, the parameters that it takes from a run and those that its name fixes.

    Those of `settings` it takes together, as the argument of that name. A family with `attention` has
    the encoder whatever `trunk` says.
    """

    scorer: type[FeatureScorer]
    parameters: tuple[str, ...]
    fixed: Mapping[str, Any]
    settings: tuple[str, ...] = ()
    attention: bool = False


def _multitask(network: str, *settings: str) -> ModelFamily:
    return ModelFamily(MultiTaskScorer, _TASKS, {"network": network}, settings)


MODELS: dict[str, ModelFamily] = {
    "dnn": ModelFamily(TowerScorer, _SINGLE, {}),
    "wide_dnn": ModelFamily(WideTowerScorer, (*_SINGLE, "num_experts", "top_k"), {}),
    "moe": ModelFamily(
        MixtureScorer,
        (*_SINGLE, *_GATE),
        {"hsc_weight": None, "num_adversarial": 0},
        _GATE_OPTIONS,
    ),
    "adv_moe": ModelFamily(
        MixtureScorer,
        (*_SINGLE, *_GATE, *_ADVERSARIAL),
        {"hsc_weight": None},
        (*_GATE_OPTIONS, *_ADVERSARIAL_OPTIONS),
    ),
    "hsc_moe": ModelFamily(
        MixtureScorer,
        (*_SINGLE, *_GATE, *_HSC),
        {"num_adversarial": 0},
        (*_GATE_OPTIONS, *_HSC_OPTIONS),
    ),
    "adv_hsc_moe": ModelFamily(
        MixtureScorer, (*_SINGLE, *_GATE, *_HSC, *_ADVERSARIAL), {}, tuple(OPTIONS)
    ),
    "ple": ModelFamily(PLEScorer, (*_DOMAINS, *_LEVELS), {}),
    "star": ModelFamily(StarScorer, (*_DOMAINS, "auxiliary_hidden_dims", "domain_norm"), {}),
    "mlp": ModelFamily(TowerScorer, _SINGLE, {}),
    "context_aware": ModelFamily(
        TowerScorer, _LISTWISE, {"expert_hidden_dims": ()}, attention=True
    ),
    "prm_base": ModelFamily(
        PRMScorer, (*_LISTWISE, "personal_vector"), {"personalized": False}, attention=True
    ),
    "prm_personalized": ModelFamily(
        PRMScorer, (*_LISTWISE, "personal_vector"), {"personalized": True}, attention=True
    ),
    "dlcm": ModelFamily(
        DLCMScorer, (*_LISTWISE, "expert_hidden_dims", "state_dim", "num_views"), {}
    ),
    "wide_deep": ModelFamily(
        WideDeepScorer, (*_COMMON, "num_outputs", "wide_crosses", "cross_buckets"), {}
    ),
    "click_model": ModelFamily(ClickModelScorer, (*_COMMON, "num_outputs"), {}),
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
            `trunk: attention` any model gets a self-attention encoder before its towers; the models
            of the papers on attention have it anyway.

    Raises:
        UserError: for an unknown name, or several outputs of a model that has one.
    """
    if model not in MODELS:
        raise UserError(f"model {model!r} is unknown; there are: {', '.join(MODELS)}")
    family = MODELS[model]
    if parameters.get("num_outputs", 1) > 1 and "num_outputs" not in family.parameters:
        raise UserError(f"model {model!r} has one output for each item; loss ordinal needs several")
    given = [name for name in family.parameters if name in parameters and name not in _TRUNK]
    taken = {name: parameters[name] for name in given}
    settings = {name: parameters[name] for name in family.settings if name in parameters}
    if settings:
        taken["settings"] = settings
    if family.attention or parameters.get("trunk") == "attention":
        taken["trunk"] = {
            argument: parameters[name] for name, argument in _ENCODER.items() if name in parameters
        }
    return family.scorer(schema, tables, **taken, **family.fixed)
