"""Transforms of numeric columns, as in the graph, and their statistics, mergeable over rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.schema import Feature, FeatureSchema, Scope, Statistics

SCOPES: tuple[Scope, Scope] = ("context", "example")
Floats = NDArray[np.float64]
_DROPPED_BITS = 12
_LEVELS = np.linspace(0.0, 1.0, 101)


class Moments(NamedTuple):
    """Number of rows; per column number, mean, sum of squared differences from it, and extremes
    of the present values, [m]; and for columns with a median or quantiles how often each value
    occurs."""

    rows: int
    present: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: dict[int, Counter[float]]


def merge(one: Moments, other: Moments) -> Moments:
    """Returns the moments of the rows of both (Chan, Golub and LeVeque 1983).

    With n = n_a + n_b and d = mean_b - mean_a:

        mean = mean_a + d n_b / n
        M2   = M2_a + M2_b + d^2 n_a n_b / n

    Example:
        >>> both = merge(moments_of(np.array([[1.0], [3.0]])), moments_of(np.array([[8.0]])))
        >>> both.rows, float(both.mean[0]), float(both.m2[0])
        (3, 4.0, 26.0)
    """
    if not one.rows or not other.rows:
        return one if one.rows else other
    count = one.present + other.present
    share = other.present / np.maximum(count, 1)
    delta = other.mean - one.mean
    return Moments(
        one.rows + other.rows,
        count,
        one.mean + delta * share,
        one.m2 + other.m2 + np.square(delta) * (one.present * share),
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
        {i: seen + other.values[i] for i, seen in one.values.items()},
    )


def merge_scopes(parts: Iterable[Sequence[Moments]]) -> list[Moments]:
    """Returns the moments of context and items of all parts, at least one."""
    return [reduce(merge, moments) for moments in zip(*parts, strict=True)]


def moments_of(rows: NDArray[np.float64]) -> Moments:
    """Returns the moments of a matrix [rows, m] in which NaN is a missing value."""
    missing = np.isnan(rows)
    if not missing.any() and len(rows):
        count = np.full(rows.shape[1], len(rows))
        mean = rows.mean(axis=0)
        m2 = np.square(rows - mean).sum(axis=0)
        return Moments(len(rows), count, mean, m2, rows.min(axis=0), rows.max(axis=0), {})
    count = len(rows) - missing.sum(axis=0)
    mean = np.where(missing, 0.0, rows).sum(axis=0) / np.maximum(count, 1)
    m2 = np.where(missing, 0.0, np.square(rows - mean)).sum(axis=0)
    low = np.where(missing, np.inf, rows).min(axis=0, initial=np.inf)
    high = np.where(missing, -np.inf, rows).max(axis=0, initial=-np.inf)
    return Moments(len(rows), count, mean, m2, low, high, {})


def as_json(moments: Moments) -> dict[str, Any]:
    """Returns JSON values from which `from_json` restores the moments exactly."""
    arrays = {k: v.tolist() for k, v in moments._asdict().items() if isinstance(v, np.ndarray)}
    values = {str(i): sorted(counts.items()) for i, counts in moments.values.items()}
    return {"rows": moments.rows, **arrays, "values": values}


def from_json(entry: dict[str, Any]) -> Moments:
    """Returns the moments of `as_json`.

    Example:
        >>> moments = moments_of(np.array([[0.1], [0.2]]))
        >>> bool(from_json(as_json(moments)).m2[0] == moments.m2[0])
        True
    """
    arrays = {k: np.array(entry[k], np.float64) for k in ("mean", "m2", "low", "high")}
    present = np.array(entry["present"], np.int64)
    values = {int(i): Counter(dict(counts)) for i, counts in entry["values"].items()}
    return Moments(entry["rows"], present, **arrays, values=values)


def ratio_of(numbers: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns quotients, NaN where they are no finite float32, as for a divisor of 0.

    Example:
        >>> ratio_of(np.float32([3, 3, 0]), np.float32([2, 0, 0])).tolist()
        [1.5, nan, nan]
    """
    with np.errstate(all="ignore"):
        quotient = numbers / others
    return np.where(np.isfinite(quotient), quotient, np.float32(np.nan))


def signed_log1p(numbers: Floats) -> Floats:
    """Returns sign(x) log(1 + |x|)."""
    return np.sign(numbers) * np.log1p(np.abs(numbers))


def transformed(feature: Feature, column: Mapping[str, Any], numbers: Floats) -> Floats:
    """Returns the numbers of a column after `clip` and `transform`; buckets stay numbers.

    `column` are its statistics; `numbers`, of any shape, are those after the `ratio`.
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
    indices = np.unique(np.searchsorted(below, _LEVELS - 1e-9).clip(0, len(values) - 1))
    quantiles, positions = values[indices], (below - weights / 2)[indices]
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


class ColumnStatistics:
    """Statistics of the numeric columns of one scope, in blocks of stored values."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        self.columns = schema.packed_columns(scope)
        numerics = list(schema.select(scope, "numeric"))
        features = [f for f in numerics for _ in f.columns]
        at = self.columns.index
        self._ratios = [(at(f.name), at(f.ratio)) for f in numerics if f.ratio]
        self._limits = np.array([f.limits for f in features], np.float64).reshape(-1, 2).T
        self._logarithmic = np.array([f.transform == "log1p" for f in features], bool)
        self._medians = {i for i, f in enumerate(features) if f.missing == "median"}
        self._quantiles = {i: f for i, f in enumerate(features) if f.transform == "quantile"}

    def none(self) -> Moments:
        """Returns the moments of no rows."""
        return self.of(np.zeros((0, len(self.columns)), np.float32))

    def of(self, rows: NDArray[np.float32]) -> Moments:
        """Returns the moments, after the transforms, of stored values [rows, m]."""
        if self._ratios:
            stored, rows = rows, rows.copy()
            for column, other in self._ratios:
                rows[:, column] = ratio_of(stored[:, column], stored[:, other])
        matrix = np.clip(rows.astype(np.float64), *self._limits)
        matrix[:, self._logarithmic] = signed_log1p(matrix[:, self._logarithmic])
        values = {i: _counted(rows[:, i]) for i in self._medians | set(self._quantiles)}
        return moments_of(matrix)._replace(values=values)

    def describe(self, moments: Moments) -> dict[str, dict[str, Any]]:
        """Returns count, mean, std, min and max by column; nothing for no rows.

        Columns have `missing`, the number of rows without a value, the `median` of the values
        before `clip`, and `quantiles` with their `positions` where they apply. All are 0 for a
        column without any value.
        """
        if not moments.rows:
            return {}
        return {column: self._column(moments, i) for i, column in enumerate(self.columns)}

    def _column(self, moments: Moments, i: int) -> dict[str, Any]:
        count = int(moments.present[i])
        numbers: dict[str, Any] = {
            "mean": moments.mean[i],
            "std": np.sqrt(moments.m2[i] / max(count, 1)),
            "min": moments.low[i] if count else 0.0,
            "max": moments.high[i] if count else 0.0,
        }
        if i in self._quantiles:
            numbers |= quantile_statistics(self._quantiles[i], moments.values[i])
        if i in self._medians:
            numbers["median"] = _median(moments.values[i])
        missing = {"missing": moments.rows - count} if count < moments.rows else {}
        return {"count": count, **missing, **{name: _rounded(v) for name, v in numbers.items()}}


def statistics_of(schema: FeatureSchema, moments: Sequence[Moments]) -> Statistics:
    """Returns the content of `statistics.json` from the moments of context and items."""
    return {
        scope: ColumnStatistics(schema, scope).describe(one)
        for scope, one in zip(SCOPES, moments, strict=True)
    }


def _counted(column: NDArray[np.float32]) -> Counter[float]:
    """Counts values to 12 significant bits, which bounds their number whatever the rows."""
    present = np.ascontiguousarray(column[~np.isnan(column)])
    bits = present.view(np.uint32) >> _DROPPED_BITS << _DROPPED_BITS
    values, counts = np.unique(bits.astype(np.uint32).view(np.float32), return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _median(counts: Counter[float]) -> float:
    """The median, the lower one of two."""
    values = sorted(counts)
    below = np.cumsum([counts[value] for value in values])
    return values[int(np.searchsorted(below, below[-1] / 2))] if values else 0.0


def _rounded(value: float | list[float]) -> float | list[float]:
    # Sums taken in another order differ in the last digits; the file should not.
    if isinstance(value, list):
        return [float(f"{number:.12g}") for number in value]
    return float(f"{value:.12g}")
