"""Files of any file system that Beam supports: finding, opening and reading them in parallel.

Rows come from CSV, TSV, JSON lines or Parquet; sources of other formats read `lines`.
"""

from __future__ import annotations

import glob
import gzip
import io
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from tfr_moe.beam.rows import RawRow, RowColumns
from tfr_moe.beam.runner import advance
from tfr_moe.beam.sources import parquet_rows
from tfr_moe.beam.sources.csv_rows import CsvReader, CsvRow
from tfr_moe.elwc.columns import Columns
from tfr_moe.elwc.values import is_valid_text
from tfr_moe.errors import UserError

_BATCH = 500
_SAMPLE = 1000
_TEXT = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ALLOWED = ".csv, .tsv, .jsonl, .ndjson or .json, each plain or .gz, and .parquet or .pq"
Reader = Callable[[str, int], Iterator[Any]]
"""Yields the rows of a file, given its path and its index in `Input.files`; can be pickled."""


def match(pattern: str, argument: str = "input") -> dict[str, int]:
    """Returns the sorted paths matching a pattern, or several separated by commas, and their sizes.

    The name of an existing file or folder stands for itself, whatever characters it has. A
    UserError names the `argument` and the pattern that matches no file.
    """
    sizes = _matched(pattern, argument)
    if not sizes:
        for part in (part.strip() for part in pattern.split(",")):
            matches = _matched(part, argument)
            if not matches:
                reason = "is a folder; name its files" if os.path.isdir(part) else "no file matches"
                raise UserError(f"{argument} {part}: {reason}")
            sizes.update(matches)
    return dict(sorted(sizes.items()))


def _matched(pattern: str, argument: str) -> dict[str, int]:
    if os.path.isfile(pattern):
        return {pattern: os.path.getsize(pattern)}
    folder, name = os.path.split(pattern)
    # Beam finds no pattern without a folder, nor below one whose name has special characters.
    if not folder or (glob.escape(folder) != folder and os.path.isdir(folder)):
        paths = glob.glob(os.path.join(glob.escape(folder), name))
        return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
    try:
        matches = FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{argument} {pattern}: cannot be searched ({reason})") from error
    return {m.path: m.size_in_bytes for m in matches}


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, decompressing gzip.

    Raises:
        UserError: if the file cannot be read or its gzip is corrupt, also while it is being read.
    """
    try:
        # Beam's own decompression does not notice a truncated file.
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            zipped = path.lower().endswith(".gz")
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if zipped else raw
    except EOFError as error:
        raise UserError(f"{path}: the gzip file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: corrupt gzip file ({error})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def text_of(file: IO[bytes]) -> io.TextIOWrapper:
    """Returns the file as UTF-8 text; invalid bytes become lone surrogates, see `is_valid_text`."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _reported(rows: Iterator[Any], file: IO[bytes], every: int = 1000) -> Iterator[Any]:
    """Yields the same rows and reports the stored bytes read for them."""
    stored = file.fileobj if isinstance(file, gzip.GzipFile) else file
    # The rows may close the file when they end.
    size, before = stored.seek(0, io.SEEK_END), stored.seek(0)
    for count, row in enumerate(rows, start=1):
        yield row
        if count % every == 0:
            advance((position := stored.tell()) - before)
            before = position
    advance(size - before)


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text without its end) of each line that is not blank."""
    with open_file(path) as file:
        for number, text in _reported(enumerate(text_of(file), start=1), file):
            if not text.isspace():
                yield number, text.rstrip("\r\n")


class ReadFiles(beam.PTransform):
    """Reads files on several workers into batches of some hundreds of rows.

    Args:
        paths: of the files; `RawRow.file` is the index of the path.
        reader: reads one file.
        first: index of the first of these files.
        in_batches: whether the reader already yields batches, whose rows belong together.
    """

    def __init__(
        self, paths: Iterable[str], reader: Reader, first: int = 0, in_batches: bool = False
    ):
        super().__init__()
        self._files = list(enumerate(paths, start=first))
        self._reader, self._in_batches = reader, in_batches

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Reads the files."""
        reader, in_batches = self._reader, self._in_batches

        def batches(index: int, path: str) -> Iterator[Any]:
            rows = reader(path, index)
            return rows if in_batches else _batches(rows)

        return (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.Reshuffle()
            | beam.FlatMapTuple(batches).with_output_types(Any if in_batches else list[RawRow])
        )


class ReadRows(beam.PTransform):
    """Reads tables on several workers, also one large Parquet file, by its row groups.

    Args:
        paths: of CSV, TSV, JSON lines or Parquet files; `RawRow.file` is the index of the path.
        first: index of the first of these files.
        by_column: whether batches may be `RowColumns`; else all are lists of `RawRow`.
    """

    def __init__(self, paths: Iterable[str], first: int = 0, by_column: bool = False):
        super().__init__()
        self._files = list(enumerate(paths, start=first))
        self._by_column = by_column

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Reads the tables."""
        batches = (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.FlatMapTuple(_parts)
            | beam.Reshuffle()
            | beam.FlatMapTuple(read_batches).with_output_types(Any)
        )
        if self._by_column:
            return batches
        return batches | beam.FlatMap(_in_rows).with_output_types(list[RawRow])


def _parts(index: int, path: str) -> Iterator[tuple[str, int, str, parquet_rows.RowGroups | None]]:
    """Yields arguments of `read_batches`: one part of a file, or several of a Parquet file."""
    kind = file_format(path)
    if kind != "parquet":
        yield path, index, kind, None
        return
    with open_file(path) as file:
        parts = parquet_rows.parts(path, file)
    for groups in parts:
        yield path, index, kind, groups


def _in_rows(batch: list[RawRow] | RowColumns) -> Iterator[list[RawRow]]:
    return iter([batch]) if isinstance(batch, list) else _batches(_rows(batch))


def _rows(batch: list[RawRow] | RowColumns) -> Iterator[RawRow]:
    if isinstance(batch, list):
        return iter(batch)
    rows = enumerate(batch.rows, start=batch.line)
    return (RawRow(batch.file, line, row) for line, row in rows)


def _batches(rows: Iterator[RawRow]) -> Iterator[list[RawRow]]:
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch


def file_format(path: str) -> str:
    """Returns `csv`, `tsv`, `jsonl` or `parquet`, by the ending of the name; else a UserError."""
    name = path.lower()
    if name.endswith(_PARQUET):
        return "parquet"
    for ending, kind in _TEXT.items():
        if name.removesuffix(".gz").endswith(ending):
            return kind
    raise UserError(f"{path}: unknown file type; the name must end in {_ALLOWED}")


def columns(path: str, kind: str | None = None) -> set[str]:
    """Returns the columns of a file: of its header, Parquet schema, or first 1,000 JSON rows.

    Raises:
        UserError: if the file is empty, cannot be read, or has a column twice.
    """
    kind = kind or file_format(path)
    if kind == "jsonl":
        return columns_of_rows(path, read(path, 0, kind))
    with open_file(path) as file:
        if kind == "parquet":
            return _distinct(path, parquet_rows.names(path, file))
        return set(_header(path, CsvReader(text_of(file), _DELIMITERS[kind])))


def columns_of_rows(path: str, rows: Iterator[RawRow]) -> set[str]:
    """Returns the columns of the first 1,000 rows; a UserError with the reason if none is valid."""
    names: set[str] = set()
    reason = "the file is empty"
    for row in itertools.islice(rows, _SAMPLE):
        if row.error is None:
            names.update(row.values)
        else:
            reason = f"line {row.line}: {row.error}"
    if not names:
        raise UserError(f"{path}: {reason}")
    return names


def _header(path: str, rows: Iterator[CsvRow]) -> list[str]:
    line, fields, _, error = next(rows, CsvRow(1, [], ""))
    header = [name.strip() for name in fields]
    if not any(header):
        raise UserError(f"{path}: the file is empty; expected a header with the column names")
    if error is not None:
        raise UserError(f"{path}, line {line}: header: {error}")
    _distinct(path, header)
    return header


def _distinct(path: str, names: list[str]) -> set[str]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: column {twice[0]!r} occurs twice in the header")
    return set(names)


def read(path: str, index: int, kind: str | None = None) -> Iterator[RawRow]:
    """Yields the rows of a file in order.

    `index` is the number of the file, for `RawRow.file`; `kind` is `csv`, `tsv`, `jsonl` or
    `parquet`, by default decided by the ending of the name.

    Raises:
        UserError: if the file cannot be read to its end; the message names the file.
    """
    return itertools.chain.from_iterable(map(_rows, read_batches(path, index, kind)))


def read_batches(
    path: str, index: int, kind: str | None = None, groups: parquet_rows.RowGroups | None = None
) -> Iterator[list[RawRow] | RowColumns]:
    """Yields the rows of `read` in batches, by column for Parquet and where CSV is simple.

    Those of a Parquet file can be limited to some row groups.
    """
    kind = kind or file_format(path)
    with open_file(path) as file:
        if kind == "parquet":
            yield from parquet_rows.batches(path, index, file, groups)
        elif kind == "jsonl":
            yield from _batches(_reported(_read_jsonl(index, file), file))
        else:
            batches = _csv_batches(path, index, file, _DELIMITERS[kind])
            yield from _reported(batches, file, every=1)


def _raw_row(index: int, row: CsvRow, header: list[str]) -> RawRow:
    line, fields, text, error = row
    if not is_valid_text(text):
        return RawRow(index, line, repr(text), "not valid UTF-8")
    if error is not None:
        return RawRow(index, line, text, error)
    if len(fields) == len(header):
        return RawRow(index, line, dict(zip(header, fields, strict=True)))
    return RawRow(index, line, text, f"expected {len(header)} fields, got {len(fields)}")


def _csv_batches(
    path: str, index: int, file: IO[bytes], delimiter: str
) -> Iterator[list[RawRow] | RowColumns]:
    rows = CsvReader(text_of(file), delimiter)
    header = _header(path, rows)
    while True:
        first = rows.number + 1
        if columns := rows.columns(_BATCH):
            yield RowColumns(index, first, Columns(dict(zip(header, columns, strict=True))))
            continue
        batch = []
        for row in rows:
            batch.append(_raw_row(index, row, header))
            if not rows.again:
                break
        if not batch:
            return
        yield batch


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} occurs twice")
    return row


def _json_row(line: str) -> dict[str, Any] | str:
    """Returns the row, or why the line is none."""
    if not is_valid_text(line):
        return "not valid UTF-8"
    try:
        row = json.loads(line, object_pairs_hook=_unique)
    except RecursionError:
        return "not valid JSON (nested too deeply)"
    except ValueError as error:
        return f"not valid JSON ({error})"
    # An escape can be half of a surrogate pair, which no UTF-8 text can hold.
    if ("\\ud" in line or "\\uD" in line) and not is_valid_text(
        json.dumps(row, ensure_ascii=False)
    ):
        return "not valid JSON (half of a surrogate pair)"
    return row if isinstance(row, dict) else f"expected a JSON object, got {type(row).__name__}"


def _read_jsonl(index: int, file: IO[bytes]) -> Iterator[RawRow]:
    for line, text in enumerate(text_of(file), start=1):
        if text.isspace():
            continue
        row = _json_row(text)
        if isinstance(row, dict):
            yield RawRow(index, line, row)
        else:
            yield RawRow(index, line, repr(text), row)
