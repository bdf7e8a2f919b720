"""The models of the paper, by name."""

from __future__ import annotations

from typing import Literal

Model = Literal[
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
]
