"""Search logs: files with one row per shown item, the columns named by the schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .. import progress
from . import Input, RawRow, formats, register

_BATCH = 500


@register("search-logs")
def search_logs(pattern: str, schema: FeatureSchema) -> Input:
    """Rows of all files that match a pattern: CSV with a header, JSON lines or Parquet.

    Raises:
        UserError: if no file matches, or one is of an unknown type, is empty, can't be read, or lacks
            a column of the schema.
    """
    found = _match(pattern)
    needed = [c for c in (*schema.role_columns(), schema.time) if c]
    needed += [feature.name for feature in schema.features]
    for path in found:
        _check_columns(path, needed)
    return Input(_ReadFiles(found), list(found), sum(found.values()))


def _match(pattern: str) -> dict[str, int]:
    """Sorted paths with their sizes."""
    try:
        matches = FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--input {pattern}: cannot be searched ({reason})") from error
    if not matches:
        raise UserError(f"--input {pattern}: no file matches")
    return {m.path: m.size_in_bytes for m in sorted(matches, key=lambda match: match.path)}


def _check_columns(path: str, needed: list[str]) -> None:
    present = formats.columns(path)
    missing = [name for name in needed if name not in present]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        there = ", ".join(sorted(present)) or "none"
        raise UserError(f"{path}: column {listed} of the schema is missing; there are: {there}")


class _ReadFiles(beam.PTransform):
    def __init__(self, sizes: dict[str, int]):
        super().__init__()
        self._files = [(index, *entry) for index, entry in enumerate(sizes.items())]

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.Reshuffle()
            | beam.FlatMapTuple(_batches).with_output_types(list[RawRow])
        )


def _batches(index: int, path: str, size: int) -> Iterator[list[RawRow]]:
    rows = formats.read(path, index, size, progress.advance)
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch
