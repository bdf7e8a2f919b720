"""Layers of the mixture of experts: gates, towers, constraints and all of them together."""

from __future__ import annotations

from typing import Any

import tfr_moe.layers as layers
from tests.conformance.arrays import experts, floats, mask, num_items, one_if_valid
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import LEVEL_OUTPUTS, LISTS, MIXTURE, D, K, N
from tfr_moe._compat import tf

GATE = dict.fromkeys(("logits", "indices", "weights"), "B")
ITEM_GATE = dict.fromkeys(GATE, "BL")
MIXED = {"logits": "BL", "expert_ids": "B", "expert_weights": "B"}
OF_LISTS = {**LISTS, "indices": experts("B", K, N)}


def mixture(**settings: Any) -> layers.CategoryMixtureOfExperts:
    return layers.CategoryMixtureOfExperts(
        num_experts=N,
        top_k=K,
        num_adversarial=settings.pop("num_adversarial", D),
        expert_hidden_dims=[8, 4],
        **settings,
    )


ROWS = [
    ModelCase(
        "NoisyTopKGate",
        lambda: layers.NoisyTopKGate(N, K, learning_rate_multiplier=3.0),
        {"inputs": floats("B", 4)},
        GATE,
        draws=True,
    ),
    ModelCase(
        "NoisyTopKGate of items",
        lambda: layers.NoisyTopKGate(N, K, noisy=False),
        {"inputs": floats("BL", 4)},
        ITEM_GATE,
    ),
    ModelCase(
        "ConstraintGate",
        lambda: layers.ConstraintGate(N, K, weight=0.1),
        {"inputs": floats("B", 4)},
        GATE,
    ),
    ModelCase(
        "ExpertTowers",
        lambda: layers.ExpertTowers(N, [8, 4], dropout=0.2),
        OF_LISTS,
        {"output": "BL"},
        draws=True,
    ),
    ModelCase(
        "ExpertTowers in groups",
        lambda: layers.ExpertTowers(N, [8, 4], dispatch="grouped", capacity=4),
        OF_LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "ExpertTowers of items",
        lambda: layers.ExpertTowers(N, [8], activation="tanh"),
        {"inputs": floats("BL", 4), "indices": experts("BL", K, N), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "ItemTower",
        lambda: layers.ItemTower([8, 4]),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "ExpertTowers of several outputs",
        lambda: layers.ExpertTowers(N, [8], **LEVEL_OUTPUTS),
        OF_LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "ItemTower of several outputs",
        lambda: layers.ItemTower([8], **LEVEL_OUTPUTS),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "HierarchicalSoftConstraint",
        lambda: layers.HierarchicalSoftConstraint(0.5),
        {
            "inference_logits": floats("B", N),
            "constraint_logits": floats("B", N),
            "indices": experts("B", K, N),
            "num_items": num_items(),
        },
        {"output": "B"},
    ),
    ModelCase(
        "HierarchicalSoftConstraint of items",
        lambda: layers.HierarchicalSoftConstraint(0.5),
        {
            "inference_logits": floats("BL", N),
            "constraint_logits": floats("B", N),
            "indices": experts("BL", K, N),
            "num_items": one_if_valid(),
        },
        {"output": "BL"},
    ),
    ModelCase(
        "AdversarialExpertPenalty",
        lambda: layers.AdversarialExpertPenalty(0.5),
        {"active_logits": floats("BL", K), "idle_logits": floats("BL", D), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "CategoryMixtureOfExperts",
        lambda: mixture(dropout=0.1),
        MIXTURE,
        MIXED,
        draws=True,
    ),
    ModelCase(
        # All idle experts are compared and the gate is still: nothing is drawn.
        "CategoryMixtureOfExperts without draws",
        lambda: mixture(noisy_gate=False, num_adversarial=N - K, hsc_weight=0.5),
        MIXTURE,
        MIXED,
    ),
    ModelCase(
        "CategoryMixtureOfExperts beyond the paper",
        lambda: mixture(
            noisy_gate=False,
            num_adversarial=N - K,
            gate_residual=True,
            shared_expert=True,
        ),
        MIXTURE,
        MIXED,
    ),
    ModelCase(
        "CategoryMixtureOfExperts of items",
        lambda: mixture(noisy_gate=False, num_adversarial=N - K),
        {**MIXTURE, "gate_inputs": floats("BL", 3)},
        dict.fromkeys(MIXED, "BL"),
    ),
    ModelCase(
        "ExpertTowers, all of them with vectors",
        lambda: layers.ExpertTowers(N, [8, 4], hidden_output=True),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "GateMonitor",
        lambda: layers.gating.GateMonitor(N, gates=["click", "purchase"]),
        {"inputs": floats("B", 2 * N)},
        {"output": "B"},
        call=lambda layer, x: layer(tf.nn.softmax(tf.reshape(x["inputs"], [-1, 2, N]))),
    ),
]
