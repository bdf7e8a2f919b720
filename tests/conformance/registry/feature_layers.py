"""Layers that make an input of features, and crosses of them."""

from __future__ import annotations

from typing import Any

import tfr_moe.layers as layers
from tests.conformance.arrays import mask
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import CONTEXT, EXAMPLE, TABLES
from tests.tiny import SCHEMA

IDS = ("clicked", "sub", "top", "brand")


def encode(layer: Any, x: dict[str, Any]) -> Any:
    return layer(
        {name: x[name] for name in CONTEXT}, {name: x[name] for name in EXAMPLE}, x["mask"]
    )


ROWS = [
    ModelCase(
        "FeatureEncoder",
        lambda: layers.FeatureEncoder(
            SCHEMA,
            TABLES.statistics,
            TABLES.vocabularies,
            embedding_dim=4,
            embedding_l2=0.1,
            list_relative=True,
        ),
        {**CONTEXT, **EXAMPLE, "mask": mask()},
        {"items": "BL", "age": "B", "top": "B", "sub": "B", "clicked": "B", "categories": "B"},
        call=encode,
    ),
    ModelCase(
        "CrossedWeights",
        lambda: layers.crossed_weights.CrossedWeights(
            [("clicked", "brand"), ("sub", "top")], num_buckets=30
        ),
        {**{name: {**CONTEXT, **EXAMPLE}[name] for name in IDS}, "mask": mask()},
        {"output": "BL"},
        call=lambda layer, x: layer({name: x[name] for name in IDS}, mask=x["mask"]),
    ),
]
