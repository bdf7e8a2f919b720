"""Scorers of several labels."""

from __future__ import annotations

import functools

import tfr_moe.layers as layers
import tfr_moe.scorers as scorers
from tests.conformance.registry.scorers import scorer
from tests.conformance.registry.settings import FILE_TABLES, SMALL, TABLES, K, N
from tests.tiny import SCHEMA, TASKS

BY_TASK = ("purchase", "click")

ROWS = [
    *(
        scorer(
            f"MultiTaskScorer of {name}",
            functools.partial(scorers.MultiTaskScorer, TASKS, FILE_TABLES, network=name, **SMALL),
            BY_TASK,
        )
        for name in layers.MULTITASK
    ),
    scorer(
        "MultiTaskScorer with a conversion",
        lambda: scorers.MultiTaskScorer(
            TASKS, TABLES, tasks={"purchase": "click", "click": None}, **SMALL
        ),
        BY_TASK,
    ),
    scorer(
        "MultiTaskScorer of one task",
        lambda: scorers.MultiTaskScorer(SCHEMA, TABLES, network="omoe", **SMALL),
    ),
    scorer(
        "CategoryMMoEScorer",
        lambda: scorers.CategoryMMoEScorer(
            TASKS,
            FILE_TABLES,
            num_experts=N,
            top_k=K,
            hsc_weight=0.1,
            noisy_gate=False,
            **SMALL,
        ),
        BY_TASK,
    ),
]
