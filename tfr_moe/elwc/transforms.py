"""Transforms of numerics on arrays: what `complete_numbers` does in the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.schema import Feature, FeatureSchema

_LEVELS = np.linspace(0.0, 1.0, 101)

Floats = NDArray[np.float64]


def ratio_of(numbers: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns quotients, NaN where they are no finite float32, as for a divisor of 0.

    Example:
        >>> ratio_of(np.float32([3, 3, 0]), np.float32([2, 0, 0])).tolist()
        [1.5, nan, nan]
    """
    with np.errstate(all="ignore"):
        quotient = numbers / others
    return np.where(np.isfinite(quotient), quotient, np.float32(np.nan))


def ratio_columns(schema: FeatureSchema, features: list[Feature]) -> list[tuple[int, int]]:
    """Returns the columns of the numerics with a `ratio`, each with that of its divisor."""
    columns = [column for feature in features for column in feature.columns]
    return [(columns.index(f.name), columns.index(f.ratio)) for f in features if f.ratio]


def signed_log1p(numbers: Floats) -> Floats:
    """Returns sign(x) log(1 + |x|)."""
    return np.sign(numbers) * np.log1p(np.abs(numbers))


def transformed(feature: Feature, column: Mapping[str, Any], numbers: Floats) -> Floats:
    """Returns the numbers of a column after `clip` and `transform`; buckets stay numbers.

    Args:
        feature: of the column.
        column: its statistics.
        numbers: any shape, after the `ratio`.
    """
    numbers = np.clip(numbers, *feature.limits)
    if feature.transform == "log1p":
        return signed_log1p(numbers)
    if feature.transform == "quantile":
        return np.interp(numbers, column["quantiles"], column["positions"])
    return numbers


def quantile_statistics(feature: Feature, counts: Counter[float]) -> dict[str, Any]:
    """Returns quantiles of counted values with their positions, and moments of the positions.

    The position of a value is the share of values below it plus half the share of those equal to
    it. Values between two quantiles are interpolated linearly; those outside have the position of
    the nearest one. At most 101 values are kept, those at 0, 1, ..., 100 %.

    Example:
        >>> stars = Feature(name="stars", scope="example", kind="numeric", transform="quantile")
        >>> found = quantile_statistics(stars, Counter({1.0: 3, 5.0: 1}))
        >>> found["quantiles"], found["positions"], found["mean"]
        ([1.0, 5.0], [0.375, 0.875], 0.5)
    """
    if not counts:
        return {"quantiles": [0.0], "positions": [0.0]}
    numbers = np.clip(np.array(list(counts)), *feature.limits)
    values, index = np.unique(numbers, return_inverse=True)
    weights = np.bincount(index, list(counts.values())) / counts.total()
    below = np.cumsum(weights)
    kept = np.unique(np.searchsorted(below, _LEVELS - 1e-9).clip(0, len(values) - 1))
    quantiles, positions = values[kept], (below - weights / 2)[kept]
    spread = np.interp(values, quantiles, positions)
    mean = float(weights @ spread)
    return {
        "mean": mean,
        "std": float(np.sqrt(weights @ np.square(spread - mean))),
        "min": float(spread[0]),
        "max": float(spread[-1]),
        "quantiles": quantiles.tolist(),
        "positions": positions.tolist(),
    }
