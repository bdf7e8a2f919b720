"""The table: every layer, scorer, loss and metric of tfr_moe, with a factory and its inputs.

A class may stand in it more than once. What `tests/conformance` shows, it shows for every row; a
public class without a row fails `test_registry.py`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import tfr_moe.layers as layers
import tfr_moe.losses as losses
import tfr_moe.metrics as metrics
import tfr_moe.scorers as scorers
from tests.conformance.arrays import (
    different_labels,
    experts,
    floats,
    ids,
    labels,
    mask,
    num_items,
    one_if_valid,
    places,
)
from tests.conformance.cases import (
    LossCase,
    MetricCase,
    ModelCase,
    clicked,
    items,
    nonempty,
)
from tests.tiny import SCHEMA, TASKS
from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureTables

N, K, D = 6, 3, 2

TABLES = FeatureTables(
    statistics={
        "context": {"age": {"mean": 40.0, "std": 10.0}},
        "example": {
            "price": {"mean": 3.0, "std": 0.5},
            "sales": {"mean": 0.0, "std": 0.0},
        },
    },
    vocabularies={
        "top": ["a", "b"],
        "sub": ["a > x", "a > y", "b > x", "b > z"],
        "brand": ["brand0", "brand1", "brand2"],
    },
)

CONTEXT = {
    "context_numeric": floats("B", 1, scale=50.0),
    "top": ids("B", 1, "a", "b"),
    "sub": ids("B", 1, "x", "y", "z"),
    "clicked": ids("B", 3, "item1", "item2"),
}
EXAMPLE = {
    "example_numeric": floats("BL", 2, scale=20.0),
    "brand": ids("BL", 1, "brand0", "brand2"),
}


# The same tables with vocabularies in files, as a data-set folder has them.
FOLDER = Path(__file__).parent / "vocabulary"
FILE_TABLES = TABLES._replace(
    vocabularies={name: str(FOLDER / f"{name}.txt") for name in TABLES.vocabularies}
)


def encode(layer: Any, x: dict[str, Any]) -> Any:
    return layer(
        {name: x[name] for name in CONTEXT}, {name: x[name] for name in EXAMPLE}, x["mask"]
    )


def mixture(**settings: Any) -> layers.CategoryMixtureOfExperts:
    return layers.CategoryMixtureOfExperts(
        num_experts=N,
        top_k=K,
        num_adversarial=settings.pop("num_adversarial", D),
        expert_hidden_dims=[8, 4],
        **settings,
    )


SMALL: dict[str, Any] = {"embedding_dim": 4, "expert_hidden_dims": (8, 4), "embedding_l2": 0.1}
LEVEL_OUTPUTS: dict[str, Any] = {"num_outputs": 3}
GATED: dict[str, Any] = {**SMALL, "num_experts": N, "top_k": K, "num_adversarial": D}
GATE = dict.fromkeys(("logits", "noisy_logits", "noise_stddev", "indices", "weights"), "B")
ITEM_GATE = dict.fromkeys(GATE, "BL")
MIXTURE = {
    "inputs": floats("BL", 4),
    "gate_inputs": floats("B", 3),
    "constraint_inputs": floats("B", 3),
    "mask": mask(),
}

LAYERS = [
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
        "ExpertTowers",
        lambda: layers.ExpertTowers(N, [8, 4], dropout=0.2),
        {"inputs": floats("BL", 4), "indices": experts("B", K, N), "mask": mask()},
        {"output": "BL"},
        draws=True,
    ),
    ModelCase(
        "ExpertTowers in groups",
        lambda: layers.ExpertTowers(N, [8, 4], norm="layer", dispatch="capacity", capacity=4),
        {"inputs": floats("BL", 4), "indices": experts("B", K, N), "mask": mask()},
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
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "ExpertTowers of several outputs",
        lambda: layers.ExpertTowers(N, [8], **LEVEL_OUTPUTS),
        {"inputs": floats("BL", 4), "indices": experts("B", K, N), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "ItemTower of several outputs",
        lambda: layers.ItemTower([8], **LEVEL_OUTPUTS),
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "CategoryMixtureOfExperts of several outputs",
        lambda: mixture(noisy_gate=False, num_adversarial=N - K, **LEVEL_OUTPUTS),
        MIXTURE,
        {"logits": "BL", "expert_ids": "B", "expert_weights": "B"},
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
        {"logits": "BL", "expert_ids": "B", "expert_weights": "B"},
        draws=True,
    ),
    ModelCase(
        # All idle experts are compared and the gate is still: nothing is drawn.
        "CategoryMixtureOfExperts without draws",
        lambda: mixture(noisy_gate=False, num_adversarial=N - K, hsc_weight=0.5),
        MIXTURE,
        {"logits": "BL", "expert_ids": "B", "expert_weights": "B"},
    ),
    ModelCase(
        "CategoryMixtureOfExperts beyond the paper",
        lambda: mixture(
            noisy_gate=False,
            num_adversarial=N - K,
            options={
                "gate_residual": True,
                "shared_expert": True,
                "hsc_on": "logits",
                "hsc_fixed_side": "constraint",
                "adversarial_margin": 0.5,
                "adversarial_centred": True,
            },
        ),
        MIXTURE,
        {"logits": "BL", "expert_ids": "B", "expert_weights": "B"},
    ),
    ModelCase(
        "CategoryMixtureOfExperts of items",
        lambda: mixture(noisy_gate=False, num_adversarial=N - K),
        {**MIXTURE, "gate_inputs": floats("BL", 3)},
        {"logits": "BL", "expert_ids": "BL", "expert_weights": "BL"},
    ),
    ModelCase(
        "FeatureEncoder",
        lambda: layers.FeatureEncoder(
            SCHEMA, TABLES.statistics, TABLES.vocabularies, embedding_dim=4, embedding_l2=0.1
        ),
        {**CONTEXT, **EXAMPLE, "mask": mask()},
        {"items": "BL", "age": "B", "top": "B", "sub": "B", "clicked": "B"},
        call=encode,
    ),
]

IDS = ("clicked", "sub", "top", "brand")
ENCODER: dict[str, Any] = {"dim": 6, "num_blocks": 2, "num_heads": 2, "hidden_dim": 5}
LISTS = {"inputs": floats("BL", 4), "mask": mask()}
LAYERS += [
    ModelCase(
        "PositionEncoding, learned",
        lambda: layers.PositionEncoding("learned", max_positions=3),
        {"inputs": floats("BL", 5), "places": places(3)},
        {"output": "BL"},
    ),
    ModelCase(
        "PositionEncoding, fixed",
        lambda: layers.PositionEncoding("fixed"),
        {"inputs": floats("BL", 5), "places": places(100)},
        {"output": "BL"},
    ),
    ModelCase(
        # NaN at padded items is for the encoder to keep out.
        "EncoderBlock",
        lambda: layers.EncoderBlock(num_heads=2, hidden_dim=5, residual=False),
        {
            "inputs": floats("BL", 4)._replace(junk=lambda rng, shape: np.ones(shape)),
            "mask": mask(),
        },
        {"output": "BL"},
    ),
    ModelCase(
        "SelfAttentionEncoder",
        lambda: layers.SelfAttentionEncoder(**ENCODER),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "SelfAttentionEncoder by way of points",
        lambda: layers.SelfAttentionEncoder(**ENCODER, num_points=3),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "SelfAttentionEncoder with dropout",
        lambda: layers.SelfAttentionEncoder(**ENCODER, dropout=0.2),
        LISTS,
        {"output": "BL"},
        draws=True,
    ),
    *(
        ModelCase(
            f"SelfAttentionEncoder with {kind} places in the {where}",
            functools.partial(
                layers.SelfAttentionEncoder,
                **ENCODER,
                head_dim=5,
                positional_encoding=kind,
                max_positions=3,
                encode_inputs=where == "inputs",
            ),
            {**LISTS, "places": places(3)},
            {"output": "BL"},
        )
        for kind, where in (("learned", "inputs"), ("fixed", "projection"))
    ),
]

LAYERS += [
    ModelCase(
        "SelfAttentionEncoder in the order of the items",
        lambda: layers.SelfAttentionEncoder(**ENCODER, positional_encoding="fixed"),
        LISTS,
        {"output": "BL"},
        ordered=True,
    ),
    ModelCase(
        "DeepListwiseContext",
        lambda: layers.DeepListwiseContext([5], state_dim=3, num_views=2),
        LISTS,
        {"output": "BL"},
        ordered=True,
    ),
    ModelCase(
        "DeepListwiseContext with dropout",
        lambda: layers.DeepListwiseContext([], state_dim=3, num_views=2, dropout=0.2),
        LISTS,
        {"output": "BL"},
        draws=True,
        ordered=True,
    ),
    ModelCase(
        "ListLogProbability",
        layers.ListLogProbability,
        {"logits": floats("BL", None), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "CrossedWeights",
        lambda: layers.CrossedWeights([("clicked", "brand"), ("sub", "top")], num_buckets=30),
        {**{name: {**CONTEXT, **EXAMPLE}[name] for name in IDS}, "mask": mask()},
        {"output": "BL"},
        call=lambda layer, x: layer({name: x[name] for name in IDS}, mask=x["mask"]),
    ),
]

MULTITASK_SETTINGS: dict[str, Any] = {
    "hidden_dims": [8, 4],
    "tower_hidden_dims": [3],
    "dropout": 0.1,
}
LAYERS += [
    ModelCase(
        name,
        functools.partial(layers.make_multitask, name, 3, **MULTITASK_SETTINGS),
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
        draws=True,
    )
    for name in layers.MULTITASK
]
LAYERS += [
    ModelCase(
        f"{name} without draws",
        functools.partial(layers.make_multitask, name, 2, hidden_dims=[8]),
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
    )
    for name in layers.MULTITASK
]
LAYERS += [
    ModelCase(
        "ExpertTowers, all of them with vectors",
        lambda: layers.ExpertTowers(N, [8, 4], hidden_output=True),
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
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
        lambda: layers.CategoryMMoE(2, num_experts=N, top_k=K, **MULTITASK_SETTINGS),
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
    ModelCase(
        "GateMonitor",
        lambda: layers.GateMonitor(N, gates=["click", "purchase"]),
        {"inputs": floats("B", 2 * N)},
        {"output": "B"},
        call=lambda layer, x: layer(tf.nn.softmax(tf.reshape(x["inputs"], [-1, 2, N]))),
    ),
]

RAW = {**CONTEXT, **EXAMPLE, MASK: mask()}

SCORERS = [
    ModelCase(
        "TowerScorer",
        lambda: scorers.TowerScorer(SCHEMA, TABLES, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "WideTowerScorer",
        lambda: scorers.WideTowerScorer(SCHEMA, FILE_TABLES, num_experts=N, top_k=K, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "MixtureScorer",
        lambda: scorers.MixtureScorer(SCHEMA, FILE_TABLES, **GATED),
        RAW,
        {"output": "BL"},
        call=None,
        draws=True,
    ),
    ModelCase(
        "TowerScorer of several outputs",
        lambda: scorers.TowerScorer(SCHEMA, TABLES, **SMALL, **LEVEL_OUTPUTS),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "MixtureScorer of several outputs",
        lambda: scorers.MixtureScorer(SCHEMA, TABLES, **GATED, **LEVEL_OUTPUTS),
        RAW,
        {"output": "BL"},
        call=None,
        draws=True,
    ),
    ModelCase(
        "MixtureScorer gated by all of X",
        lambda: scorers.MixtureScorer(
            SCHEMA,
            TABLES,
            **{**GATED, "num_adversarial": N - K},
            gate_features=("all",),
            noisy_gate=False,
        ),
        RAW,
        {"output": "BL"},
        call=None,
    ),
]

SCORERS += [
    ModelCase(
        "TowerScorer with attention",
        lambda: scorers.TowerScorer(SCHEMA, TABLES, trunk=ENCODER, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "MixtureScorer with attention",
        lambda: scorers.MixtureScorer(SCHEMA, FILE_TABLES, trunk=ENCODER, **GATED),
        RAW,
        {"output": "BL"},
        call=None,
        draws=True,
    ),
]

WITHOUT_TOWERS = {name: SMALL[name] for name in ("embedding_dim", "embedding_l2")}
SCORERS += [
    ModelCase(
        f"PRMScorer, personalized: {personalized}",
        functools.partial(
            scorers.PRMScorer,
            SCHEMA,
            FILE_TABLES,
            personalized=personalized,
            personal_vector="sales",
            trunk=ENCODER,
            **WITHOUT_TOWERS,
        ),
        RAW,
        {"output": "BL"},
        call=None,
        ordered=True,
    )
    for personalized in (False, True)
]
SCORERS += [
    ModelCase(
        "DLCMScorer",
        lambda: scorers.DLCMScorer(SCHEMA, TABLES, state_dim=3, num_views=2, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
        ordered=True,
    ),
    ModelCase(
        "WideDeepScorer",
        lambda: scorers.WideDeepScorer(SCHEMA, FILE_TABLES, cross_buckets=30, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "ClickModelScorer",
        lambda: scorers.ClickModelScorer(SCHEMA, TABLES, ignored_features=("age",), **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
]
SCORERS += [
    ModelCase(
        f"{scorer.__name__} of several outputs",
        functools.partial(scorer, SCHEMA, TABLES, **LEVEL_OUTPUTS, **settings),
        RAW,
        {"output": "BL"},
        call=None,
        ordered=scorer in (scorers.PRMScorer, scorers.DLCMScorer),
    )
    for scorer, settings in (
        (scorers.PRMScorer, {**WITHOUT_TOWERS, "trunk": {**ENCODER, "num_blocks": 1}}),
        (scorers.DLCMScorer, {**SMALL, "state_dim": 3, "num_views": 2}),
        (scorers.WideDeepScorer, {**SMALL, "cross_buckets": 30}),
        (scorers.ClickModelScorer, SMALL),
    )
]

BY_TASK = {"purchase": "BL", "click": "BL"}
SCORERS += [
    ModelCase(
        f"MultiTaskScorer of {name}",
        functools.partial(scorers.MultiTaskScorer, TASKS, FILE_TABLES, network=name, **SMALL),
        RAW,
        BY_TASK,
        call=None,
    )
    for name in layers.MULTITASK
]
SCORERS += [
    ModelCase(
        "MultiTaskScorer with a conversion",
        lambda: scorers.MultiTaskScorer(
            TASKS, TABLES, tasks={"purchase": "click", "click": None}, parameter_budget=900, **SMALL
        ),
        RAW,
        BY_TASK,
        call=None,
    ),
    ModelCase(
        "MultiTaskScorer of category groups",
        lambda: scorers.MultiTaskScorer(SCHEMA, TABLES, category_groups=2, **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "MultiTaskScorer of one task",
        lambda: scorers.MultiTaskScorer(SCHEMA, TABLES, network="omoe", **SMALL),
        RAW,
        {"output": "BL"},
        call=None,
    ),
    ModelCase(
        "CategoryMMoEScorer",
        lambda: scorers.CategoryMMoEScorer(
            TASKS,
            FILE_TABLES,
            settings={"num_experts": N, "top_k": K, "hsc_weight": 0.1, "noisy_gate": False},
            **SMALL,
        ),
        RAW,
        BY_TASK,
        call=None,
    ),
]

RANKED = {"y_true": labels(), "y_pred": floats("BL", None)}

# Of a loss of orders by label the labels all differ: equal ones are put into a random order.
ORDERED = {**RANKED, "y_true": different_labels()}
LEVELS = {**RANKED, "y_pred": floats("BL", 4)}
LOSSES = [
    LossCase(
        name,
        functools.partial(losses.get, name, max_label=4),
        {"ordinal": LEVELS, "listmle": ORDERED}.get(name, RANKED),
        {"sigmoid_cross_entropy": items, "ordinal": items, "listnet_binary": clicked}.get(
            name, nonempty
        ),
    )
    for name in losses.OWN
]


def update_usage(metric: Any, values: dict[str, Any]) -> None:
    # A layer feeds what a batch gave to each expert, which is a sum over its lists.
    metric.update_state(tf.reduce_sum(values["importance"], axis=0))


METRICS = [
    MetricCase("SessionAUC", metrics.SessionAUC, RANKED),
    MetricCase("ndcg", lambda: metrics.MeanOverJudgedLists("ndcg"), RANKED),
    *(
        MetricCase(key, functools.partial(metrics.MeanOverJudgedLists, key, ranked=5), RANKED)
        for key in ("mrr", "map", "precision")
    ),
    *(
        MetricCase(key, functools.partial(metrics.MeanOverAllLists, key, 3), RANKED)
        for key in ("prm_precision", "prm_map")
    ),
    MetricCase(
        "TrainingMean",
        layers.TrainingMean,
        {"values": floats("B", None)},
        lambda metric, values: metric.update_state(values["values"]),
    ),
    MetricCase(
        "ExpertUsage",
        lambda: layers.ExpertUsage(N, K),
        {
            "importance": floats("B", N, scale=0.0)._replace(
                draw=lambda rng, shape: rng.random(shape).astype("float32")
            )
        },
        update_usage,
    ),
]

MODELS = [*LAYERS, *SCORERS]
EVERYTHING: list[Any] = [*MODELS, *LOSSES, *METRICS]


def by_name(case: Any) -> str:
    """The id of a case in pytest's output."""
    return case.name.replace(" ", "_")


def registered_classes() -> set[type]:
    """The classes that have a row."""
    return {type(case.make()) for case in EVERYTHING}
