"""Files of scores: one row an item with list id, item id, score and rank; CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from tfr_moe.errors import UserError

COLUMNS = ("list_id", "item_id", "score", "rank")
FORMATS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")
_ROWS = 1 << 16


class ScoredList(NamedTuple):
    """One list with its scores.

    Attributes:
        list_id: its id.
        items: ids of its items, as they stood in the list.
        scores: a score each.
    """

    list_id: str
    items: Sequence[str]
    scores: Sequence[float]

    def rows(self) -> Iterator[tuple[str, str, float, int]]:
        """(list id, item id, score, rank), best first; equal scores keep the order of the list."""
        best = sorted(range(len(self.items)), key=lambda at: -self.scores[at])
        for rank, at in enumerate(best, start=1):
            yield self.list_id, self.items[at], self.scores[at], rank


def format_of(path: Path) -> str:
    """The format by the name's ending.

    Raises:
        UserError: for an ending that is none of `FORMATS`.
    """
    for ending in FORMATS:
        if path.name.endswith(ending):
            return ending
    raise UserError(f"--out {path}: the name must end in {', '.join(FORMATS)}")


def write_part(part: int, lists: Iterable[ScoredList], folder: str, kind: str) -> int:
    """Writes one part of the scores; returns the number of rows."""
    path = part_path(folder, part)
    rows = (row for scored in lists for row in scored.rows())
    if kind == ".parquet":
        return _write_parquet(path, rows)
    count = 0
    with _opened(path, kind) as file:
        text = io.TextIOWrapper(cast("IO[bytes]", file), "utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        for list_id, item, score, rank in rows:
            count += 1
            if kind.startswith(".csv"):
                writer.writerow((list_id, item, f"{score:.9g}", rank))
            else:
                shown = dict(zip(COLUMNS, (list_id, item, _rounded(score), rank), strict=True))
                text.write(json.dumps(shown, ensure_ascii=False) + "\n")
        text.flush()
        text.detach()
    return count


def _rounded(score: float) -> float:
    """The shortest decimal number that reads back as the same float32."""
    return float(f"{score:.9g}")


def _opened(path: Path, kind: str) -> Any:
    # No name and no time in the header: the same scores are the same bytes.
    return (
        gzip.GzipFile("", "wb", 6, open(path, "wb"), 0) if kind.endswith(".gz") else path.open("wb")
    )


def part_path(folder: str | Path, part: int) -> Path:
    """Where a part of the scores is."""
    return Path(folder, f"part-{part:05d}")


def join_parts(folder: Path, parts: int, kind: str) -> Path:
    """Puts the parts that there are one after the other; returns the path of the whole."""
    found = [path for path in (part_path(folder, at) for at in range(parts)) if path.exists()]
    whole = folder / f"whole{kind}"
    if kind == ".parquet":
        _join_parquet(whole, found)
        return whole
    with open(whole, "wb") as out:
        if kind.startswith(".csv"):
            header = (",".join(COLUMNS) + "\n").encode()
            out.write(gzip.compress(header, mtime=0) if kind.endswith(".gz") else header)
        for path in found:
            with open(path, "rb") as part:
                shutil.copyfileobj(part, out)
    return whole


def _arrow_schema() -> Any:
    import pyarrow as pa

    kinds = (pa.string(), pa.string(), pa.float32(), pa.int32())
    return pa.schema(list(zip(COLUMNS, kinds, strict=True)))


def _write_parquet(path: Path, rows: Iterator[tuple[Any, ...]]) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    schema, count = _arrow_schema(), 0
    with parquet.ParquetWriter(path, schema) as writer:
        while batch := list(itertools.islice(rows, _ROWS)):
            count += len(batch)
            columns = [list(column) for column in zip(*batch, strict=True)]
            writer.write_table(pa.table(columns, schema=schema))
    return count


def _join_parquet(whole: Path, parts: list[Path]) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(whole, _arrow_schema()) as writer:
        for path in parts:
            stored = parquet.ParquetFile(path)
            for group in range(stored.num_row_groups):
                writer.write_table(stored.read_row_group(group))
