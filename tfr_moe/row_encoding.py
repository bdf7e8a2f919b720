"""Raw rows -> the bytes that their items and contexts have in a record, one by one and fast.

`RowParser` and `ListEncoder` say what is right. Here the same comes about with few steps a row: the
numbers are read and packed together, ids are looked up in a cache, and a context that is the same as in
the row before is taken from there. Whatever is out of the ordinary goes the slow way, which also finds
the words for what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter, lt
from typing import Any, NamedTuple

from tfr_moe.encoding import (
    Row,
    RowError,
    RowParser,
    Values,
    converter,
    float_features,
    id_features,
    is_missing,
    stored_ids,
    to_time,
)
from tfr_moe.schema import Feature, FeatureSchema, Scope
from tfr_moe.wire import FloatBlock, ids_entry

_CACHED_IDS = 1 << 15
_NO_TIME = object()
_UNFIT = (TypeError, ValueError, OverflowError, RowError)

Encoded = tuple[bytes, tuple[Any, ...]]
"""The map entries of one item or context, its floats first (`scope_floats`), and the values of its
`counted_ids`: an id, or a tuple of ids."""


class EncodedRow(NamedTuple):
    """A row that fits the schema.

    Attributes:
        list_id: its list.
        time: Unix seconds, None without a time column.
        position: place at which the item was shown, 0.0 without a position column.
        context: what the list's context is, by this row.
        example: the item.
    """

    list_id: str
    time: float | None
    position: float
    context: Encoded
    example: Encoded


def scope_floats(schema: FeatureSchema, scope: Scope, labelled: bool = True) -> FloatBlock:
    """The block of floats with which the bytes of a scope begin: numerics, then for items the labels,
    position and weight."""
    extras = _extras(schema) if labelled and scope == "example" else {}
    return FloatBlock(float_features(schema, scope, extras))


def counted_ids(schema: FeatureSchema, scope: Scope) -> list[str]:
    """The id features that vocabularies are made of: those that have one, and the parent category."""
    parent = schema.hierarchy.parent if schema.hierarchy else None
    features = id_features(schema, scope)
    return [
        feature.name for feature in features if feature.has_vocabulary or feature.name == parent
    ]


def _extras(schema: FeatureSchema) -> dict[str, float]:
    """Labels, position and weight with their lowest value."""
    found = dict.fromkeys(schema.labels, 0.0)
    if schema.position:
        found[schema.position] = 1.0
    if schema.weight:
        found[schema.weight] = 0.0
    return found


def _getter(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """The values of some columns, None where there is no such column."""

    def patiently(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([row.get(column) for column in columns])

    if len(columns) < 2:
        return patiently
    quick = itemgetter(*columns)

    def get(row: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            return quick(row)
        except KeyError:
            return patiently(row)

    return get


def _id_encoder(feature: Feature) -> Callable[[Any], tuple[Any, bytes]]:
    """Raw value -> (typed value, map entry), with those of the latest ids remembered."""
    convert, write = converter(feature), ids_entry(feature.name)

    def encode(value: Any) -> tuple[Any, bytes]:
        found = convert(value)
        entry = write(stored_ids(feature, found))
        return (found if isinstance(found, str) else tuple(found)), entry

    if feature.kind == "categorical_list":
        return encode
    # 7, 7.0 and True are equal, but not the same id.
    return lru_cache(_CACHED_IDS, typed=True)(encode)


class _Ids:
    """The id features of one scope.

    Args:
        schema: the features.
        scope: of them.
        repeated: whether rows with the same ids are likely, as those of an item are: they are then
            remembered together.
    """

    def __init__(self, schema: FeatureSchema, scope: Scope, repeated: bool):
        features = id_features(schema, scope)
        self._get = _getter([feature.name for feature in features])
        self._encoders = [_id_encoder(feature) for feature in features]
        counted = counted_ids(schema, scope)
        self._counted = [at for at, feature in enumerate(features) if feature.name in counted]
        self._remembered = lru_cache(_CACHED_IDS if repeated else 0)(self._one_by_one)

    def encode(self, row: Mapping[str, Any], floats: bytes) -> Encoded:
        """Joins the floats and the ids of a row."""
        raw = self._get(row)
        try:
            # Texts that are equal are the same id; True and 1 are equal and are not.
            "".join(raw)
            entries, values = self._remembered(raw)
        except TypeError:
            entries, values = self._one_by_one(raw)
        return floats + entries, values

    def _one_by_one(self, raw: tuple[Any, ...]) -> Encoded:
        found = [encode(value) for encode, value in zip(self._encoders, raw, strict=True)]
        entries = b"".join([entry for _, entry in found])
        return entries, tuple([found[at][0] for at in self._counted])


class _Numbers:
    """The float features of one scope whose values are single numbers, with what stands for none."""

    def __init__(self, schema: FeatureSchema, scope: Scope, extras: Mapping[str, float]):
        numerics = list(schema.select(scope, "numeric"))
        self.single = all(feature.width == 1 for feature in numerics)
        columns = [*(feature.name for feature in numerics), *extras]
        self._get = _getter(columns)
        self._defaults = [None if f.is_required else float(f.default or 0.0) for f in numerics]
        self._defaults += [None] * len(extras)
        self._lowest = list(extras.values())
        self._extras = slice(len(numerics), None)

    def read(self, row: Mapping[str, Any]) -> list[float]:
        """The numbers of a row; raises one of `_UNFIT` where not all are what they should be."""
        raw = self._get(row)
        try:
            numbers = list(map(float, raw))
        except (TypeError, ValueError):
            raw = tuple(
                [d if is_missing(v) else v for v, d in zip(raw, self._defaults, strict=True)]
            )
            numbers = list(map(float, raw))
        try:
            text = "".join(raw)
        except TypeError:
            text = "".join([value for value in raw if type(value) is str])
        # NaN and infinities stay in a sum. Python takes the text 1_000 for a number.
        if "_" in text or not math.isfinite(sum(numbers)):
            raise ValueError
        if any(map(lt, numbers[self._extras], self._lowest)):
            raise ValueError
        return numbers


def _typed_numbers(schema: FeatureSchema, scope: Scope, values: Values) -> list[float]:
    numbers: list[float] = []
    for feature in schema.select(scope, "numeric"):
        value = values[feature.name]
        numbers += value if isinstance(value, list) else [value]
    return numbers


class ScopeEncoder:
    """The features of one scope of a row -> the bytes that stand for them in a record.

    Args:
        schema: says what the features are.
        scope: of them.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "brand", "scope": "example", "kind": "categorical"}],
        ... )
        >>> ScopeEncoder(schema, "example")({"brand": "b"})
        (b'\\n\\x0e\\n\\x05brand\\x12\\x05\\n\\x03\\n\\x01b', ('b',))
    """

    def __init__(self, schema: FeatureSchema, scope: Scope):
        self._schema = schema
        self._scope = scope
        self._parser = RowParser(schema)
        self._numbers = _Numbers(schema, scope, {})
        self._floats = scope_floats(schema, scope, labelled=False)
        self._ids = _Ids(schema, scope, repeated=scope == "example")

    def __call__(self, row: Mapping[str, Any]) -> Encoded:
        """Encodes one row.

        Raises:
            RowError: naming the column at fault.
        """
        try:
            if self._numbers.single:
                return self._ids.encode(row, self._floats.pack(self._numbers.read(row)))
        except _UNFIT:
            pass
        return self.typed(self._parser.values(self._scope, row))

    def typed(self, values: Values) -> Encoded:
        """Encodes values as `RowParser` gives them."""
        numbers = _typed_numbers(self._schema, self._scope, values)
        return self._ids.encode(values, self._floats.pack(numbers))


class RowEncoder:
    """Rows (a mapping of column name to raw value) -> `EncodedRow`.

    Args:
        schema: says what a row must have.
        labelled: False leaves out labels, weight and time, as for rows that are to be scored; the
            position is then read where it is there.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "brand", "scope": "example", "kind": "categorical"}],
        ... )
        >>> RowEncoder(schema)({"query": 7, "click": "1", "brand": "b"})[:3]
        ('7', None, 0.0)
        >>> RowEncoder(schema)({"query": 7, "click": "1", "brand": "b"}).example[1]
        ('b',)
    """

    def __init__(self, schema: FeatureSchema, labelled: bool = True):
        self._schema = schema
        self._labelled = labelled
        self._parser = RowParser(schema)
        extras = _extras(schema) if labelled else {}
        self._numbers = _Numbers(schema, "example", extras)
        self._floats = scope_floats(schema, "example", labelled)
        self._ids = _Ids(schema, "example", repeated=True)
        self._read_context = ScopeEncoder(schema, "context")
        self._extras = list(extras)
        self._place = -len(extras) + len(schema.labels) if schema.position in extras else None
        self._time = schema.time if labelled else None
        self._shared = _getter([schema.list_id, *(f.name for f in schema.select("context"))])
        self._last: tuple[Any, ...] = ()
        self._moment: tuple[Any, float | None] = (_NO_TIME, None)
        self._known: tuple[str, Encoded] = ("", (b"", ()))

    def __call__(self, row: Mapping[str, Any]) -> EncodedRow:
        """Encodes one row.

        Raises:
            RowError: naming the column at fault.
        """
        if not self._numbers.single:
            return self._slowly(row)
        try:
            numbers = self._numbers.read(row)
            example = self._ids.encode(row, self._floats.pack(numbers))
            list_id, context = self._context(row)
            time = None if self._time is None else self._when(self._time, row)
        except _UNFIT:
            return self._slowly(row)
        place = self._place
        position = self._unlabelled_position(row) if place is None else numbers[place]
        return EncodedRow(list_id, time, position, context, example)

    def _unlabelled_position(self, row: Mapping[str, Any]) -> float:
        return 0.0 if self._labelled else self._parser.position(row)

    def _when(self, column: str, row: Mapping[str, Any]) -> float | None:
        value = row.get(column)
        if value is not self._moment[0] and value != self._moment[0]:
            if is_missing(value):
                raise RowError(f"column {column!r}: a value is required")
            self._moment = value, to_time(column, value)
        return self._moment[1]

    def _context(self, row: Mapping[str, Any]) -> tuple[str, Encoded]:
        """The list id and the context, as they were for the row before where nothing has changed."""
        raw = self._shared(row)
        # Texts that are equal are the same; True and 1 are equal and are not.
        if raw == self._last:
            return self._known
        found = self._parser.list_id(row), self._read_context(row)
        if all(type(value) is str for value in raw):
            self._last, self._known = raw, found
        return found

    def _slowly(self, row: Mapping[str, Any]) -> EncodedRow:
        parsed = self._parser.row(row) if self._labelled else self._unlabelled(row)
        context = self._read_context.typed(parsed.context)
        numbers = _typed_numbers(self._schema, "example", parsed.example)
        numbers += [parsed.example[name] for name in self._extras]
        example = self._ids.encode(parsed.example, self._floats.pack(numbers))
        if self._place is None:
            position = self._unlabelled_position(row)
        else:
            position = parsed.example[self._extras[self._place]]
        return EncodedRow(parsed.list_id, parsed.time, position, context, example)

    def _unlabelled(self, row: Mapping[str, Any]) -> Row:
        parser = self._parser
        list_id = parser.list_id(row)
        return Row(list_id, None, parser.values("context", row), parser.values("example", row))
