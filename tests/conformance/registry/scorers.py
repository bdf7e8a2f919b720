"""Scorers of one label, and how a scorer becomes a row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tfr_moe.scorers as scorers
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import (
    ENCODER,
    FILE_TABLES,
    LEVEL_OUTPUTS,
    RAW,
    SMALL,
    TABLES,
    WITHOUT_TOWERS,
    D,
    K,
    N,
)
from tests.tiny import SCHEMA

GATED: dict[str, Any] = {**SMALL, "num_experts": N, "top_k": K, "num_adversarial": D}


def scorer(
    name: str, make: Callable[[], Any], outputs: tuple[str, ...] = ("output",), **flags: bool
) -> ModelCase:
    """A row whose model the scorer builds itself, from raw features to scores of items."""
    return ModelCase(name, make, RAW, dict.fromkeys(outputs, "BL"), call=None, **flags)


ROWS = [
    scorer(
        "TowerScorer",
        lambda: scorers.TowerScorer(SCHEMA, TABLES, **SMALL),
    ),
    scorer(
        "WideTowerScorer",
        lambda: scorers.WideTowerScorer(SCHEMA, FILE_TABLES, num_experts=N, top_k=K, **SMALL),
    ),
    scorer(
        "MixtureScorer",
        lambda: scorers.MixtureScorer(SCHEMA, FILE_TABLES, **GATED),
        draws=True,
    ),
    scorer(
        "TowerScorer of several outputs, by category",
        lambda: scorers.TowerScorer(
            SCHEMA, TABLES, category_head=True, list_relative=True, **SMALL, **LEVEL_OUTPUTS
        ),
    ),
    scorer(
        "MixtureScorer gated by all of X",
        lambda: scorers.MixtureScorer(
            SCHEMA,
            TABLES,
            **{**GATED, "num_adversarial": N - K},
            gate_features=("all",),
            noisy_gate=False,
        ),
    ),
    scorer(
        "TowerScorer with attention",
        lambda: scorers.TowerScorer(SCHEMA, TABLES, trunk=ENCODER, **SMALL),
    ),
    scorer(
        "MixtureScorer with attention",
        lambda: scorers.MixtureScorer(SCHEMA, FILE_TABLES, trunk=ENCODER, **GATED),
        draws=True,
    ),
    *(
        scorer(
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
            ordered=True,
        )
        for personalized in (False, True)
    ),
    scorer(
        "DLCMScorer",
        lambda: scorers.DLCMScorer(SCHEMA, TABLES, state_dim=3, num_comparisons=2, **SMALL),
        ordered=True,
    ),
    scorer(
        "WideDeepScorer",
        lambda: scorers.WideDeepScorer(SCHEMA, FILE_TABLES, cross_buckets=30, **SMALL),
    ),
    scorer(
        "ClickModelScorer",
        lambda: scorers.ClickModelScorer(SCHEMA, TABLES, ignored_features=("age",), **SMALL),
    ),
]
