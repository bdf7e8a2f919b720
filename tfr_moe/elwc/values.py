"""Raw values -> typed values by a schema, and back from serialized lists.

Pipelines and clients share this code, so that training data and requests are encoded alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import numpy as np

from tfr_moe.errors import UserError
from tfr_moe.schema import Feature, FeatureSchema, Scope

LIST_SEPARATOR = "|"
_BOOLEANS = {"true": 1.0, "false": 0.0}
FLOAT32_MAX = float(np.finfo(np.float32).max)
_FIRST_MILLISECONDS = 1e11  # as seconds, the year 5138; as milliseconds, 1973
_FIRST_DATE, _LAST_DATE = 19000101, 20991231
_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")

Values = dict[str, Any]
"""Feature name -> float, list of floats, string, or list of strings, by the feature's kind."""


class RowError(UserError):
    """A row or request that does not match the schema; the message names the column."""


def is_missing(value: Any) -> bool:
    """Returns whether a value is None, NaN, or blank text."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def present(column: str, value: Any) -> Any:
    """Returns a value unchanged; raises `RowError` if it is missing."""
    if is_missing(value):
        raise RowError(f"column {column!r}: a value is required")
    return value


def to_number(column: str, value: Any) -> float:
    """Returns a number, a boolean, or the text of one of them as a finite float32.

    Example:
        >>> to_number("price", "9.50"), to_number("in_stock", "True")
        (9.5, 1.0)

    Raises:
        RowError: for text that is no number, and for infinities.
    """
    number: float | None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        number = _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
    # Python reads the text 1_000 as a number; in a log it is an error, or an ID.
    if number is None or (isinstance(value, str) and "_" in value):
        raise RowError(f"column {column!r}: expected a number, got {value!r}")
    if not math.isfinite(number) or abs(number) > FLOAT32_MAX:
        raise RowError(f"column {column!r}: expected a finite number, got {value!r}")
    return number


def is_valid_text(text: str) -> bool:
    """Returns whether the text has no half of a surrogate pair, which has no UTF-8: JSON can spell
    one, and invalid bytes read with `surrogateescape` become some."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(column: str, value: str) -> str:
    if not is_valid_text(value):
        raise RowError(f"column {column!r}: not valid Unicode text: {value!r}")
    return value.strip()


def to_id(column: str, value: Any) -> str:
    """Returns the text of an ID: integers without a decimal point, text stripped.

    Raises:
        RowError: for values that are neither text nor numbers.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            raise RowError(f"column {column!r}: not valid UTF-8: {value!r}") from None
    if isinstance(value, str):
        return _text(column, value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    raise RowError(f"column {column!r}: expected an id (text or number), got {value!r}")


def required_id(column: str, value: Any) -> str:
    """Returns the text of an ID; raises `RowError` if it is missing or no ID."""
    return to_id(column, present(column, value))


def to_time(column: str, value: Any) -> float:
    """Returns Unix seconds, from a number or from ISO 8601 text (UTC without a time zone).

    Raises:
        RowError: for anything else, and for numbers that look like a date such as 20240131 or like
            milliseconds.
    """
    value = present(column, value)
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            number = to_number(column, value)
        except RowError:
            pass
        else:
            return _unix_seconds(column, number)
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


def _unix_seconds(column: str, number: float) -> float:
    if abs(number) >= _FIRST_MILLISECONDS:
        raise RowError(f"column {column!r}: expected Unix seconds, got milliseconds: {number:.0f}")
    # The range first: a text of each time would cost more than the rest of its parsing.
    if _FIRST_DATE <= number <= _LAST_DATE and _DATE.fullmatch(f"{number:.10g}"):
        raise RowError(
            f"column {column!r}: expected ISO 8601 time or Unix seconds, got a date as a number: "
            f"{number:.0f}"
        )
    return number


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
    # A history ends with its latest entries.
    if isinstance(value, str):
        parts = [part.strip() for part in _text(feature.name, value).split(LIST_SEPARATOR)]
        return [part for part in parts if part][-feature.max_length :]
    return [to_id(feature.name, part) for part in _entries(value)][-feature.max_length :]


def converter(feature: Feature) -> Callable[[Any], Any]:
    """Returns a function from raw to typed values of a feature; it raises `RowError`."""
    name = feature.name
    missing: Any = feature.missing_number if feature.kind == "numeric" else feature.default or ""
    if feature.kind == "categorical_list":
        missing = [missing] if missing else []
    elif feature.width > 1:
        missing = [missing] * feature.width

    def convert(value: Any) -> Any:
        if is_missing(value):
            if feature.required:
                raise RowError(f"column {name!r}: a value is required")
            return missing
        if feature.kind == "numeric":
            return _numeric(feature, value)
        return to_id(name, value) if feature.kind == "categorical" else _ids(feature, value)

    return convert


def at_least(low: float, column: str, value: Any) -> float:
    """Returns a number; raises `RowError` if it is missing, no number, or too low."""
    number = to_number(column, present(column, value))
    if number < low:
        raise RowError(f"column {column!r}: must be >= {low:g}, got {number:g}")
    return number


def to_position(column: str, value: Any) -> float:
    """Returns a position, 0.0 for none; raises `RowError` if it is no number, or below 1."""
    return 0.0 if is_missing(value) else at_least(1, column, value)


def minima(schema: FeatureSchema) -> dict[str, float]:
    """Returns labels, position and weight with their minimum.

    A position of 0 is the default of records without one: not shown.
    """
    lowest = dict.fromkeys(schema.labels, 0.0)
    if schema.position:
        lowest[schema.position] = 1.0
    if schema.weight:
        lowest[schema.weight] = 0.0
    return lowest


def float_features(
    schema: FeatureSchema, scope: Scope, extras: Iterable[str] = ()
) -> list[tuple[str, int]]:
    """Returns names and widths of the float features of a record: numerics, then `extras`.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> float_features(schema, "example", ["click"])
        [('example_numeric', 1), ('click', 1)]
    """
    numerics = [(name, len(columns)) for name, columns in schema.stored_numbers(scope).items()]
    return [*numerics, *((name, 1) for name in extras)]


def id_features(schema: FeatureSchema, scope: Scope) -> list[Feature]:
    """Returns the features of a scope that a record stores as IDs."""
    return list(schema.select(scope, "categorical", "categorical_list"))


def decode_list(schema: FeatureSchema, serialized: bytes) -> tuple[Values, list[Values]]:
    """Returns the features of a serialized list and of its items.

    Numerics are float32, IDs text; the padding of a `categorical_list` is removed. What a request
    leaves out is missing: the defaults of the schema.
    """
    from tensorflow_serving.apis import input_pb2

    proto = input_pb2.ExampleListWithContext.FromString(serialized)
    context = _decode(schema, "context", proto.context)
    return context, [_decode(schema, "example", example) for example in proto.examples]


def _decode(schema: FeatureSchema, scope: Scope, example: Any) -> Values:
    stored = example.features.feature
    values: Values = {}
    for feature in schema.select(scope):
        name = feature.name
        if feature.kind == "numeric":
            entry, part = schema.stored_at(name)
            numbers = list(stored[entry].float_list.value[part])
            numbers = numbers or [feature.missing_number] * feature.width
            values[name] = numbers[0] if feature.width == 1 else numbers
        else:
            texts = [t.decode("utf-8") for t in stored[name].bytes_list.value]
            if feature.kind == "categorical":
                values[name] = texts[0] if texts else feature.default or ""
            else:
                values[name] = [t for t in texts if t]
    return values


def list_id_of(schema: FeatureSchema, serialized: bytes) -> str:
    """The ID of a serialized list; empty for a request without one."""
    from tensorflow_serving.apis import input_pb2

    context = input_pb2.ExampleListWithContext.FromString(serialized).context
    ids = context.features.feature[schema.list_id].bytes_list.value
    return ids[0].decode("utf-8") if ids else ""
