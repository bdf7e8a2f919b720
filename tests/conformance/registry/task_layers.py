"""Layers of several tasks: networks, gated mixtures, and what becomes of their logits."""

from __future__ import annotations

import functools

import tfr_moe.layers as layers
from tests.conformance.arrays import floats, mask
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import LISTS, MIXTURE, MULTITASK, D, K, N
from tfr_moe._compat import tf
from tfr_moe.scorers.base import RoutedScores


def routing(name: str, num_tasks: int, axes: str) -> dict[str, str]:
    """Axes of the outputs of a gated model, by name; of a model without gates, of its logits."""
    gates = {
        "omoe": [""],
        "mmoe": [f"_task_{k}" for k in range(num_tasks)],
        "category_mmoe": [f"_task_{k}" for k in range(num_tasks)],
    }.get(name)
    if gates is None:
        return {"output": "BL"}
    named = {f"expert_{what}{gate}": axes for gate in gates for what in ("ids", "weights")}
    return {"logits": "BL", **named}


ROWS = [
    *(
        ModelCase(
            name,
            functools.partial(layers.MULTITASK[name], 3, **MULTITASK),
            LISTS,
            routing(name, 3, "BL"),
            draws=True,
        )
        for name in layers.MULTITASK
    ),
    *(
        ModelCase(
            f"{name} without draws",
            functools.partial(layers.MULTITASK[name], 2, hidden_dims=[8]),
            LISTS,
            routing(name, 2, "BL"),
        )
        for name in layers.MULTITASK
    ),
    ModelCase(
        "TaskTowers",
        lambda: layers.multi_task.TaskTowers(D, [8]),
        {"inputs": floats("B", D * 4)},
        {"output": "B"},
        call=lambda layer, x: layer(tf.reshape(x["inputs"], [-1, D, 4])),
    ),
    ModelCase(
        "CategoryMMoE",
        lambda: layers.CategoryMMoE(2, num_experts=N, top_k=K, **MULTITASK),
        MIXTURE,
        routing("category_mmoe", 2, "B"),
        draws=True,
    ),
    ModelCase(
        "CategoryMMoE without draws",
        lambda: layers.CategoryMMoE(
            3, [8], num_experts=N, top_k=K, noisy_gate=False, hsc_weight=0.5
        ),
        MIXTURE,
        routing("category_mmoe", 3, "B"),
    ),
    ModelCase(
        "RoutedScores",
        lambda: RoutedScores(num_experts=N),
        {"logits": floats("BL", None), "expert_weights": floats("B", K)},
        {"logits": "BL", "expert_weights": "B"},
        call=lambda layer, x: layer(x),
    ),
    ModelCase(
        "TaskScores",
        lambda: layers.TaskScores({"click": None, "cart": "click", "view": None}),
        {"logits": floats("BL", 3), "mask": mask()},
        {"click": "BL", "cart": "BL", "view": "BL"},
    ),
    ModelCase(
        "CombinedScore",
        lambda: layers.CombinedScore({"click": 1.0, "cart": 3.0}),
        {"click": floats("BL", None), "cart": floats("BL", None)},
        {"output": "BL"},
        call=lambda layer, x: layer(x),
    ),
]
