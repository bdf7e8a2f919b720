"""What Tables 1 and 2 of the MMoE paper (Ma et al. 2018) report: AUC on the two groups' tasks.

Columns: the main task's best run, its mean over runs, the other task in the main task's best run, and
that task's mean. The paper trains on the set's training half (199,523 rows), which is not what the study
here trains on by default.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One row of either table."""

    main_best: float
    main_mean: float
    other_with_best: float
    other_mean: float


PAPER: dict[int, dict[str, Row]] = {
    1: {
        "single_task": Row(0.9398, 0.9337, 0.9933, 0.9922),
        "shared_bottom": Row(0.9361, 0.9295, 0.9915, 0.9921),
        "l2_constrained": Row(0.9389, 0.9359, 0.9922, 0.9918),
        "cross_stitch": Row(0.9406, 0.9361, 0.9917, 0.9922),
        "tensor_factorization": Row(0.7460, 0.6765, 0.8175, 0.8412),
        "omoe": Row(0.9387, 0.9319, 0.9928, 0.9923),
        "mmoe": Row(0.9410, 0.9359, 0.9926, 0.9927),
    },
    2: {
        "single_task": Row(0.8843, 0.8792, 0.9933, 0.9922),
        "shared_bottom": Row(0.8836, 0.8813, 0.9927, 0.9917),
        "l2_constrained": Row(0.8855, 0.8823, 0.9923, 0.9918),
        "cross_stitch": Row(0.8855, 0.8819, 0.9919, 0.9921),
        "tensor_factorization": Row(0.7367, 0.7256, 0.7453, 0.7497),
        "omoe": Row(0.8852, 0.8813, 0.9915, 0.9912),
        "mmoe": Row(0.8860, 0.8826, 0.9932, 0.9924),
    },
}
"""Group -> model -> the numbers."""
