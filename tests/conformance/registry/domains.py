"""The multi-domain models: their layers, and the scorers that give a list its domain."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import tfr_moe.layers as layers
import tfr_moe.scorers as scorers
from tests.conformance.arrays import Array, floats, ids, mask
from tests.conformance.cases import ModelCase, call_layer
from tests.conformance.registry.scorers import scorer
from tests.conformance.registry.settings import FILE_TABLES, RAW, SMALL, TABLES, D
from tests.tiny import SCHEMA
from tfr_moe._compat import tf

DOMAIN = Array("B", None, "int32", lambda rng, shape: rng.integers(0, D, shape).astype(np.int32))
IN_DOMAINS = {"inputs": floats("BL", 4), "domains": DOMAIN, "mask": mask()}


ROUTED = {"logits": "BL", "expert_ids": "BL", "expert_weights": "BL"}


def projected(layer: Any, x: dict[str, Any]) -> Any:
    """A layer whose weights start the same under every seed, before one whose weights don't."""
    return tf.keras.layers.Dense(2, dtype="float32")(call_layer(layer, x))


ROWS = [
    ModelCase(
        "UnknownDomains",
        lambda: layers.categories.UnknownDomains(0.5),
        {"domains": DOMAIN},
        {"output": "B"},
        draws=True,
    ),
    ModelCase(
        "PartitionedNormalization",
        lambda: layers.PartitionedNormalization(D),
        IN_DOMAINS,
        {"output": "BL"},
        call=projected,
        direct=False,
    ),
    ModelCase(
        "CategoryHead",
        lambda: layers.CategoryHead(D, D, num_outputs=3),
        {"inputs": floats("BL", 4), "categories": DOMAIN._replace(width=2), "mask": mask()},
        {"output": "BL"},
        call=projected,
        direct=False,
    ),
    ModelCase(
        "StarTowers",
        lambda: layers.star.StarTowers(D, [8, 4]),
        {"inputs": floats("BL", 4), "mask": mask()},
        {"output": "BL"},
    ),
    ModelCase(
        "StarTopology",
        lambda: layers.StarTopology(D, [8, 4], auxiliary_hidden_dims=[3], domain_dim=2),
        IN_DOMAINS,
        {"output": "BL"},
    ),
    ModelCase(
        "ProgressiveExtraction",
        lambda: layers.ProgressiveExtraction(D, [8, 4], [3], num_domain_experts=2, dropout=0.1),
        IN_DOMAINS,
        ROUTED,
        draws=True,
    ),
    ModelCase(
        "ProgressiveExtraction in three levels",
        lambda: layers.ProgressiveExtraction(D, [8, 6, 4], [3], num_levels=3),
        IN_DOMAINS,
        ROUTED,
    ),
]

# Most lists are of a known category, unlike those of the other scorers' rows.
NAMED = {**RAW, "top": ids("B", 1, *"ab" * 5)}
DRAWN, STILL = ({**SMALL, "unknown_share": share} for share in (0.5, 0.0))
ROWS += [
    dataclasses.replace(row, inputs=NAMED)
    for row in (
        scorer("PLEScorer", lambda: scorers.PLEScorer(SCHEMA, FILE_TABLES, **DRAWN), draws=True),
        scorer(
            "PLEScorer of one level",
            lambda: scorers.PLEScorer(SCHEMA, TABLES, num_levels=1, **STILL),
        ),
        scorer("StarScorer", lambda: scorers.StarScorer(SCHEMA, FILE_TABLES, **DRAWN), draws=True),
        scorer(
            "StarScorer without a norm",
            lambda: scorers.StarScorer(SCHEMA, TABLES, domain_norm=False, **STILL),
        ),
    )
]
