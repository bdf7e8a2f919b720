"""The values of all columns of a batch, whose distributions drift compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfr_moe.elwc.statistics import SCOPES, ratio_of, transformed
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK, PAIR_SEPARATOR, FeatureSchema, Scope, Statistics

LENGTH = "list length"


class Values(NamedTuple):
    """Values of a column in a batch: floats with NaN, or IDs as bytes, and the list of each.

    `stored` are the numbers before their transform.
    """

    values: Array
    lists: Array
    stored: Array | None = None


def values_of(
    schema: FeatureSchema, statistics: Statistics, batch: Mapping[str, Array]
) -> Iterator[tuple[str, Values]]:
    """The values of all columns of a batch, by the statistics of the reference."""
    mask = batch[MASK]
    lists = np.arange(len(mask))
    items = np.nonzero(mask)[0]
    yield LENGTH, Values(mask.sum(axis=1).astype(np.float64), lists)
    for label in (name for name in schema.labels if name in batch):
        yield label, Values(batch[label][mask][:, 0].astype(np.float64), items)
    for scope in SCOPES:
        of_row = lists if scope == "context" else items

        def rows(name: str, scope: Scope = scope) -> Array:
            return batch[name] if scope == "context" else batch[name][mask]

        for feature in schema.select(scope, "numeric"):
            block = _numbers(schema, feature.name, rows)
            if feature.ratio:
                block = ratio_of(block, _numbers(schema, feature.ratio, rows))
            for index, column in enumerate(feature.columns):
                stored = block[:, index].astype(np.float64)
                numbers = transformed(feature, statistics[scope].get(column, {}), stored)
                yield column, Values(numbers, of_row, stored)
        for feature in schema.select(scope, "categorical"):
            yield feature.name, Values(_ids(schema, feature.name, batch, rows), of_row)
        for feature in schema.select(scope, "categorical_list"):
            ids = rows(feature.name)
            row, slot = np.nonzero(ids != b"")
            none = np.flatnonzero((ids == b"").all(axis=1))
            both = np.concatenate([ids[row, slot], np.full(len(none), b"", object)])
            yield feature.name, Values(both, of_row[np.concatenate([row, none])])


def _numbers(schema: FeatureSchema, name: str, rows: Callable[[str], Array]) -> Array:
    stored, part = schema.stored_at(name)
    return rows(stored)[:, part]


def _ids(schema: FeatureSchema, name: str, batch: Mapping[str, Array], rows: Any) -> Array:
    ids = rows(name)[:, 0]
    tree = schema.hierarchy
    if tree is None or name != tree.child:
        return ids
    pairs = batch[tree.parent][:, 0] + PAIR_SEPARATOR.encode() + ids
    return np.where(ids == b"", ids, pairs)
