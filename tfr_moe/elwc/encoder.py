"""Encodes rows and lists as the bytes of `ExampleListWithContext` records.

Raw rows take a fast path: the numbers of a scope are read and packed together, IDs come from a
cache, and a context equal to that of the row before is reused. Anything unusual falls back to
`RowParser`, which also makes the error messages. Typed values use the same encoder of one scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter, lt
from typing import Any, NamedTuple

from tfr_moe.elwc.values import (
    RowError,
    RowParser,
    Values,
    converter,
    float_features,
    id_features,
    is_missing,
    minima,
    present,
    stored_ids,
    to_time,
)
from tfr_moe.elwc.wire import FloatBlock, ids_entry, list_record
from tfr_moe.schema import Feature, FeatureSchema, Scope

_CACHED_IDS = 1 << 15
_NO_TIME = object()
_INVALID = (TypeError, ValueError, OverflowError, RowError)

Encoded = tuple[bytes, tuple[Any, ...]]
"""The map entries of one item or context, floats first (`scope_floats`), and the values of its
`counted_ids`: an ID, or a tuple of IDs."""


class EncodedRow(NamedTuple):
    """A row that matches the schema.

    Attributes:
        list_id: its list.
        time: Unix seconds, None without a time column.
        position: of the item in the list as shown, 0.0 without a position column.
        context: context of the list, according to this row.
        example: the item.
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


def _getter(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Returns a function from a row to its values of some columns, None for a missing column."""

    def get_each(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([row.get(column) for column in columns])

    if len(columns) < 2:
        return get_each
    get_all = itemgetter(*columns)

    def get(row: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            return get_all(row)
        except KeyError:
            return get_each(row)

    return get


def _id_encoder(feature: Feature) -> Callable[[Any], tuple[Any, bytes]]:
    """Returns a function: raw value -> (typed value, map entry), with a cache."""
    convert, write = converter(feature), ids_entry(feature.name)

    def encode(value: Any) -> tuple[Any, bytes]:
        found = convert(value)
        entry = write(stored_ids(feature, found))
        return (found if isinstance(found, str) else tuple(found)), entry

    if feature.kind == "categorical_list":
        return encode
    # 7, 7.0 and True are equal, but not the same ID.
    return lru_cache(_CACHED_IDS, typed=True)(encode)


class _Ids:
    """Encoder of the ID features of one scope; those of items are likely to repeat together."""

    def __init__(self, schema: FeatureSchema, scope: Scope):
        features = id_features(schema, scope)
        self._get = _getter([feature.name for feature in features])
        self._encoders = [_id_encoder(feature) for feature in features]
        counted = counted_ids(schema, scope)
        self._counted = [i for i, feature in enumerate(features) if feature.name in counted]
        self._cached = lru_cache(_CACHED_IDS if scope == "example" else 0)(self._one_by_one)

    def encode(self, row: Mapping[str, Any], floats: bytes) -> Encoded:
        """Returns the bytes of a row, `floats` followed by its IDs."""
        raw = self._get(row)
        try:
            # Equal texts are the same ID; True and 1 are equal and are not.
            "".join(raw)
            entries, values = self._cached(raw)
        except TypeError:
            entries, values = self._one_by_one(raw)
        return floats + entries, values

    def _one_by_one(self, raw: tuple[Any, ...]) -> Encoded:
        found = [encode(value) for encode, value in zip(self._encoders, raw, strict=True)]
        entries = b"".join([entry for _, entry in found])
        return entries, tuple([found[i][0] for i in self._counted])


class _Numbers:
    """Reader of the float features of one scope whose values are single numbers."""

    def __init__(self, schema: FeatureSchema, scope: Scope, extras: Mapping[str, float]):
        numerics = list(schema.select(scope, "numeric"))
        self.single = all(feature.width == 1 for feature in numerics)
        columns = [*(feature.name for feature in numerics), *extras]
        self._get = _getter(columns)
        self._missing = [None if f.required else f.missing_number for f in numerics]
        self._missing += [None] * len(extras)
        self._lowest = list(extras.values())
        self._extras = slice(len(numerics), None)

    def read(self, row: Mapping[str, Any]) -> list[float]:
        """Returns the numbers of a row; raises one of `_INVALID` where one of them is invalid."""
        raw = self._get(row)
        missing = []
        try:
            numbers = list(map(float, raw))
        except (TypeError, ValueError):
            missing = [i for i, value in enumerate(raw) if is_missing(value)]
            raw = tuple([0.0 if is_missing(value) else value for value in raw])
            numbers = list(map(float, raw))
        try:
            text = "".join(raw)
        except TypeError:
            text = "".join([value for value in raw if type(value) is str])
        # NaN and infinities survive a sum. Python reads the text 1_000 as a number.
        if "_" in text or not math.isfinite(sum(numbers)):
            raise ValueError
        if any(map(lt, numbers[self._extras], self._lowest)):
            raise ValueError
        for i in missing:
            number = self._missing[i]
            if number is None:
                raise ValueError
            numbers[i] = number
        return numbers


class ScopeEncoder:
    """Encodes the features of one scope of a row.

    Args:
        schema: of the features.
        scope: of the features.
        extras: names of further single numbers, with their minimum: labels, position, weight.

    Example:
        >>> brand = {"name": "brand", "scope": "example", "kind": "categorical"}
        >>> schema = FeatureSchema(list_id="query", labels=["click"], features=[brand])
        >>> ScopeEncoder(schema, "example")({"brand": "b"})
        (b'\\n\\x0e\\n\\x05brand\\x12\\x05\\n\\x03\\n\\x01b', ('b',))
    """

    def __init__(
        self, schema: FeatureSchema, scope: Scope, extras: Mapping[str, float] | None = None
    ):
        self._schema = schema
        self._scope = scope
        self._extras = dict(extras or {})
        self._parser = RowParser(schema)
        self._numbers = _Numbers(schema, scope, self._extras)
        self._floats = FloatBlock(float_features(schema, scope, self._extras))
        self._ids = _Ids(schema, scope)

    def __call__(self, row: Mapping[str, Any]) -> Encoded:
        """Encodes one raw row without extras.

        Raises:
            RowError: naming the invalid column.
        """
        try:
            return self.quick(row)[0]
        except _INVALID:
            return self.typed(self._parser.values(self._scope, row))

    def quick(self, row: Mapping[str, Any]) -> tuple[Encoded, list[float]]:
        """Encodes one raw row; returns its numbers, extras last, as well.

        Raises:
            TypeError, ValueError, OverflowError, RowError: for a row that needs the slow path.
        """
        if not self._numbers.single:
            raise ValueError
        numbers = self._numbers.read(row)
        return self._ids.encode(row, self._floats.pack(numbers)), numbers

    def typed(self, values: Values) -> Encoded:
        """Encodes values as `RowParser` returns them, extras included."""
        numbers: list[float] = []
        for feature in self._schema.select(self._scope, "numeric"):
            value = values[feature.name]
            numbers += value if isinstance(value, list) else [value]
        numbers += [values[name] for name in self._extras]
        return self._ids.encode(values, self._floats.pack(numbers))


class RowEncoder:
    """Encodes raw rows (column name -> raw value).

    Args:
        schema: of the rows.
        labelled: False ignores labels, weight and time, as for rows to be scored; the position is
            then optional.

    Example:
        >>> brand = {"name": "brand", "scope": "example", "kind": "categorical"}
        >>> schema = FeatureSchema(list_id="query", labels=["click"], features=[brand])
        >>> row = RowEncoder(schema)({"query": 7, "click": "1", "brand": "b"})
        >>> row.list_id, row.example[1]
        ('7', ('b',))
    """

    def __init__(self, schema: FeatureSchema, labelled: bool = True):
        self._labelled = labelled
        self._parser = RowParser(schema)
        extras = minima(schema) if labelled else {}
        self._example = ScopeEncoder(schema, "example", extras)
        self._context = ScopeEncoder(schema, "context")
        self._position = schema.position if schema.position in extras else None
        self._position_index = -len(extras) + len(schema.labels)
        self._time = schema.time if labelled else None
        self._shared = _getter([schema.list_id, *(f.name for f in schema.select("context"))])
        self._last: tuple[Any, ...] = ()
        self._last_time: tuple[Any, float | None] = (_NO_TIME, None)
        self._known: tuple[str, Encoded] = ("", (b"", ()))

    def __call__(self, row: Mapping[str, Any]) -> EncodedRow:
        """Encodes one row.

        Raises:
            RowError: naming the invalid column.
        """
        try:
            example, numbers = self._example.quick(row)
            list_id, context = self._shared_values(row)
            time = None if self._time is None else self._time_of(self._time, row)
        except _INVALID:
            return self._slow(row)
        value = None if self._position is None else numbers[self._position_index]
        return EncodedRow(list_id, time, self._position_of(row, value), context, example)

    def _position_of(self, row: Mapping[str, Any], value: float | None) -> float:
        if value is not None:
            return value
        return 0.0 if self._labelled else self._parser.position(row)

    def _time_of(self, column: str, row: Mapping[str, Any]) -> float | None:
        value = row.get(column)
        if value is not self._last_time[0] and value != self._last_time[0]:
            self._last_time = value, to_time(column, present(column, value))
        return self._last_time[1]

    def _shared_values(self, row: Mapping[str, Any]) -> tuple[str, Encoded]:
        """Returns list ID and context, those of the row before if nothing changed."""
        raw = self._shared(row)
        # Equal texts are the same; True and 1 are equal and are not.
        if raw == self._last:
            return self._known
        found = self._parser.list_id(row), self._context(row)
        if all(type(value) is str for value in raw):
            self._last, self._known = raw, found
        return found

    def _slow(self, row: Mapping[str, Any]) -> EncodedRow:
        parsed = self._parser.row(row, self._labelled)
        value = None if self._position is None else parsed.example[self._position]
        return EncodedRow(
            parsed.list_id,
            parsed.time,
            self._position_of(row, value),
            self._context.typed(parsed.context),
            self._example.typed(parsed.example),
        )


class ListEncoder:
    """Encodes typed values of one list as a serialized `ExampleListWithContext`.

    Args:
        schema: of the list.

    Example:
        >>> brand = {"name": "brand", "scope": "example", "kind": "categorical"}
        >>> schema = FeatureSchema(list_id="query", labels=["click"], features=[brand])
        >>> len(ListEncoder(schema).encode("q", {}, [{"brand": "b", "click": 1.0}]))
        59
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._list_id = ids_entry(schema.list_id)
        self._extras = list(minima(schema))
        self._context = ScopeEncoder(schema, "context")
        self._examples: dict[tuple[str, ...], ScopeEncoder] = {}

    def encode(self, list_id: str, context: Values, items: Sequence[Values]) -> bytes:
        """Serializes one list.

        Args:
            list_id: stored under the `list_id` of the schema in the context.
            context: values of the context features, as `RowParser` returns them.
            items: for each item the values of the example features and, where present, labels,
                position and weight (a request has none).
        """
        bodies = []
        for item in items:
            extras = tuple([name for name in self._extras if name in item])
            encoder = self._examples.get(extras)
            if encoder is None:
                encoder = ScopeEncoder(self._schema, "example", dict.fromkeys(extras, 0.0))
                self._examples[extras] = encoder
            bodies.append(encoder.typed(item)[0])
        return list_record(bodies, self._context.typed(context)[0] + self._list_id([list_id]))
