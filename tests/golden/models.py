"""Scores, losses and gradients of every neural model, under small settings and fixed seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.scorers.batch import RERANKING, TABLES, raw_batch
from tests.tiny import SCHEMA, TASKS
from tfr_moe import losses
from tfr_moe._compat import tf
from tfr_moe.config import MODEL_NAMES, MULTITASK_NAMES, applicable, make_config
from tfr_moe.config.models import PRESET_MODELS
from tfr_moe.schema import MASK
from tfr_moe.scorers import create

WIDTHS: dict[str, Any] = {
    **RERANKING,
    "tower_hidden_dims": (4,),
    "auxiliary_hidden_dims": (4,),
    "tensor_ranks": (3, 3, 2),
    "state_dim": 3,
    "num_comparisons": 2,
    "cross_buckets": 30,
    "dropout": 0.0,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 6,
    "top_k": 2,
    "num_adversarial": 3,
    "hsc_weight": 20.0,
    "adversarial_weight": 0.2,
}
CAPACITY: dict[str, Any] = {"dispatch": "grouped", "expert_capacity": 3}
RECOMMENDED: dict[str, Any] = {"preset": "recommended", **dict.fromkeys(EXPERTS)}
"""The preset with its own numbers of experts, in place of those of `EXPERTS`."""
LEVELS: dict[str, Any] = {"loss": "ordinal", "max_label": 4}

MIXTURE: dict[str, dict[str, Any]] = {
    "capacity": CAPACITY,
    "recommended": RECOMMENDED,
    "recommended, capacity": {**RECOMMENDED, **CAPACITY},
    "gate_residual": {"gate_residual": True},
    "shared_expert": {"shared_expert": True},
    "attention": {"trunk": "attention"},
    "balance": {"importance_weight": 0.3},
    "dropout": {"dropout": 0.3},
    "gated by everything": {"gate_features": ("all",)},
    "gated by parent and child": {"gate_features": ("top", "sub")},
    "ignored features": {"ignored_features": ("age", "brand"), "embedding_l2": 0.1},
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dnn, attention": ("dnn", {"trunk": "attention"}),
    "dnn, dropout": ("dnn", {"dropout": 0.3}),
    "dnn, levels": ("dnn", LEVELS),
    "context_aware, fixed places": ("context_aware", {"positional_encoding": "fixed"}),
    "ple, one level": ("ple", {"unknown_share": 0.3, "num_levels": 1}),
    "star, no norm": ("star", {"unknown_share": 0.3, "domain_norm": False}),
    "mmoe, attention": ("mmoe", {"trunk": "attention"}),
}
GIVEN = {"purchase": {"conditioned_on": "click"}, "click": {}}
TWO_TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name}, tasks": (name, {}) for name in MULTITASK_NAMES},
    "mmoe, conversion": ("mmoe", {"tasks": GIVEN}),
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODEL_NAMES},
    **{f"adv_hsc_moe, {name}": ("adv_hsc_moe", given) for name, given in MIXTURE.items()},
    **OTHERS,
    **TWO_TASKS,
}
"""Name of a case -> name of its model, and its settings beside the small ones."""


def build(case: str) -> tf.keras.Model:
    """The model of a case, initialised under its seed."""
    name, given = CASES[case]
    preset = {"preset": "paper"} if name in PRESET_MODELS else {}
    settings = {"model": name, **preset, **WIDTHS, **EXPERTS, **given}
    if "preset" in given:
        settings = {key: value for key, value in settings.items() if value is not None}
    config = make_config(applicable(name, settings))
    schema = TASKS if case in TWO_TASKS else SCHEMA
    tasks = config.tasks_over(schema)
    parameters = {
        **config.model_dump(),
        "tasks": {task.name: task.conditioned_on for task in tasks} or None,
        "num_outputs": config.num_outputs,
    }
    tf.keras.utils.set_random_seed(7)
    return create(name, schema, TABLES, parameters).build_model()


def labels(valid: Any) -> dict[str, Any]:
    """Binary labels and grades for the items of a batch, negative at padded places."""
    rng = np.random.default_rng(3)
    drawn = {"binary": rng.integers(0, 2, valid.shape), "grades": rng.integers(0, 5, valid.shape)}
    return {name: tf.constant(np.where(valid, y, -1), tf.float32) for name, y in drawn.items()}


def by_name(outputs: Any) -> dict[str, Any]:
    """The outputs of a model by task; those of a single score as `score`."""
    return dict(outputs) if isinstance(outputs, Mapping) else {"score": outputs}


def loss_and_gradients(
    model: tf.keras.Model, batch: dict[str, Any], truth: dict[str, Any], training: bool
) -> tuple[Any, Any, list[Any]]:
    """The loss of all outputs and layers, the global norm of its gradient, and the gradient."""
    with tf.GradientTape() as tape:
        terms = []
        for _, output in sorted(by_name(model(batch, training=training)).items()):
            if output.shape.rank == 3:
                terms.append(losses.get("ordinal", max_label=4)(truth["grades"], output))
            else:
                terms.append(losses.get("sigmoid_cross_entropy")(truth["binary"], output))
        total = tf.add_n([*terms, *model.losses])
    result = tape.gradient(total, model.trainable_variables)
    gradients = [None if g is None else tf.convert_to_tensor(g) for g in result]
    return total, tf.linalg.global_norm([g for g in gradients if g is not None]), gradients


def scores(model: tf.keras.Model, batch: dict[str, Any]) -> dict[str, list[float]]:
    """The outputs for the valid items in inference, by name."""
    valid = batch[MASK].numpy()
    return {
        name: value.numpy()[valid].ravel().tolist()
        for name, value in by_name(model(batch, training=False)).items()
    }


def numbers(case: str) -> dict[str, Any]:
    """All numbers of a case.

    Training is in a graph, where each random op has a state of its own: what is drawn then does not
    depend on the order in which ops were made. Two steps of gradient descent are taken, so that the
    scores after them depend on the whole gradient.
    """
    model, batch = build(case), raw_batch()
    truth = labels(batch[MASK].numpy())
    loss, norm, _ = loss_and_gradients(model, batch, truth, training=False)
    result = {
        "parameters": model.count_params(),
        "scores": scores(model, batch),
        "inference": {"loss": float(loss), "gradient_norm": float(norm)},
    }

    @tf.function(autograph=False)
    def step() -> tuple[Any, Any]:
        loss, norm, gradients = loss_and_gradients(model, batch, truth, training=True)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            if gradient is not None:
                variable.assign_sub(0.1 * gradient)
        return loss, norm

    for number in (1, 2):
        loss, norm = step()
        result[f"training step {number}"] = {"loss": float(loss), "gradient_norm": float(norm)}
    result["scores after training"] = scores(model, batch)
    return result
