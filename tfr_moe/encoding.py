"""Rows of text, numbers and ids -> typed values -> `ExampleListWithContext`.

The pipeline and the client both go through here, so that what is trained on and what is asked for
are encoded by the same code. Nothing here imports Keras.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np

from tfr_moe.errors import UserError
from tfr_moe.schema import PACKED, Feature, FeatureSchema, Scope
from tfr_moe.wire import Layout, ids_entry, list_record

LIST_SEPARATOR = "|"
FLOAT32_MAX = float(np.finfo(np.float32).max)

Values = dict[str, Any]
"""Feature name -> float, list of floats, string, or list of strings, by the feature's kind."""


class RowError(UserError):
    """A row (or a request) that does not fit the schema; the message names the column."""


class Row(NamedTuple):
    """One typed row: `context` and `example` hold the values of their scope's features, `example`
    the labels, position and weight as well. `time` is in Unix seconds, None without a time column."""

    list_id: str
    time: float | None
    context: Values
    example: Values


def is_missing(value: Any) -> bool:
    """None, NaN, or text of nothing but blanks."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def to_number(column: str, value: Any) -> float:
    """A finite float32, from a number or its text.

    Raises:
        RowError: for text that is no number, and for infinities.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        number = None
    # Python takes the text 1_000 for a number; in a log it is damage, or an id.
    if number is None or (isinstance(value, str) and "_" in value):
        raise RowError(f"column {column!r}: expected a number, got {value!r}")
    if not math.isfinite(number) or abs(number) > FLOAT32_MAX:
        raise RowError(f"column {column!r}: expected a finite number, got {value!r}")
    return number


def _text(column: str, value: str) -> str:
    # Half of a surrogate pair, which JSON can spell, has no UTF-8.
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise RowError(f"column {column!r}: not valid Unicode text: {value!r}") from None
    return value.strip()


def to_id(column: str, value: Any) -> str:
    """The text of an id: whole numbers without a decimal point, everything else stripped.

    Raises:
        RowError: for values that are neither text nor numbers.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return _text(column, value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    raise RowError(f"column {column!r}: expected an id (text or number), got {value!r}")


def to_time(column: str, value: Any) -> float:
    """Unix seconds, from a number of them or from ISO 8601 text (UTC where it names no zone).

    Raises:
        RowError: for anything else.
    """
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            return to_number(column, value)
        except RowError:
            pass
        try:
            text = str(value).strip().removesuffix(" UTC").replace("Z", "+00:00")
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise RowError(
                f"column {column!r}: expected ISO 8601 time or Unix seconds, got {value!r}"
            ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp()


def _entries(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part for part in value.split(LIST_SEPARATOR) if part.strip()]
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        return [value]
    return [part for part in value if not is_missing(part)]


def _numeric(feature: Feature, value: Any) -> float | list[float]:
    if feature.width == 1:
        return to_number(feature.name, value)
    numbers = [to_number(feature.name, part) for part in _entries(value)]
    if len(numbers) != feature.width:
        raise RowError(
            f"column {feature.name!r}: expected {feature.width} numbers, got {len(numbers)}"
        )
    return numbers


def _ids(feature: Feature, value: Any) -> list[str]:
    # The latest entries of a history are its last ones.
    if isinstance(value, str):
        parts = [part.strip() for part in _text(feature.name, value).split(LIST_SEPARATOR)]
        return [part for part in parts if part][-feature.max_length :]
    return [to_id(feature.name, part) for part in _entries(value)][-feature.max_length :]


def converter(feature: Feature) -> Callable[[Any], Any]:
    """A function from a raw value of the feature to its typed one, `RowError` where it does not fit."""
    name = feature.name
    missing: Any
    if feature.kind == "numeric":
        number = float(feature.default or 0.0)
        missing = number if feature.width == 1 else [number] * feature.width
    else:
        text = str(feature.default or "")
        missing = text if feature.kind == "categorical" else ([text] if text else [])

    def convert(value: Any) -> Any:
        if is_missing(value):
            if feature.is_required:
                raise RowError(f"column {name!r}: a value is required")
            return missing
        if feature.kind == "numeric":
            return _numeric(feature, value)
        return to_id(name, value) if feature.kind == "categorical" else _ids(feature, value)

    return convert


class RowParser:
    """Turns rows (a mapping of column name to raw value) into typed values, by a schema.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> RowParser(schema).row({"query": 7, "click": "1", "price": "2.5"})
        Row(list_id='7', time=None, context={}, example={'price': 2.5, 'click': 1.0})
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._converters: dict[Scope, list[tuple[str, Callable[[Any], Any]]]] = {
            "context": [(f.name, converter(f)) for f in schema.select("context")],
            "example": [(f.name, converter(f)) for f in schema.select("example")],
        }

    def values(self, scope: Scope, row: Mapping[str, Any]) -> Values:
        """The features of one scope.

        Raises:
            RowError: naming the column that is missing or of the wrong type.
        """
        get = row.get
        return {name: convert(get(name)) for name, convert in self._converters[scope]}

    def row(self, row: Mapping[str, Any]) -> Row:
        """A whole row of a log: list id, time, features, labels, position and weight.

        Raises:
            RowError: naming the column at fault.
        """
        schema = self._schema
        list_id = self.list_id(row)
        time = to_time(schema.time, self._present(row, schema.time)) if schema.time else None
        context = self.values("context", row)
        example = self.values("example", row)
        for label in schema.labels:
            example[label] = self._at_least(0, row, label)
        if schema.position:
            # 0 would read like the stand-in of records without a position: not shown.
            example[schema.position] = self._at_least(1, row, schema.position)
        if schema.weight:
            example[schema.weight] = self._at_least(0, row, schema.weight)
        return Row(list_id, time, context, example)

    def list_id(self, row: Mapping[str, Any]) -> str:
        """The list id of a row.

        Raises:
            RowError: if there is none.
        """
        column = self._schema.list_id
        return to_id(column, self._present(row, column))

    def position(self, row: Mapping[str, Any]) -> float:
        """The position of a row, 0.0 where it has none.

        Raises:
            RowError: if it is no number, or below 1.
        """
        column = self._schema.position
        return (
            0.0 if column is None or is_missing(row.get(column)) else self._at_least(1, row, column)
        )

    @staticmethod
    def _present(row: Mapping[str, Any], column: str) -> Any:
        value = row.get(column)
        if is_missing(value):
            raise RowError(f"column {column!r}: a value is required")
        return value

    def _at_least(self, low: int, row: Mapping[str, Any], column: str) -> float:
        number = to_number(column, self._present(row, column))
        if number < low:
            raise RowError(f"column {column!r}: must be >= {low}, got {number:g}")
        return number


def float_features(
    schema: FeatureSchema, scope: Scope, extras: Iterable[str] = ()
) -> list[tuple[str, int]]:
    """Names and widths of the float features that a record stores: numerics, then `extras`.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> float_features(schema, "example", ["click"])
        [('example_numeric', 1), ('click', 1)]
    """
    numerics = [(feature.name, feature.width) for feature in schema.select(scope, "numeric")]
    if schema.packed and numerics:
        numerics = [(PACKED[scope], sum(width for _, width in numerics))]
    return [*numerics, *((name, 1) for name in extras)]


def id_features(schema: FeatureSchema, scope: Scope) -> list[Feature]:
    """The features of a scope that a record stores as ids."""
    return list(schema.select(scope, "categorical", "categorical_list"))


def stored_ids(feature: Feature, value: str | list[str]) -> list[str]:
    """The ids as a record has them: those of a `categorical_list` filled up with empty ones."""
    if isinstance(value, str):
        return [value]
    return value + [""] * (feature.max_length - len(value))


class ListEncoder:
    """Typed values of one list -> serialized `tensorflow.serving.ExampleListWithContext`.

    Numerics are packed into one float feature a scope where the schema says so; a
    `categorical_list` is filled up with empty strings to its `max_length`.
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._list_id = ids_entry(schema.list_id)
        scopes: tuple[Scope, ...] = ("context", "example")
        self._numerics = {scope: list(schema.select(scope, "numeric")) for scope in scopes}
        self._ids = {scope: id_features(schema, scope) for scope in scopes}
        self._extras = [*schema.labels, *(c for c in (schema.position, schema.weight) if c)]
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._context = self._layout("context", ())

    def _layout(self, scope: Scope, extras: tuple[str, ...]) -> Layout:
        floats = float_features(self._schema, scope, extras)
        return Layout(floats, [feature.name for feature in self._ids[scope]])

    def _body(
        self, layout: Layout, scope: Scope, values: Values, extras: tuple[str, ...] = ()
    ) -> bytes:
        numbers: list[float] = []
        for feature in self._numerics[scope]:
            value = values[feature.name]
            numbers += value if isinstance(value, list) else [value]
        numbers += [values[name] for name in extras]
        ids = [(f.name, stored_ids(f, values[f.name])) for f in self._ids[scope]]
        return layout.body(numbers, ids)

    def encode(self, list_id: str, context: Values, items: Sequence[Values]) -> bytes:
        """Serializes one list.

        Args:
            list_id: stored under the schema's `list_id` in the context.
            context: values of the context features, as `RowParser` gives them.
            items: for each item the values of the example features and, where they are there,
                labels, position and weight (a request has none).
        """
        bodies = []
        for item in items:
            extras = tuple([name for name in self._extras if name in item])
            if extras not in self._layouts:
                self._layouts[extras] = self._layout("example", extras)
            bodies.append(self._body(self._layouts[extras], "example", item, extras))
        body = self._body(self._context, "context", context)
        return list_record(bodies, body + self._list_id([list_id]))


def decode_list(schema: FeatureSchema, serialized: bytes) -> tuple[Values, list[Values]]:
    """The inverse of `ListEncoder.encode` for the features: raw values of the list and its items.

    Numerics come back as float32, ids as text; empty fillers of a `categorical_list` are left out.
    """
    from tensorflow_serving.apis import input_pb2

    proto = input_pb2.ExampleListWithContext.FromString(serialized)
    context = _decode(schema, "context", proto.context)
    return context, [_decode(schema, "example", example) for example in proto.examples]


def _decode(schema: FeatureSchema, scope: Scope, example: Any) -> Values:
    stored = example.features.feature
    values: Values = {}
    packed = list(stored[PACKED[scope]].float_list.value) if schema.packed else []
    for feature in schema.select(scope):
        name = feature.name
        if feature.kind == "numeric":
            numbers = packed if schema.packed else list(stored[name].float_list.value)
            own, packed = numbers[: feature.width], numbers[feature.width :]
            values[name] = own[0] if feature.width == 1 else own
        else:
            texts = [t.decode("utf-8") for t in stored[name].bytes_list.value]
            values[name] = texts[0] if feature.kind == "categorical" else [t for t in texts if t]
    return values
