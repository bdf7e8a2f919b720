"""Encodes rows as the bytes of `ExampleListWithContext` records.

Batches of raw rows take a fast path: the numbers of all rows of a scope are read and packed
together, IDs come from a cache, and a context equal to that of the row before is reused. Anything
unusual is converted row by row, which also makes the error messages. Typed values use the same
encoder of one scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.elwc.columns import Columns, Rows, column_of
from tfr_moe.elwc.values import (
    RowError,
    Values,
    at_least,
    converter,
    float_features,
    id_features,
    is_missing,
    minima,
    required_id,
    to_position,
    to_time,
)
from tfr_moe.elwc.wire import FloatBlock, ids_entry
from tfr_moe.schema import Feature, FeatureSchema, Scope

_CACHED_IDS = 1 << 15
_INVALID = (TypeError, ValueError, OverflowError, RowError)

Encoded = tuple[bytes, tuple[Any, ...]]
"""The map entries of one item or context, floats first (`scope_floats`), and the values of its
`counted_ids`: an ID, or a tuple of IDs."""


class EncodedRow(NamedTuple):
    """A row that matches the schema, with its context and item encoded.

    `time` is in Unix seconds, None without a time column; `position` is 0.0 without one.
    """

    list_id: str
    time: float | None
    position: float
    context: Encoded
    example: Encoded


def scope_floats(schema: FeatureSchema, scope: Scope) -> FloatBlock:
    """Returns the block of floats with which the bytes of a scope begin: numerics, then for items
    the labels, position and weight."""
    extras = minima(schema) if scope == "example" else {}
    return FloatBlock(float_features(schema, scope, extras))


def counted_ids(schema: FeatureSchema, scope: Scope) -> list[str]:
    """Returns the ID features that are counted: those with a vocabulary, categories, queries."""
    tree = schema.hierarchy
    categories = (*((tree.parent, tree.query) if tree else ()), *schema.item_categories)
    features = id_features(schema, scope)
    return [f.name for f in features if f.has_vocabulary or f.name in categories]


def _tuples(rows: Rows, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns the values of some columns of each row."""
    if not names:
        return [()] * len(rows)
    return list(zip(*[column_of(rows, name) for name in names], strict=True))


def _id_encoder(feature: Feature) -> Callable[[Any], tuple[Any, bytes]]:
    """Returns a function: raw value -> (typed value, map entry), with a cache."""
    name, convert = feature.name, converter(feature)

    def encode(value: Any) -> tuple[Any, bytes]:
        ids = convert(value)
        if isinstance(ids, str):
            return ids, ids_entry(name, [ids])
        padding = [""] * (feature.max_length - len(ids))
        return tuple(ids), ids_entry(name, ids + padding)

    if feature.kind == "categorical_list":
        return encode
    # 7, 7.0 and True are equal, but not the same ID.
    return lru_cache(_CACHED_IDS, typed=True)(encode)


class _IdFeatures:
    """Encoder of the ID features of one scope; those of items are likely to repeat together."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        features = id_features(schema, scope)
        self._names = [feature.name for feature in features]
        self._encoders = [_id_encoder(feature) for feature in features]
        counted = counted_ids(schema, scope)
        self._counted = [i for i, feature in enumerate(features) if feature.name in counted]
        self._cached = lru_cache(_CACHED_IDS if scope == "example" else 0)(self._one_by_one)

    def encode(self, rows: Rows, slow: set[int]) -> list[Any]:
        """Returns entries and values of the IDs of rows; see `_tried`."""
        raw = _tuples(rows, self._names)
        # Equal texts are the same ID; True and 1 are equal and are not.
        return _tried(self._cached if _is_text(raw) else self._one_by_one, raw, slow)

    def one(self, values: Values) -> Encoded:
        """Returns entries and values of typed IDs."""
        return self._one_by_one(tuple([values[name] for name in self._names]))

    def _one_by_one(self, raw: tuple[Any, ...]) -> Encoded:
        encoded = [encode(value) for encode, value in zip(self._encoders, raw, strict=True)]
        entries = b"".join([entry for _, entry in encoded])
        return entries, tuple([encoded[i][0] for i in self._counted])


def _is_text(rows: Iterable[Iterable[Any]]) -> bool:
    try:
        "".join(chain.from_iterable(rows))
    except TypeError:
        return False
    return True


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


class _Numbers:
    """Reader of the float features of one scope whose values are single numbers."""

    def __init__(self, schema: FeatureSchema, scope: Scope, extras: Mapping[str, float]):
        numerics = list(schema.select(scope, "numeric"))
        self.single = all(feature.width == 1 for feature in numerics)
        self.names = [*(feature.name for feature in numerics), *extras]
        self._missing = [None if f.required else f.missing_number for f in numerics]
        self._missing += [None] * len(extras)
        self._lowest = np.array(list(extras.values()))
        self._extras = slice(len(numerics), None)

    def read(self, rows: Rows, slow: set[int]) -> NDArray[np.float64]:
        """Returns numbers [rows, columns]; rows with an invalid one are added to `slow`."""
        raw = list(chain.from_iterable([column_of(rows, name) for name in self.names]))
        size = len(rows)
        try:
            flat = np.fromiter(map(float, raw), np.float64, len(raw))
        except (TypeError, ValueError, OverflowError):
            flat = np.fromiter(map(_float, raw), np.float64, len(raw))
        for i in np.flatnonzero(~np.isfinite(flat)).tolist():
            number = self._missing[i // size]
            if number is not None and is_missing(raw[i]):
                flat[i] = number
            else:
                slow.add(i % size)
        # Python reads the text 1_000 as a number.
        try:
            is_plain = "_" not in "".join(raw)
        except TypeError:
            is_plain = False
        if not is_plain:
            slow.update(i % size for i, v in enumerate(raw) if isinstance(v, str) and "_" in v)
        numbers = flat.reshape(len(self.names), size).T
        low = (numbers[:, self._extras] < self._lowest).any(axis=1)
        slow.update(np.flatnonzero(low).tolist())
        return numbers


class ScopeEncoder:
    """Encodes the features of one scope of rows.

    `extras` are the names of further single numbers, with their minimum: labels, position, weight.
    """

    def __init__(
        self, schema: FeatureSchema, scope: Scope, extras: Mapping[str, float] | None = None
    ):
        extras = extras or {}
        self._converters = [(f.name, converter(f)) for f in schema.select(scope)]
        self._converters += [(n, partial(at_least, low, n)) for n, low in extras.items()]
        self._numbers = _Numbers(schema, scope, extras)
        self._floats = FloatBlock(float_features(schema, scope, extras))
        self._ids = _IdFeatures(schema, scope)

    def __call__(self, rows: Rows) -> list[Encoded | RowError]:
        """Encodes raw rows; an invalid one becomes the error that names its column."""
        slow: set[int] = set()
        encoded = self.quick(rows, slow)
        for i in slow:
            try:
                encoded[i] = self.slow(rows[i])
            except RowError as error:
                encoded[i] = error
        return encoded

    def quick(self, rows: Rows, slow: set[int]) -> list[Any]:
        """Encodes raw rows; the indices of rows that need the slow path are added to `slow`."""
        if not self._numbers.single:
            slow.update(range(len(rows)))
            return [None] * len(rows)
        numbers = self._numbers.read(rows, slow)
        ids = self._ids.encode(rows, slow)
        blocks = self._floats.pack_rows(numbers, slow)
        return [
            of_ids and (floats + of_ids[0], of_ids[1])
            for floats, of_ids in zip(blocks, ids, strict=True)
        ]

    def slow(self, row: Mapping[str, Any]) -> Encoded:
        """Encodes a raw row; raises `RowError` at the first invalid column."""
        return self.typed({name: convert(row.get(name)) for name, convert in self._converters})

    def typed(self, values: Values) -> Encoded:
        """Encodes typed values, extras included."""
        numbers: list[float] = []
        for name in self._numbers.names:
            value = values[name]
            numbers += value if isinstance(value, list) else [value]
        entries, ids = self._ids.one(values)
        return self._floats.pack(numbers) + entries, ids


class RowEncoder:
    """Encodes raw rows (column name -> raw value).

    Without `labelled` it ignores labels, weight and time, as for rows to be scored, and does not
    require the position.

    Example:
        >>> brand = {"name": "brand", "scope": "example", "kind": "categorical"}
        >>> schema = FeatureSchema(list_id="query", labels=["click"], features=[brand])
        >>> row, error = RowEncoder(schema)([{"query": 7, "click": "1", "brand": "b"}, {}])
        >>> row.list_id, row.example[1]
        ('7', ('b',))
        >>> str(error)
        "column 'query': a value is required"
    """

    def __init__(self, schema: FeatureSchema, labelled: bool = True):
        extras = minima(schema) if labelled else {}
        self._example = ScopeEncoder(schema, "example", extras)
        self._context = ScopeEncoder(schema, "context")
        self._list_id, self._position = schema.list_id, schema.position
        self._time = schema.time if labelled else None
        cached = lru_cache(_CACHED_IDS, typed=True)
        self._read_time = cached(partial(to_time, schema.time or ""))
        self._read_position = cached(partial(to_position, schema.position or ""))
        self._shared = [schema.list_id, *(f.name for f in schema.select("context"))]

    def __call__(self, rows: Rows) -> list[EncodedRow | RowError]:
        """Encodes rows; an invalid one becomes the error that names its column."""
        if not rows:
            return []
        slow: set[int] = set()
        examples = self._example.quick(rows, slow)
        list_ids, contexts = self._lists(rows, slow)
        times: list[float | None] = [None] * len(rows)
        if self._time:
            times = _tried(self._read_time, column_of(rows, self._time), slow)
        positions = [0.0] * len(rows)
        if self._position:
            positions = _tried(self._read_position, column_of(rows, self._position), slow)
        encoded: list[Any] = list(map(EncodedRow, list_ids, times, positions, contexts, examples))
        for i in slow:
            encoded[i] = self._slow(rows[i])
        return encoded

    def _lists(self, rows: Rows, slow: set[int]) -> tuple[list[str], list[Any]]:
        """Returns list IDs and contexts, encoded once for rows of the same texts in a row."""
        raw = _tuples(rows, self._shared)
        # Equal texts are the same; True and 1 are equal and are not.
        if _is_text(raw):
            starts = [i for i, value in enumerate(raw) if not i or value != raw[i - 1]]
        else:
            starts = list(range(len(rows)))
        columns = map(list, zip(*[raw[i] for i in starts], strict=True))
        firsts, bad = Columns(dict(zip(self._shared, columns, strict=True))), set[int]()
        read = partial(required_id, self._list_id)
        ids = _tried(read, column_of(firsts, self._list_id), bad)
        contexts = self._context.quick(firsts, bad)
        at_row = np.repeat(np.arange(len(starts)), np.diff([*starts, len(rows)])).tolist()
        slow.update(i for i, at in enumerate(at_row) if at in bad)
        return [ids[at] for at in at_row], [contexts[at] for at in at_row]

    def _slow(self, row: Mapping[str, Any]) -> EncodedRow | RowError:
        get, time, position = row.get, None, 0.0
        try:
            list_id = required_id(self._list_id, get(self._list_id))
            if self._time:
                time = to_time(self._time, get(self._time))
            context, example = self._context.slow(row), self._example.slow(row)
            if self._position:
                position = to_position(self._position, get(self._position))
        except RowError as error:
            return error
        return EncodedRow(list_id, time, position, context, example)


def _tried(read: Callable[[Any], Any], rows: Sequence[Any], slow: set[int]) -> list[Any]:
    """Returns `read` of each row; where it raises, None, and the index is added to `slow`."""
    try:
        return list(map(read, rows))
    except _INVALID:
        pass
    results: list[Any] = []
    for row in rows:
        try:
            results.append(read(row))
        except _INVALID:
            slow.add(len(results))
            results.append(None)
    return results
