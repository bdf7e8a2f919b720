"""Arrow columns -> numbers, IDs and times, by the rules of `tfr_moe.elwc.values`, vectorised.

Text and IDs are dictionary-encoded first, so that the converters of `elwc.values` see each distinct
value once. Errors name the column and the first offending row, counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from tfr_moe.elwc.values import (
    FLOAT32_MAX,
    RowError,
    converter,
    is_missing,
    to_number,
    to_time,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import Feature
from tfr_moe.tables.arrow import Ids, as_numbers, encode, is_list

Floats: TypeAlias = NDArray[np.float64]


def convert_words(
    ids: Ids, convert: Callable[[Any], Any], rows: NDArray[np.int64] | None = None
) -> Ids:
    """Converts each distinct value once and merges those that become equal.

    Raises a UserError if `convert` rejects a value that occurs, naming the first row that has it;
    `rows` are the row numbers of the values, by default their index.
    """
    mapping = np.zeros(len(ids.words), np.int32)
    merged: dict[Any, int] = {}
    rejected: dict[int, RowError] = {}
    for code, word in enumerate(ids.words):
        try:
            mapping[code] = merged.setdefault(convert(word), len(merged))
        except RowError as error:
            rejected[code] = error
    invalid = np.isin(ids.codes, list(rejected)) if rejected else np.zeros(0, bool)
    if invalid.any():
        first = int(np.argmax(invalid))
        row = first if rows is None else int(rows[first])
        raise UserError(f"row {row}: {rejected[int(ids.codes[first])]}")
    return Ids(mapping[ids.codes], list(merged))


def read_ids(feature: Feature, column: pa.ChunkedArray) -> Ids:
    """Reads a `categorical` or `categorical_list` feature."""
    name, convert = feature.name, converter(feature)
    if feature.kind == "categorical_list" and is_list(column.type):
        return _read_lists(feature, column)
    if types.is_nested(column.type):
        raise UserError(f"column {name!r}: expected IDs, got values of type {column.type}")
    if feature.kind == "categorical":
        return convert_words(encode(column), convert)
    return _padded(convert_words(encode(column), lambda value: tuple(convert(value))), feature)


def _padded(lists: Ids, feature: Feature) -> Ids:
    """Tuples of IDs as words -> IDs as words, codes [rows, max_length], padded with ''."""
    words: dict[str, int] = {"": 0}
    matrix = np.zeros((len(lists.words), feature.max_length), np.int32)
    for row, ids in enumerate(lists.words):
        matrix[row, : len(ids)] = [words.setdefault(text, len(words)) for text in ids]
    return Ids(matrix[lists.codes], list(words))


def _read_lists(feature: Feature, column: pa.ChunkedArray) -> Ids:
    """Reads lists of IDs: the last `max_length` of each row, padded with '' at the end."""
    missing = np.flatnonzero(pc.is_null(column).to_numpy())
    if feature.required and len(missing):
        raise UserError(f"row {missing[0]}: column {feature.name!r}: a value is required")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    entry = feature.model_copy(update={"kind": "categorical", "default": None, "required": False})
    flat = convert_words(encode(pc.list_flatten(column)), converter(entry), row_of)
    filled = np.array([word != "" for word in flat.words], bool)[flat.codes]
    lengths = np.bincount(row_of[filled], minlength=len(lengths))
    words = [*flat.words, "", feature.default or ""]
    codes = np.append(flat.codes[filled], np.int32(len(words) - 2))
    size = np.minimum(lengths, feature.max_length)
    position = np.arange(feature.max_length)
    index = (np.cumsum(lengths) - size)[:, None] + position
    matrix = codes[np.where(position < size[:, None], index, len(codes) - 1)]
    matrix[missing, 0] = len(words) - 1
    return convert_words(Ids(matrix, words), str)


def read_numbers(
    name: str,
    column: pa.ChunkedArray,
    default: float | None = None,
    lowest: float | None = None,
    remedy: str = "",
) -> Floats:
    """Reads numbers, booleans, or text with numbers as float64 [rows].

    A `default` replaces missing values and may be NaN; None rejects them, with `remedy` as what the
    error advises.
    """
    values = as_numbers(column)
    if values is None:
        values = _text_numbers(name, column)
    missing = np.isnan(values)
    if default is None:
        _check_present(name, missing, remedy)
    elif missing.any():
        values = np.where(missing, default, values)
    invalid = np.abs(values) > FLOAT32_MAX
    if invalid.any():
        row = int(np.argmax(invalid))
        raise UserError(f"row {row}: column {name!r}: expected a finite number, got {values[row]}")
    if lowest is not None and (values < lowest).any():
        row = int(np.argmax(values < lowest))
        raise UserError(f"row {row}: column {name!r}: must be >= {lowest:g}, got {values[row]:g}")
    return values


def _check_present(name: str, missing: NDArray[np.bool_], remedy: str) -> None:
    if missing.any():
        raise UserError(
            f"column {name!r}: {int(missing.sum())} of {len(missing)} rows have no value, the "
            f"first is row {int(np.argmax(missing))}{remedy}"
        )


def _text_numbers(name: str, column: pa.ChunkedArray) -> Floats:
    kind = column.type
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_nested(inner) or types.is_temporal(inner):
        raise UserError(f"column {name!r}: expected numbers, got values of type {kind}")
    codes, numbers = convert_words(
        encode(column), lambda value: None if is_missing(value) else to_number(name, value)
    )
    return np.array([np.nan if n is None else n for n in numbers], np.float64)[codes]


def read_wide(feature: Feature, column: pa.ChunkedArray) -> Floats:
    """Reads a numeric feature as float64 [rows, width]."""
    remedy = "; the schema requires one"
    default = None if feature.required else feature.missing_number
    if feature.width == 1:
        return read_numbers(feature.name, column, default, remedy=remedy)[:, None]
    if not is_list(column.type):
        convert = converter(feature)
        rows = convert_words(encode(column), lambda value: tuple(convert(value)))
        return np.array(rows.words, np.float64).reshape(-1, feature.width)[rows.codes]
    missing = pc.is_null(column).to_numpy()
    if default is None:
        _check_present(feature.name, missing, remedy)
    sizes = pc.list_value_length(column).fill_null(feature.width).to_numpy()
    if (sizes != feature.width).any():
        row = int(np.argmax(sizes != feature.width))
        reason = f"expected {feature.width} numbers, got {sizes[row]}"
        raise UserError(f"row {row}: column {feature.name!r}: {reason}")
    values = np.full((len(column), feature.width), 0.0 if default is None else default)
    flat = read_numbers(f"{feature.name} (entries)", pc.list_flatten(column))
    values[~missing] = flat.reshape(-1, feature.width)
    return values


def read_times(name: str, column: pa.ChunkedArray) -> Floats:
    """Reads times as Unix seconds, float64 [rows].

    They are timestamps, dates, Unix seconds, or text with ISO 8601; UTC without a time zone.
    """
    kind = column.type
    if types.is_timestamp(kind) or types.is_date(kind):
        zone = kind.tz if types.is_timestamp(kind) else None
        micros = column.cast(pa.timestamp("us", zone), safe=False).cast("int64")
        return read_numbers(name, micros) / 1e6
    codes, numbers = convert_words(encode(column), partial(to_time, name))
    return np.array(numbers, np.float64)[codes]
