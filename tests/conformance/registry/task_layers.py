"""Layers of several tasks: networks, gated mixtures, and what becomes of their logits."""

from __future__ import annotations

import functools

import tfr_moe.layers as layers
from tests.conformance.arrays import floats, ids, mask
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import LISTS, MIXTURE, MULTITASK, D, K, N
from tfr_moe._compat import tf

ROWS = [
    *(
        ModelCase(
            name,
            functools.partial(layers.make_multitask, name, 3, **MULTITASK),
            LISTS,
            {"output": "BL"},
            draws=True,
        )
        for name in layers.MULTITASK
    ),
    *(
        ModelCase(
            f"{name} without draws",
            functools.partial(layers.make_multitask, name, 2, hidden_dims=[8]),
            LISTS,
            {"output": "BL"},
        )
        for name in layers.MULTITASK
    ),
    ModelCase(
        "TaskTowers",
        lambda: layers.TaskTowers(D, [8]),
        {"inputs": floats("B", D * 4)},
        {"output": "B"},
        call=lambda layer, x: layer(tf.reshape(x["inputs"], [-1, D, 4])),
    ),
    ModelCase(
        "CategoryMMoE",
        lambda: layers.CategoryMMoE(2, num_experts=N, top_k=K, **MULTITASK),
        MIXTURE,
        {"output": "BL"},
        draws=True,
    ),
    ModelCase(
        "CategoryMMoE without draws",
        lambda: layers.CategoryMMoE(
            3, [8], num_experts=N, top_k=K, noisy_gate=False, hsc_weight=0.5
        ),
        MIXTURE,
        {"output": "BL"},
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
    ModelCase(
        "TaskOfCategory",
        lambda: layers.TaskOfCategory([["a"], ["b", "c"]]),
        {"logits": floats("BL", 2), "categories": ids("B", 1, "a", "b", "c")},
        {"output": "BL"},
    ),
]
