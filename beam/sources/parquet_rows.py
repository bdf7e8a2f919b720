"""Rows of Parquet files, by column, and groups of them that several workers read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from tfr_moe.beam.rows import RowColumns
from tfr_moe.beam.runner import advance
from tfr_moe.elwc.columns import Columns
from tfr_moe.utils.failures import reading

_BATCH = 4096
_PART = 65_536  # rows that are worth a worker's turn


class RowGroups(NamedTuple):
    """Consecutive row groups of a file.

    Attributes:
        numbers: of the groups, from 0.
        line: number of their first row, from 1.
    """

    numbers: list[int]
    line: int


def names(path: str, file: IO[bytes]) -> list[str]:
    """Returns the names of the columns; a UserError names the path of a broken file."""
    with reading(f"{path}: the Parquet file"):
        return parquet.ParquetFile(file).schema_arrow.names


def parts(path: str, file: IO[bytes]) -> list[RowGroups]:
    """Divides all row groups; an empty file is one part. Errors as for `names`."""
    with reading(f"{path}: the Parquet file"):
        about = parquet.ParquetFile(file).metadata
    groups, end = [RowGroups([], 1)], 1
    for number in range(about.num_row_groups):
        if end - groups[-1].line >= _PART:
            groups.append(RowGroups([], end))
        groups[-1].numbers.append(number)
        end += about.row_group(number).num_rows
    return groups


def batches(
    path: str, index: int, file: IO[bytes], groups: RowGroups | None = None
) -> Iterator[RowColumns]:
    """Yields the rows of some groups, or all, and reports their share of the stored bytes as read.

    `index` is the number of the file, for `RowColumns.file`. Errors as for `names`.
    """
    size = file.seek(0, io.SEEK_END)
    with reading(f"{path}: the Parquet file"):
        table = parquet.ParquetFile(file)
        rows = table.metadata.num_rows
        if not rows:
            advance(size)
        numbers, line = groups or (None, 1)
        # Threads cost more than they save for batches that small.
        for batch in table.iter_batches(_BATCH, row_groups=numbers, use_threads=False):
            columns = zip(batch.schema.names, map(_values, batch.columns), strict=True)
            yield RowColumns(index, line, Columns(dict(columns)))
            # The position in the file is not the progress: it is read by column.
            before, line = line, line + batch.num_rows
            advance(size * (line - 1) // rows - size * (before - 1) // rows)


def _values(column: pa.Array) -> list[Any]:
    # Arrow takes twenty times as long for a dictionary that it has not decoded first.
    decoded = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    return decoded.to_pylist()
