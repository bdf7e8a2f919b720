"""Rows of CSV, TSV, JSON lines and Parquet files, with the line of each row."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from tfr_moe.errors import UserError

from . import RawRow
from .files import is_sound, open_file, text_of, told

_JSON_SAMPLE = 1000
_PARQUET_BATCH = 4096
_TEXT = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_PARQUET = (".parquet", ".pq")
ALLOWED = ".csv, .tsv, .jsonl, .ndjson or .json, each plain or .gz, and .parquet or .pq"


def file_format(path: str) -> str:
    """`csv`, `tsv`, `jsonl` or `parquet`, by the name's ending.

    Raises:
        UserError: for any other ending.
    """
    name = path.lower()
    if name.endswith(_PARQUET):
        return "parquet"
    for ending, kind in _TEXT.items():
        if name.removesuffix(".gz").endswith(ending):
            return kind
    raise UserError(f"{path}: not a known file type; the name must end in {ALLOWED}")


def columns(path: str, kind: str | None = None) -> set[str]:
    """The columns of a file: of the header, the Parquet schema, or the first 1,000 JSON rows.

    Raises:
        UserError: if the file is empty, can't be read, or has a column twice.
    """
    kind = kind or file_format(path)
    with open_file(path) as file:
        if kind == "parquet":
            return set(_parquet_file(path, file).schema_arrow.names)
        text = text_of(file)
        if kind in _DELIMITERS:
            return set(_header(path, csv.reader(text, delimiter=_DELIMITERS[kind])))
        seen: set[str] = set()
        line = ""
        for line in itertools.islice(text, _JSON_SAMPLE):
            row = _json_row(line)
            if isinstance(row, dict):
                seen.update(row)
        if not line:
            raise UserError(f"{path}: the file is empty")
        return seen


def _header(path: str, reader: Any) -> list[str]:
    header = [name.strip() for name in next(reader, [])]
    if not any(header):
        raise UserError(f"{path}: the file is empty, a header with the column names is expected")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise UserError(f"{path}: column {twice[0]!r} stands twice in the header")
    return header


def read(
    path: str, index: int, size: int, report: Callable[[int], None], kind: str | None = None
) -> Iterator[RawRow]:
    """The rows of a file in order.

    Args:
        path: the file.
        index: its number, which each row carries.
        size: its size as stored.
        report: called now and then with the number of stored bytes that have been read since.
        kind: `csv`, `tsv`, `jsonl` or `parquet`; by default the name's ending decides.

    Raises:
        UserError: if the file can't be read to its end; the message names the file.
    """
    kind = kind or file_format(path)
    with open_file(path) as file:
        if kind in _DELIMITERS:
            rows = _read_csv(path, index, file, _DELIMITERS[kind])
        else:
            rows = (_read_jsonl if kind == "jsonl" else _read_parquet)(path, index, file)
        # A Parquet file is read from its end, so that its place says nothing about progress.
        if kind == "parquet":
            yield from rows
            report(size)
        else:
            yield from told(rows, file, size, report)


def _read_csv(path: str, index: int, file: IO[bytes], delimiter: str) -> Iterator[RawRow]:
    broken = False

    def watched(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal broken
        for line in text:
            broken = broken or not (line.isascii() or is_sound(line))
            yield line

    reader = csv.reader(watched(text_of(file)), delimiter=delimiter)
    header = _header(path, reader)
    width = len(header)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield RawRow(index, line, "", f"not a CSV row ({error})")
            continue
        if broken:
            broken = False
            yield RawRow(index, line, repr(fields), "not valid UTF-8")
        elif len(fields) == width:
            yield RawRow(index, line, dict(zip(header, fields, strict=True)))
        elif fields:
            reason = f"expected {width} fields, got {len(fields)}"
            yield RawRow(index, line, repr(fields), reason)


def _json_row(line: str) -> dict[str, Any] | str:
    """The row, or why it is none."""
    if not is_sound(line):
        return "not valid UTF-8"
    try:
        row = json.loads(line)
    except ValueError as error:
        return f"not valid JSON ({error})"
    return row if isinstance(row, dict) else f"expected a JSON object, got {type(row).__name__}"


def _read_jsonl(path: str, index: int, file: IO[bytes]) -> Iterator[RawRow]:
    for line, text in enumerate(text_of(file), start=1):
        if text.isspace():
            continue
        row = _json_row(text)
        if isinstance(row, dict):
            yield RawRow(index, line, row)
        else:
            yield RawRow(index, line, repr(text), row)


@contextmanager
def _parquet_errors(path: str) -> Iterator[None]:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from error
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a sound Parquet file ({reason})") from error


def _parquet_file(path: str, file: IO[bytes]) -> Any:
    with _parquet_errors(path):
        from pyarrow import parquet

        return parquet.ParquetFile(file)


def _read_parquet(path: str, index: int, file: IO[bytes]) -> Iterator[RawRow]:
    batches = _parquet_file(path, file).iter_batches(_PARQUET_BATCH)
    line = 0
    while True:
        with _parquet_errors(path):
            batch = next(batches, None)
            rows = batch.to_pylist() if batch is not None else None
        if rows is None:
            return
        for row in rows:
            line += 1
            yield RawRow(index, line, row)
