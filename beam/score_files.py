"""Files of scores or vectors: CSV or Parquet with one row per item."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet

from tfr_moe.elwc.values import LIST_SEPARATOR
from tfr_moe.errors import UserError

FORMATS = (".csv", ".csv.gz", ".parquet")
_ROWS = 1 << 16


ScoredList = tuple[str, Sequence[str], Sequence[tuple[Any, ...]]]
"""ID of a list, IDs of its items in the order of the list, and for each item its scores, which it
is ranked by the first of, or its vector."""


class ScoreFiles:
    """Writes a file in parts and joins them; the ending of its path decides the format.

    The columns are `list_id`, `item_id`, `score`, `score_<task>` for each of `tasks`, and `rank`
    (best first; ties keep the order of the list), or `list_id`, `item_id` and a vector under the
    name `vectors`. CSV separates the numbers of a vector by `|`. Raises a UserError for an ending
    that is none of `FORMATS`.
    """

    def __init__(self, path: Path, vectors: str | None = None, tasks: Sequence[str] = ()):
        endings = [ending for ending in FORMATS if path.name.endswith(ending)]
        if not endings:
            raise UserError(f"out {path}: the name must end in {', '.join(FORMATS)}")
        self._ending = endings[-1]
        self._ranked = vectors is None
        scores = ["score", *(f"score_{task}" for task in tasks), "rank"]
        self._columns = ["list_id", "item_id", *([vectors] if vectors else scores)]

    def write_part(self, path: Path, lists: Iterable[ScoredList]) -> None:
        """Writes one part."""
        rows = (row for scored in lists for row in self._rows(scored))
        if self._ending == ".parquet":
            self._write_parquet(path, rows)
            return
        with open(path, "wb") as raw, _compressed(raw, self._ending) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            writer = csv.writer(text, lineterminator="\n")
            writer.writerows(map(_as_text, row) for row in rows)
            text.detach()

    def _rows(self, scored: ScoredList) -> Iterator[tuple[Any, ...]]:
        list_id, items, outputs = scored
        if not self._ranked:
            yield from ((list_id, item, *out) for item, out in zip(items, outputs, strict=True))
            return
        best = sorted(range(len(items)), key=lambda index: -outputs[index][0])
        for rank, index in enumerate(best, start=1):
            yield list_id, items[index], *outputs[index], rank

    def join(self, parts: Sequence[Path], path: Path) -> Path:
        """Concatenates parts; returns the path of the result."""
        if self._ending == ".parquet":
            self._join_parquet(parts, path)
            return path
        with open(path, "wb") as out:
            with _compressed(out, self._ending) as file:
                file.write((",".join(self._columns) + "\n").encode())
            concatenate(parts, out)
        return path

    def _arrow_schema(self) -> pa.Schema:
        vectors = [pa.list_(pa.float32())]
        scores = [*[pa.float32()] * (len(self._columns) - 3), pa.int32()]
        types = [pa.string(), pa.string(), *(scores if self._ranked else vectors)]
        return pa.schema(zip(self._columns, types, strict=True))

    def _write_parquet(self, path: Path, rows: Iterator[tuple[Any, ...]]) -> None:
        schema = self._arrow_schema()
        with parquet.ParquetWriter(path, schema) as writer:
            while batch := list(itertools.islice(rows, _ROWS)):
                columns = [list(column) for column in zip(*batch, strict=True)]
                writer.write_table(pa.table(columns, schema=schema))

    def _join_parquet(self, parts: Sequence[Path], path: Path) -> None:
        with parquet.ParquetWriter(path, self._arrow_schema()) as writer:
            for stored in map(parquet.ParquetFile, parts):
                for group in range(stored.num_row_groups):
                    writer.write_table(stored.read_row_group(group))


def concatenate(paths: Iterable[Path], out: IO[bytes]) -> None:
    """Copies files into `out`, one after the other."""
    for path in paths:
        with open(path, "rb") as part:
            shutil.copyfileobj(part, out)


def _compressed(file: IO[bytes], ending: str) -> Any:
    # The gzip header has neither name nor time: the same scores give the same bytes.
    return gzip.GzipFile("", "wb", 6, file, 0) if ending.endswith(".gz") else nullcontext(file)


def _as_text(value: Any) -> Any:
    # Nine digits read back as the same float32.
    if isinstance(value, float):
        return f"{value:.9g}"
    return LIST_SEPARATOR.join(map(_as_text, value)) if isinstance(value, list) else value
