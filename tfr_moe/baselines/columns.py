"""What a tree or a linear ranker sees of an item: one row of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import PACKED, PAIR_SEPARATOR, Feature, FeatureSchema, FeatureTables, Scope


class Column(NamedTuple):
    """One number of a row.

    Attributes:
        name: the feature, or `feature[k]` of a wide one.
        size: of an id the number of its values, 0 standing for an unknown one; None for a numeric.
        mean: of a numeric over the training split.
        std: of a numeric, 1 where it is constant.
    """

    name: str
    size: int | None
    mean: float = 0.0
    std: float = 1.0


class RowEncoder:
    """Parsed lists -> rows of float32, one for each valid item, in the order of the lists.

    A numeric is what the schema makes of it (`log1p` or as it is), unscaled. An id is its place in the
    vocabulary from 1 up, or its hash bucket; the child category counts with its parent. A
    `categorical_list` gives the number of its ids and the id that stands first.

    Args:
        schema: of the data.
        tables: statistics and vocabularies of its training split.
        left_out: features that are no columns.

    Raises:
        UserError: where no feature is left, or one is left out that there isn't.

    Example:
        >>> schema = FeatureSchema.model_validate({
        ...     "list_id": "q", "labels": ["click"],
        ...     "features": [{"name": "price", "scope": "example", "kind": "numeric"}],
        ... })
        >>> statistics = {"example": {"price": {"mean": 2.0, "std": 1.0}}}
        >>> encoder = RowEncoder(schema, FeatureTables(statistics, {}))
        >>> lists = {"example_numeric": tf.constant([[[3.0], [4.0]]])}
        >>> encoder(lists, tf.constant([[True, False]]))
        array([[3.]], dtype=float32)
    """

    def __init__(self, schema: FeatureSchema, tables: FeatureTables, left_out: Sequence[str] = ()):
        self.schema = schema
        for name in left_out:
            schema.feature(name)
        self._kept = [feature for feature in schema.features if feature.name not in left_out]
        if not self._kept:
            raise UserError("ignored_features: names all features, nothing is left to learn from")
        self._lookups: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for feature in self._kept:
            if feature.kind != "numeric":
                self._lookups[feature.name], sizes[feature.name] = _lookup(feature, tables)
        self.columns: list[Column] = []
        scopes: tuple[Scope, ...] = ("example", "context")
        for scope in scopes:
            for feature in self._select(scope):
                self.columns += _columns(feature, sizes, tables.statistics.get(scope, {}))

    def __call__(self, parsed: dict[str, Any], mask: Any) -> NDArray[np.float32]:
        """Features by name, as `schema.feature_spec` parses them, and mask [B, L] -> [T, columns]."""
        blocks = [
            tf.boolean_mask(block, mask)
            for feature in self._select("example")
            for block in self._blocks(feature, "example", parsed)
        ]
        rows = tf.where(mask)[:, 0]
        blocks += [
            tf.gather(block, rows)
            for feature in self._select("context")
            for block in self._blocks(feature, "context", parsed)
        ]
        return tf.concat(blocks, axis=-1).numpy()

    def _select(self, scope: Scope) -> list[Feature]:
        return [feature for feature in self._kept if feature.scope == scope]

    def _blocks(self, feature: Feature, scope: Scope, parsed: dict[str, Any]) -> list[Any]:
        """Float32 [..., k] for each number or group of numbers of a feature."""
        if feature.kind == "numeric":
            return [self._numbers(feature, scope, parsed)]
        ids = parsed[feature.name]
        hierarchy = self.schema.hierarchy
        if hierarchy is not None and feature.name == hierarchy.child:
            ids = tf.strings.join([parsed[hierarchy.parent], ids], PAIR_SEPARATOR)
        first = tf.cast(self._lookups[feature.name](ids[..., :1]), tf.float32)
        if feature.kind == "categorical":
            return [first]
        there = tf.cast(tf.strings.length(ids) > 0, tf.float32)
        return [tf.reduce_sum(there, axis=-1, keepdims=True), first]

    def _numbers(self, feature: Feature, scope: Scope, parsed: dict[str, Any]) -> Any:
        if self.schema.packed:
            before = 0
            for other in self.schema.select(scope, "numeric"):
                if other.name == feature.name:
                    break
                before += other.width
            values = parsed[PACKED[scope]][..., before : before + feature.width]
        else:
            values = parsed[feature.name]
        values = tf.cast(values, tf.float32)
        if feature.transform == "log1p":
            values = tf.sign(values) * tf.math.log1p(tf.abs(values))
        return values


def _lookup(feature: Feature, tables: FeatureTables) -> tuple[Any, int]:
    """A function from ids to numbers, and the number of its values."""
    if feature.hash_buckets:
        return tf.keras.layers.Hashing(feature.hash_buckets), feature.hash_buckets
    words = tables.vocabularies[feature.name]
    if isinstance(words, str):
        with open(words, encoding="utf-8") as file:
            words = file.read().splitlines()
    # A lookup needs an entry; a blank can't occur, since values are stripped.
    lookup = tf.keras.layers.StringLookup(vocabulary=list(words) or [" "])
    return lookup, lookup.vocabulary_size()


def _columns(feature: Feature, sizes: dict[str, int], statistics: Any) -> list[Column]:
    if feature.kind == "categorical":
        return [Column(feature.name, sizes[feature.name])]
    if feature.kind == "categorical_list":
        return [
            Column(f"{feature.name} (number)", None, 0.0, float(feature.max_length)),
            Column(f"{feature.name} (first)", sizes[feature.name]),
        ]
    found = [statistics.get(column, {}) for column in feature.columns]
    return [
        Column(name, None, float(of.get("mean", 0.0)), float(of.get("std", 1.0)) or 1.0)
        for name, of in zip(feature.columns, found, strict=True)
    ]
