"""Count, mean, standard deviation, minimum and maximum of the numerics of the training lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from tfr_moe.row_encoding import scope_floats
from tfr_moe.schema import FeatureSchema, Scope

from .grouping import RankedList

Statistics = dict[str, dict[str, dict[str, float]]]
_BATCH = 4096


class Moments(NamedTuple):
    """Per column: number of rows, mean, sum of squared differences from it, extremes. [m] float64."""

    rows: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def no_moments(width: int) -> Moments:
    """Moments of no rows."""
    zero = np.zeros(width)
    return Moments(0, zero, zero, np.full(width, np.inf), np.full(width, -np.inf))


def moments_of(rows: NDArray[np.float64]) -> Moments:
    """Moments of a matrix [rows, m] with at least one row."""
    mean = rows.mean(axis=0)
    m2 = np.square(rows - mean).sum(axis=0)
    return Moments(len(rows), mean, m2, rows.min(axis=0), rows.max(axis=0))


def merge(one: Moments, other: Moments) -> Moments:
    """Moments of the rows of both (Chan, Golub and LeVeque 1983).

    With n = n_a + n_b and d = mean_b - mean_a:

        mean = mean_a + d n_b / n
        M2   = M2_a + M2_b + d^2 n_a n_b / n

    Example:
        >>> both = merge(moments_of(np.array([[1.0], [3.0]])), moments_of(np.array([[8.0]])))
        >>> both.rows, float(both.mean[0]), float(both.m2[0])
        (3, 4.0, 26.0)
    """
    count = one.rows + other.rows
    if not one.rows or not other.rows:
        return one if one.rows else other
    delta = other.mean - one.mean
    return Moments(
        count,
        one.mean + delta * (other.rows / count),
        one.m2 + other.m2 + np.square(delta) * (one.rows * other.rows / count),
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
    )


class _Scope:
    """One scope's columns and how to read them."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        self.columns = schema.packed_columns(scope)
        self._block = scope_floats(schema, scope)
        self._logarithmic = np.array(
            [
                f.transform == "log1p"
                for f in schema.select(scope, "numeric")
                for _ in range(f.width)
            ],
            dtype=bool,
        )

    def moments(self, bodies: list[bytes]) -> Moments:
        matrix = self._block.values(bodies)[:, : len(self.columns)].astype(np.float64)
        chosen = matrix[:, self._logarithmic]
        matrix[:, self._logarithmic] = np.sign(chosen) * np.log1p(np.abs(chosen))
        return moments_of(matrix)


Gathering = list[tuple[Moments, list[bytes]]]
"""For each scope the moments so far, and what is not in them yet."""


class NumericMoments(beam.CombineFn):
    """`RankedList`s -> statistics by scope and column, as `statistics.json` has them.

    A column is taken as it is stored, in float32, after its feature's `transform`; context columns count
    once a list. The standard deviation is the population's, sqrt(M2 / count). Rows are gathered and
    counted some thousands at a time.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._loaded: list[_Scope] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Functions do not travel to the workers: they are made there."""
        return {"_schema": self._schema, "_loaded": None}

    @property
    def _scopes(self) -> list[_Scope]:
        if self._loaded is None:
            self._loaded = [_Scope(self._schema, "context"), _Scope(self._schema, "example")]
        return self._loaded

    def create_accumulator(self) -> Gathering:
        """Nothing gathered."""
        return [(no_moments(len(scope.columns)), []) for scope in self._scopes]

    def add_input(self, gathering: Gathering, ranked: RankedList) -> Gathering:
        """Adds one list."""
        context, example = self._scopes
        if context.columns:
            gathering[0][1].append(ranked.context[0])
        if example.columns:
            gathering[1][1].extend([body for body, _ in ranked.items])
        if any(len(waiting) >= _BATCH for _, waiting in gathering):
            return self.compact(gathering)
        return gathering

    def compact(self, gathering: Gathering) -> Gathering:
        """Moves what waits into the moments."""
        return [
            (merge(moments, scope.moments(waiting)) if waiting else moments, [])
            for scope, (moments, waiting) in zip(self._scopes, gathering, strict=True)
        ]

    def merge_accumulators(self, accumulators: Iterable[Gathering]) -> Gathering:
        """Joins what several workers gathered."""
        merged = self.create_accumulator()
        for other in accumulators:
            merged = [
                (merge(one[0], two[0]), one[1])
                for one, two in zip(merged, self.compact(other), strict=True)
            ]
        return merged

    def extract_output(self, gathering: Gathering) -> Statistics:
        """Scope -> column -> count, mean, std, min, max."""
        named = zip(("context", "example"), self._scopes, self.compact(gathering), strict=True)
        return {name: described(scope.columns, moments) for name, scope, (moments, _) in named}


def described(columns: list[str], moments: Moments) -> dict[str, dict[str, float]]:
    """Count, mean, standard deviation, minimum and maximum by column; nothing for no rows."""
    if not moments.rows:
        return {}
    std = np.sqrt(moments.m2 / moments.rows)
    return {
        column: {
            "count": moments.rows,
            "mean": _rounded(moments.mean[i]),
            "std": _rounded(std[i]),
            "min": _rounded(moments.low[i]),
            "max": _rounded(moments.high[i]),
        }
        for i, column in enumerate(columns)
    }


def _rounded(value: float) -> float:
    # Sums taken in another order differ in the last digits; the file should not.
    return float(f"{value:.12g}")
