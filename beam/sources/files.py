"""Files of any file system that Beam knows: finding them, opening them, reading them in parallel."""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, Protocol, cast

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .. import progress
from . import RawRow

_BATCH = 500
Report = Callable[[int], None]
"""Told now and then how many stored bytes have been read since."""


class Reader(Protocol):
    """Reads the rows of one file; a function at module level, or a partial of one."""

    def __call__(self, path: str, index: int, size: int, report: Report) -> Iterator[RawRow]:
        """Yields the rows of `path`, the file number `index`, of `size` stored bytes."""


def match(pattern: str, flag: str = "--input") -> dict[str, int]:
    """Sorted paths that match a pattern, or several with commas between them, with their sizes.

    Raises:
        UserError: if a pattern matches no file.
    """
    found = _matched(pattern, flag)
    if not found:
        for part in (part.strip() for part in pattern.split(",")):
            matches = _matched(part, flag)
            if not matches:
                raise UserError(f"{flag} {part}: no file matches")
            found.update(matches)
    return dict(sorted(found.items()))


def _matched(pattern: str, flag: str) -> dict[str, int]:
    try:
        matches = FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{flag} {pattern}: cannot be searched ({reason})") from error
    return {m.path: m.size_in_bytes for m in matches}


def exists(path: str) -> bool:
    """Whether there is such a file."""
    return bool(FileSystems.exists(path))


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, unpacking gzip; what is wrong with it is the user's news.

    Raises:
        UserError: if the file can't be read or its gzip is not sound, also while it is being read.
    """
    try:
        # Beam's own decompression does not notice that a file is cut off.
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            zipped = path.lower().endswith(".gz")
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if zipped else raw
    except EOFError as error:
        raise UserError(f"{path}: the gzip file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: not a sound gzip file ({error})") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error


def text_of(file: IO[bytes]) -> io.TextIOWrapper:
    """The file as UTF-8 text; bytes that are none become lone surrogates, see `is_sound`."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")


def is_sound(text: str) -> bool:
    """Whether the text was valid UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def first_line(path: str) -> str:
    """The first line of a text file, without its end.

    Raises:
        UserError: if the file is empty or can't be read.
    """
    with open_file(path) as file:
        line = text_of(file).readline()
    if not line:
        raise UserError(f"{path}: the file is empty")
    return line.rstrip("\r\n")


def told(rows: Iterator[Any], file: IO[bytes], size: int, report: Report) -> Iterator[Any]:
    """The same rows; `report` hears of the bytes that were read for them, `size` in all."""
    stored = file.fileobj if isinstance(file, gzip.GzipFile) else file
    before = 0
    for count, row in enumerate(rows, start=1):
        yield row
        if count % 1000 == 0:
            place = stored.tell()
            report(place - before)
            before = place
    report(size - before)


def lines(path: str, size: int, report: Report) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its end) of each line that is not blank."""
    with open_file(path) as file:
        numbered = enumerate(text_of(file), start=1)
        for number, text in told(numbered, file, size, report):
            if not text.isspace():
                yield number, text.rstrip("\r\n")


def check_columns(path: str, present: set[str], needed: list[str]) -> None:
    """Refuses a file that lacks a column.

    Raises:
        UserError: naming the file, the missing columns and those there are.
    """
    missing = [name for name in needed if name not in present]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        there = ", ".join(sorted(present)) or "none"
        raise UserError(f"{path}: column {listed} of the schema is missing; there are: {there}")


def schema_columns(schema: FeatureSchema) -> list[str]:
    """All columns that a schema names: roles, time, features."""
    named = [column for column in (*schema.role_columns(), schema.time) if column]
    return named + [feature.name for feature in schema.features]


class ReadFiles(beam.PTransform):
    """The rows of files, read by several workers, in batches of some hundreds.

    Args:
        sizes: path -> stored bytes; a row's `file` is the place of its path.
        reader: reads one file.
        first: number of the first of these files.
        one_by_one: the reader gives whole batches, whose rows belong together.
    """

    def __init__(
        self, sizes: dict[str, int], reader: Any, first: int = 0, one_by_one: bool = False
    ):
        super().__init__()
        self._read = _as_they_are if one_by_one else _batches
        self._files = [(index, *entry) for index, entry in enumerate(sizes.items(), start=first)]
        self._reader = reader

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Makes the batches."""
        return (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.Reshuffle()
            | beam.FlatMap(partial(self._read, reader=self._reader)).with_output_types(list[RawRow])
        )


def _as_they_are(file: tuple[int, str, int], reader: Any) -> Iterator[list[RawRow]]:
    index, path, size = file
    yield from reader(path, index, size, progress.advance)


def _batches(file: tuple[int, str, int], reader: Reader) -> Iterator[list[RawRow]]:
    index, path, size = file
    rows = reader(path, index, size, progress.advance)
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch
