"""Exports of untrained models of full size, and requests for them: what the serving benchmarks run.

A request is a list of 60 items with 36 features: 30 numbers and 4 ids an item, 2 categories a list.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.serving.request import RequestEncoder

CATEGORIES = 50
IDS = 1000
SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "query",
        "labels": ["click"],
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": [
            {"name": "top", "scope": "context", "kind": "categorical"},
            {"name": "sub", "scope": "context", "kind": "categorical"},
            *({"name": f"n{i}", "scope": "example", "kind": "numeric"} for i in range(30)),
            *({"name": f"c{i}", "scope": "example", "kind": "categorical"} for i in range(4)),
        ],
    }
)


def tables() -> FeatureTables:
    """Vocabularies of all ids, and numbers between 0 and 1."""
    uniform = {"mean": 0.5, "std": 0.29}
    vocabularies: dict[str, list[str]] = {f"c{i}": [f"id{k}" for k in range(IDS)] for i in range(4)}
    vocabularies["top"] = [f"top{k}" for k in range(10)]
    vocabularies["sub"] = [f"top{k % 10} > sub{k}" for k in range(CATEGORIES)]
    return FeatureTables(
        {"context": {}, "example": {f"n{i}": uniform for i in range(30)}}, vocabularies
    )


def requests(
    count: int, items: int = 60, seed: int = 1
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Contexts and items at random."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        category = rng.randrange(CATEGORIES)
        rows = [
            {f"n{i}": rng.random() for i in range(30)}
            | {f"c{i}": f"id{rng.randrange(IDS)}" for i in range(4)}
            for _ in range(items)
        ]
        found.append(({"top": f"top{category % 10}", "sub": f"sub{category}"}, rows))
    return found


def export(root: Path, name: str, model: str, **settings: Any) -> Path:
    """Exports an untrained `model` as `root/name`, with the paper's sizes unless `settings` say otherwise."""
    from tfr_moe.config import RunConfig
    from tfr_moe.scorers import create, explanation_model
    from tfr_moe.serving.export import export_model

    config = RunConfig.model_validate({"model": model, **settings}).model_dump()
    scorer = create(model, SCHEMA, tables(), {**config, "tasks": None, "num_outputs": 1})
    built = scorer.build_model(name=model)
    encoder = RequestEncoder(SCHEMA)
    warmup = [encoder.encode(*request) for size in (1, 60) for request in requests(2, size)]
    return export_model(
        built, SCHEMA, root / name, explanation=explanation_model(built), warmup=warmup
    )
