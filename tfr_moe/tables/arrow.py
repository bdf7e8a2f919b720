"""Converts data frames and log files to Arrow tables."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from io import BufferedReader
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, json, parquet, types

from tfr_moe.errors import UserError, did_you_mean

_SAMPLE = 100
_CURRENCY = r"(?:[€$£]|EUR|USD|GBP|CHF)"
_NUMBER = re.compile(
    rf"{_CURRENCY}?\s?-?\d{{1,3}}(?:[., ']?\d{{3}})*(?:[.,]\d+)?\s?{_CURRENCY}?", re.IGNORECASE
)


def are_numbers(words: Sequence[Any]) -> bool:
    """Whether distinct texts look like numbers, such as 1.099,00 €; digits alone may be IDs.

    Of many texts, less than half of them digits alone, one in ten may be another word, such as n/a
    for a missing number; of few, such as sizes with an XL, none may.
    """
    texts = [str(word).strip() for word in words[:_SAMPLE] if word]
    digits = sum(text.isdigit() for text in texts)
    numbers = sum(bool(_NUMBER.fullmatch(text)) for text in texts)
    if numbers == len(texts):
        return digits < numbers
    return digits < 0.5 * len(texts) and numbers >= 0.9 * _SAMPLE


def no_plain_number(words: Iterable[Any]) -> str | None:
    """Returns the first text that `float` does not read; blank text is missing."""
    for text in (str(word).strip() for word in words if word):
        try:
            float(text or 0)
        except ValueError:
            return text
    return None


def are_times(words: Sequence[Any]) -> bool:
    """Whether texts are ISO 8601 times."""
    try:
        texts = [str(word).strip().removesuffix(" UTC") for word in words[:_SAMPLE] if word]
        return bool([datetime.fromisoformat(text.replace("Z", "+00:00")) for text in texts])
    except ValueError:
        return False


_SHOWN = 12
_PADDED = r"^\s*0\d"
_INDEX = b"index"  # key of a table's metadata: names of the levels of a pandas index


class Ids(NamedTuple):
    """A column of IDs: `codes`, int32 [rows] or [rows, max_length], index the distinct `words`."""

    codes: NDArray[np.int32]
    words: list[Any]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without an ID, or with one of white space only."""
        return np.array([w is None or not str(w).strip() for w in self.words], bool)[self.codes]


def to_table(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns a data frame as an Arrow table, without copying what Arrow can share.

    Args:
        frame: a pandas or polars DataFrame, a pyarrow Table, or any object with
            `__arrow_c_stream__`.
        columns: the columns to convert, of which the frame may lack some; None for all.

    Raises:
        UserError: for any other object, and for a column that holds values of several types.
    """
    wanted = None if columns is None else list(dict.fromkeys(columns))
    if type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns"):
        return _from_pandas(frame, wanted)
    if not isinstance(frame, pa.Table) and hasattr(frame, "__arrow_c_stream__"):
        with suppress(pa.ArrowException):  # a single column
            frame = pa.table(frame)
    if not isinstance(frame, pa.Table):
        raise UserError(
            "a data frame must be of pandas, polars or pyarrow. "
            f"Received: {type(frame).__module__}.{type(frame).__qualname__}"
        )
    check_once(frame.column_names)
    return frame if wanted is None else frame.select([c for c in wanted if c in frame.column_names])


def _from_pandas(frame: Any, wanted: list[str] | None) -> pa.Table:
    names = [str(name) for name in frame.columns]
    check_once(names)
    chosen = names if wanted is None else [name for name in wanted if name in names]
    arrays = []
    for name in chosen:
        values = frame.iloc[:, names.index(name)]
        try:
            arrays.append(pa.Array.from_pandas(values))
        except OverflowError as error:
            raise UserError(f"column {name!r}: has integers of more than 64 bits") from error
        except pa.ArrowException as error:
            present = values.reset_index(drop=True).dropna()
            types = present.map(lambda value: Real if isinstance(value, Real) else type(value))
            others = present[types != types.iloc[0]]
            detail = f"{others.iloc[0]!r} after {present.iloc[0]!r}" if len(others) else error
            where = f"row {others.index[0]}: " if len(others) else ""
            text = f"{where}column {name!r}: has values of several types: {detail}"
            raise UserError(" ".join(text.split())) from error
    index = [str(name) for name in frame.index.names if name is not None]
    table = pa.Table.from_arrays(arrays, names=chosen)
    return table.replace_schema_metadata({_INDEX: ",".join(index)}) if index else table


def check_once(names: Sequence[str]) -> None:
    """Raises a UserError for a column name that occurs twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"column {name!r} occurs twice")


def column_of(table: pa.Table, name: str, role: str = "column") -> pa.ChunkedArray:
    """Returns a column; the UserError for a missing one lists all, and has the nearest."""
    if name not in table.column_names:
        names = table.column_names
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        hint = did_you_mean(name, names)
        if name in (table.schema.metadata or {}).get(_INDEX, b"").decode().split(","):
            raise UserError(f"{role} {name!r} is in the index of the frame; call reset_index()")
        text = f"{role} {name!r} is missing; there are: {listed or 'no columns'}"
        raise UserError(f"{text}; {hint}" if hint else text)
    column = _without_views(table.column(name))
    if is_list(column.type) and role not in ("column", "feature"):
        raise UserError(f"{role} {name!r}: has type {column.type}, expected one value per row")
    if role != "column" and not is_supported(column.type):
        raise UserError(f"{role} {name!r}: has type {column.type}, which is not supported")
    return column


def is_supported(kind: pa.DataType) -> bool:
    """Whether values of a type, or the entries of its arrays, are numbers, texts or times."""
    inner = kind.value_type if is_list(kind) or types.is_dictionary(kind) else kind
    return not (types.is_nested(inner) or isinstance(inner, pa.BaseExtensionType))


def names_of(names: str | Iterable[str]) -> list[str]:
    """One name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts the text of polars, which not all functions of Arrow take."""
    return column.cast("large_string") if str(column.type) == "string_view" else column


def is_list(kind: pa.DataType) -> bool:
    """Whether values are arrays."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def as_numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Numbers with NaN for missing values; None for a column that is not numeric.

    Integers above 2^53 are rounded, as Python's float() does.
    """
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast("uint8")
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        return None
    return column.cast("float64", safe=False).to_numpy()


def encode(column: pa.ChunkedArray) -> Ids:
    """Dictionary-encodes a column; missing values have the code of the last word, None."""
    column = _without_views(column)
    if types.is_null(column.type):  # Arrow does not unify null dictionaries
        column = column.cast("string")
    if not types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    column = column.unify_dictionaries()
    words = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
    codes = np.empty(len(column), np.int32)
    start = 0
    for chunk in column.chunks:
        indices = chunk.indices.cast("int32")
        indices = indices.fill_null(len(words)) if indices.null_count else indices
        codes[start : start + len(chunk)] = indices.to_numpy(zero_copy_only=False)
        start += len(chunk)
    return Ids(codes, [*words, None])


def read_table(path: str | Path) -> pa.Table:
    """Reads a log file: CSV or TSV with a header, JSON lines, or Parquet.

    Raises:
        UserError: if the file cannot be read, or its name has another ending.
    """
    path = Path(path)
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        if name.endswith((".parquet", ".pq")):
            return parquet.read_table(path)
        if plain.endswith((".csv", ".tsv")):
            return _read_csv(path, "\t" if plain.endswith(".tsv") else ",")
        if plain.endswith((".jsonl", ".ndjson", ".json")):
            with _opened(path) as file:
                return json.read_json(file)
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        if "Expected 1 columns" in reason:  # the header has no comma, but another row has
            reason = "the header is one column; are the columns separated by commas?"
        raise UserError(f"{path}: cannot be read ({reason})") from error
    raise UserError(
        f"{path}: unknown file type; the name must end in .csv, .tsv, .jsonl, .ndjson or .json, "
        "each plain or .gz, and .parquet or .pq"
    )


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def _read_csv(path: Path, delimiter: str) -> pa.Table:
    # As in `build`, text in any column may be quoted and span lines.
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def read(**convert: Any) -> pa.Table:
        options = csv.ConvertOptions(strings_can_be_null=True, null_values=[""], **convert)
        with _opened(path) as file:
            return csv.read_csv(file, parse_options=parse, convert_options=options)

    table = read()
    for field in table.schema:
        if types.is_binary(field.type):
            raise UserError(f"{path}: column {field.name!r} is not valid UTF-8")
    if not table.num_rows:
        raise UserError(f"{path}: has no rows")
    once = [name for name, count in Counter(table.column_names).items() if count == 1]
    integers = [name for name in once if types.is_integer(table.schema.field(name).type)]
    if not integers:
        return table
    texts = read(include_columns=integers, column_types=dict.fromkeys(integers, pa.string()))
    for name in integers:
        # 007 is no number but an ID, and differs from 7.
        if pc.any(pc.match_substring_regex(texts[name], _PADDED)).as_py():
            table = table.set_column(table.schema.get_field_index(name), name, texts[name])
    return table
