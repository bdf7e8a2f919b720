"""What cases share: sizes, tables of features, inputs, and settings of small networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance.arrays import floats, ids, mask
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
FOLDER = Path(__file__).parent.parent / "vocabulary"
FILE_TABLES = TABLES._replace(
    vocabularies={name: str(FOLDER / f"{name}.txt") for name in TABLES.vocabularies}
)

SMALL: dict[str, Any] = {"embedding_dim": 4, "expert_hidden_dims": (8, 4), "embedding_l2": 0.1}
LEVEL_OUTPUTS: dict[str, Any] = {"num_outputs": 3}
WITHOUT_TOWERS = {name: SMALL[name] for name in ("embedding_dim", "embedding_l2")}
ENCODER: dict[str, Any] = {"dim": 6, "num_blocks": 2, "num_heads": 2, "hidden_dim": 5}
MULTITASK: dict[str, Any] = {"hidden_dims": [8, 4], "tower_hidden_dims": [3], "dropout": 0.1}

LISTS = {"inputs": floats("BL", 4), "mask": mask()}
MIXTURE = {
    "inputs": floats("BL", 4),
    "gate_inputs": floats("B", 3),
    "constraint_inputs": floats("B", 3),
    "mask": mask(),
}
RAW = {**CONTEXT, **EXAMPLE, MASK: mask()}
