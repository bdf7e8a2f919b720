"""The models by name, one `ModelSpec` row each, and presets of the mixture family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfr_moe.config.settings import GROUPS, SETTINGS
from tfr_moe.errors import UserError

Kind = Literal["ranker", "multi_task", "baseline"]


def _of(*groups: str) -> tuple[str, ...]:
    """The settings of some groups."""
    return tuple(name for group in groups for name in GROUPS[group].model_fields)


_RUN = _of("objective", "optimization", "data", "training")
_COMMON = (*_RUN, *_of("features", "attention", "bias"), "dropout")
_TOWER = (*_COMMON, "expert_hidden_dims", "activation")
_SINGLE = (*_TOWER, "category_head")
_MIXTURE = (*_SINGLE, *_of("gate"), "shared_expert", "dispatch", "expert_capacity")
_HSC, _ADVERSARIAL = _of("hsc"), _of("adversarial")
_TASKS = (*_TOWER, "tasks", "score_combination", "tower_hidden_dims")
_PLE = ("unknown_share", "num_levels", "num_domain_experts", "num_shared_experts")
_STAR = ("unknown_share", "auxiliary_hidden_dims", "domain_norm")
_CATEGORY_GATES = ("num_experts", "top_k", "noisy_gate", "gate_learning_rate_multiplier", *_HSC)
_BASELINE = ("library_parameters", "ignored_features", "list_relative")


@dataclass(frozen=True)
class ModelSpec:
    """A model.

    Attributes:
        summary: one line.
        settings: flat names of the settings that the model uses; another one is rejected.
        scorer: `module:class` of the scorer; None for a baseline.
        fixed: arguments of the scorer that the model's name fixes.
        defaults: settings whose default is not that of the group.
        kind: `multi_task` for models with a score per task, `baseline` for rankers of other
            libraries.
        attention: the model has the self-attention encoder whatever `trunk` says.
        wide_heads: its attention heads are as wide as the encoder, so any number of them fits.
        dense_gate: its gates weight all N experts, so there is no K.
    """

    summary: str
    settings: tuple[str, ...]
    scorer: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "ranker"
    attention: bool = False
    wide_heads: bool = False
    dense_gate: bool = False


def _mixture(summary: str, *settings: str, **fixed: Any) -> ModelSpec:
    return ModelSpec(
        summary, (*_MIXTURE, *settings), "tfr_moe.scorers.mixture:MixtureScorer", fixed
    )


def _multi_task(summary: str, network: str, *settings: str, **facts: Any) -> ModelSpec:
    return ModelSpec(
        summary,
        (*_TASKS, *settings),
        "tfr_moe.scorers.multitask:MultiTaskScorer",
        {"network": network},
        kind="multi_task",
        **facts,
    )


def _baseline(summary: str, *settings: str) -> ModelSpec:
    return ModelSpec(summary, (*_BASELINE, *settings), kind="baseline")


_DENSE_GATES: dict[str, Any] = {"defaults": {"num_experts": 10}, "dense_gate": True}
_LISTWISE: dict[str, Any] = {"optimizer": "adam", "learning_rate": 1e-3, "loss": "softmax_loss"}
_PRM: dict[str, Any] = {
    **_LISTWISE,
    "trunk": "attention",
    "attention_dim": 64,
    "attention_blocks": 4,
    "attention_heads": 3,
    "attention_hidden_dim": 64,
    "positional_encoding": "learned",
    "dropout": 0.1,
}


def _prm(summary: str, **fixed: Any) -> ModelSpec:
    return ModelSpec(
        summary,
        (*_COMMON, "personal_vector"),
        "tfr_moe.scorers.reranking:PRMScorer",
        fixed,
        _PRM,
        attention=True,
        wide_heads=True,
    )


MODELS: dict[str, ModelSpec] = {
    "dnn": ModelSpec("one tower", _SINGLE, "tfr_moe.scorers.tower:TowerScorer"),
    "wide_dnn": ModelSpec(
        "one tower with the active parameters of the mixture",
        (*_SINGLE, "num_experts", "top_k"),
        "tfr_moe.scorers.tower:WideTowerScorer",
        defaults={"top_k": 3},  # the two active experts of the mixture and its shared one
    ),
    "moe": _mixture("N towers, of which a gate selects K", hsc_weight=None, num_adversarial=0),
    "adv_moe": _mixture("moe with AdvLoss", *_ADVERSARIAL, hsc_weight=None),
    "hsc_moe": _mixture("moe with HSC", *_HSC, num_adversarial=0),
    "adv_hsc_moe": _mixture("moe with HSC and AdvLoss", *_HSC, *_ADVERSARIAL),
    "ple": ModelSpec(
        "progressive layered extraction: experts of each domain beside shared ones",
        (*_TOWER, *_PLE, "tower_hidden_dims"),
        "tfr_moe.scorers.multi_domain:PLEScorer",
    ),
    "star": ModelSpec(
        "star topology: shared weights times weights of each domain",
        (*_TOWER, *_STAR),
        "tfr_moe.scorers.multi_domain:StarScorer",
    ),
    "mlp": ModelSpec(
        "one tower with a listwise loss",
        _SINGLE,
        "tfr_moe.scorers.tower:TowerScorer",
        defaults={**_LISTWISE, "expert_hidden_dims": (256, 384, 256)},
    ),
    "context_aware": ModelSpec(
        "self-attention over the list (Pobrotyn et al.)",
        _COMMON,
        "tfr_moe.scorers.tower:TowerScorer",
        {"expert_hidden_dims": ()},
        {**_LISTWISE, "trunk": "attention"},
        attention=True,
    ),
    "prm_base": _prm("PRM without personalized vectors (Pei et al.)", personalized=False),
    "prm_personalized": _prm("PRM with personalized vectors (Pei et al.)", personalized=True),
    "dlcm": ModelSpec(
        "deep listwise context model: a GRU over the initial list (Ai et al.)",
        (*_COMMON, "expert_hidden_dims", "state_dim", "num_comparisons"),
        "tfr_moe.scorers.reranking:DLCMScorer",
        defaults={**_LISTWISE, "expert_hidden_dims": (64, 64)},
    ),
    "wide_deep": ModelSpec(
        "a linear model of crossed IDs beside a tower (Cheng et al.)",
        (*_TOWER, "cross_buckets"),
        "tfr_moe.scorers.tower:WideDeepScorer",
    ),
    "click_model": ModelSpec(
        "one tower whose last hidden layer is PRM's personalized vector",
        _TOWER,
        "tfr_moe.scorers.tower:ClickModelScorer",
        defaults={"expert_hidden_dims": (256, 64)},
    ),
    "single_task": _multi_task("a network per task", "single_task"),
    "shared_bottom": _multi_task("one network, a tower per task", "shared_bottom"),
    "l2_constrained": _multi_task(
        "a network per task, held close by an L2 penalty", "l2_constrained", "l2_weight"
    ),
    "cross_stitch": _multi_task(
        "a network per task, mixed layer by layer", "cross_stitch", "stitch_self_weight"
    ),
    "tensor_factorization": _multi_task(
        "a network per task from one factored tensor", "tensor_factorization", "tensor_ranks"
    ),
    "omoe": _multi_task(
        "experts with one gate for all tasks", "omoe", "num_experts", **_DENSE_GATES
    ),
    "mmoe": _multi_task("experts with a gate per task", "mmoe", "num_experts", **_DENSE_GATES),
    "category_mmoe": ModelSpec(
        "experts with a category gate per task",
        (*_TASKS, *_CATEGORY_GATES),
        "tfr_moe.scorers.multitask:CategoryMMoEScorer",
        defaults={
            "num_experts": 10,
            "top_k": 4,
            "gate_learning_rate_multiplier": 1.0,
            "hsc_weight": 1e-3,
        },
        kind="multi_task",
    ),
    "lambdamart": _baseline("LightGBM's LambdaMART", "position_bias"),
    "xgboost": _baseline("XGBoost's ranker"),
    "svm_rank": _baseline("scikit-learn's linear pairwise ranker"),
}
"""The models, neural ones first."""

MODEL_NAMES: tuple[str, ...] = tuple(n for n, spec in MODELS.items() if spec.kind != "baseline")
"""The neural models."""
BASELINE_NAMES: tuple[str, ...] = tuple(n for n in MODELS if n not in MODEL_NAMES)
"""The models of other libraries."""
MULTITASK_NAMES: tuple[str, ...] = tuple(n for n, s in MODELS.items() if s.kind == "multi_task")
"""The models with a score per task."""


ORDINAL_MODELS = ("dnn", "wide_dnn", "mlp", "context_aware")
"""Models that have an output for each grade, for the loss `ordinal`."""


def applicable(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a model uses, for settings that several models are trained with.

    Example:
        >>> applicable("dnn", {"top_k": 2, "dropout": 0.1})
        {'dropout': 0.1}
    """
    unused = set(SETTINGS) - set(MODELS[model].settings)
    return {name: value for name, value in settings.items() if name not in unused}


PRESET_MODELS = ("dnn", "wide_dnn", "moe", "adv_moe", "hsc_moe", "adv_hsc_moe")
"""Models that take presets; `dnn` and `wide_dnn` so that they can be compared under the same."""

PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "paper": {
        "num_experts": 10,
        "top_k": 4,
        "num_adversarial": 1,
        "hsc_weight": 1e-3,
        "adversarial_weight": 1e-3,
        "importance_weight": 0.0,
        "noisy_gate": True,
        "gate_learning_rate_multiplier": 1.0,
        "gate_residual": False,
        "shared_expert": False,
        "expert_hidden_dims": (1024, 512, 256),
        "embedding_dim": 16,
        "activation": "relu",
        "optimizer": "adamw",
        "learning_rate": 1e-4,
    },
}
"""Settings of the mixture family by name.

`recommended` is the defaults, of which docs/results.md has the evidence: many experts of which few
are active, and one that scores every item; a gate that begins as the top category's; noise and a
little balance. Towers, embeddings and the learning rate follow the data: their defaults are the
paper's. `paper` has all settings of the first paper.
"""


def preset_settings(name: str, model: str) -> dict[str, Any]:
    """The settings of a preset for a model, by their flat names."""
    if name not in PRESETS:
        raise UserError(f"preset {name!r}: must be one of {', '.join(PRESETS)}")
    if model not in PRESET_MODELS:
        raise UserError(f"presets are for {', '.join(PRESET_MODELS)}, not {model}")
    return applicable(model, PRESETS[name])
