"""The models by name, what kinds of them there are, and what they have for a default."""

from __future__ import annotations

from typing import Any, Literal, get_args

ModelName = Literal[
    "dnn",
    "wide_dnn",
    "moe",
    "adv_moe",
    "hsc_moe",
    "adv_hsc_moe",
    "ple",
    "star",
    "mlp",
    "context_aware",
    "prm_base",
    "prm_personalized",
    "dlcm",
    "wide_deep",
    "click_model",
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
    "category_mmoe",
]
BaselineName = Literal["lambdamart", "xgboost", "svm_rank"]
BASELINE_NAMES: tuple[str, ...] = get_args(BaselineName)
MODEL_NAMES: tuple[str, ...] = get_args(ModelName)
MULTITASK_NAMES = MODEL_NAMES[MODEL_NAMES.index("single_task") :]
TOWERS = ("dnn", "wide_dnn", "mlp")
MIXTURES = ("moe", "adv_moe", "hsc_moe", "adv_hsc_moe")
ADVERSARIAL = ("adv_moe", "adv_hsc_moe")
DOMAIN_NAMES = ("ple", "star")
DENSE_MIXTURES = ("omoe", "mmoe")  # gates over all N experts; there is no K
WIDE_HEADS = ("prm_base", "prm_personalized")  # heads as wide as the encoder

_LISTWISE: dict[str, Any] = {"optimizer": "adam", "learning_rate": 1e-3, "loss": "softmax_loss"}
_PRM = {
    **_LISTWISE,
    "trunk": "attention",
    "attention_dim": 64,
    "attention_blocks": 4,
    "attention_heads": 3,
    "attention_hidden_dim": 64,
    "positional_encoding": "learned",
    "dropout": 0.1,
}
MODEL_DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": {**_LISTWISE, "expert_hidden_dims": (256, 384, 256)},
    "context_aware": {**_LISTWISE, "trunk": "attention"},
    "prm_base": _PRM,
    "prm_personalized": _PRM,
    "dlcm": {**_LISTWISE, "expert_hidden_dims": (64, 64)},
    "click_model": {"expert_hidden_dims": (256, 64)},
}
"""What models have for a default where it is not that of the first paper.

`mlp` and `context_aware` are those of Pobrotyn et al. for shop logs (Tables 6 and 7), PRM is the default of
Pei et al. (Table 4) on theirs.
"""
