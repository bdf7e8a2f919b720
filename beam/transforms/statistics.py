"""Computes count, mean, standard deviation, minimum and maximum of numeric features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from tfr_moe.beam.transforms.make_lists import RankedList
from tfr_moe.elwc.encoder import scope_floats
from tfr_moe.elwc.moments import ColumnStatistics, Moments, merge
from tfr_moe.schema import FeatureSchema, Scope

Statistics = dict[str, dict[str, dict[str, float]]]
_BATCH = 4096


class _Scope(ColumnStatistics):
    """Statistics of one scope, from the encoded rows."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        super().__init__(schema, scope)
        self._block = scope_floats(schema, scope)

    def moments(self, bodies: list[bytes]) -> Moments:
        return self.of(self._block.values(bodies)[:, : len(self.columns)])


Pending = list[tuple[Moments, list[bytes]]]
"""For each scope the moments so far, and rows that are not in them yet."""


class NumericMoments(beam.CombineFn):
    """`RankedList`s -> statistics by scope and column, the content of `statistics.json`.

    Columns are float32 as stored, after the `transform` of their feature; context columns count
    once a list. The standard deviation is that of the population, sqrt(M2 / count).
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._loaded: list[_Scope] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drops what each worker builds for itself."""
        return {"_schema": self._schema, "_loaded": None}

    @property
    def _scopes(self) -> list[_Scope]:
        if self._loaded is None:
            self._loaded = [_Scope(self._schema, "context"), _Scope(self._schema, "example")]
        return self._loaded

    def create_accumulator(self) -> Pending:
        """Returns moments of no rows."""
        return [(scope.none(), []) for scope in self._scopes]

    def add_input(self, pending: Pending, ranked: RankedList) -> Pending:
        """Adds one list."""
        context, example = self._scopes
        if context.columns:
            pending[0][1].append(ranked.context[0])
        if example.columns:
            pending[1][1].extend([body for body, _ in ranked.items])
        if any(len(waiting) >= _BATCH for _, waiting in pending):
            return self.compact(pending)
        return pending

    def compact(self, pending: Pending) -> Pending:
        """Merges pending rows into the moments."""
        return [
            (merge(moments, scope.moments(waiting)) if waiting else moments, [])
            for scope, (moments, waiting) in zip(self._scopes, pending, strict=True)
        ]

    def merge_accumulators(self, accumulators: Iterable[Pending]) -> Pending:
        """Merges moments."""
        merged = self.create_accumulator()
        for other in accumulators:
            merged = [
                (merge(one[0], two[0]), one[1])
                for one, two in zip(merged, self.compact(other), strict=True)
            ]
        return merged

    def extract_output(self, pending: Pending) -> Statistics:
        """Returns scope -> column -> count, mean, std, min, max."""
        named = zip(("context", "example"), self._scopes, self.compact(pending), strict=True)
        return {name: scope.describe(moments) for name, scope, (moments, _) in named}
