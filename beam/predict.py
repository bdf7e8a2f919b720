"""Scores of all lists of a table, or of files of lists, by an exported model.

table -> ParseRows -> GatherLists -> MakeWholeLists -> record \\
                                                                RunInference -> rows -> one file
files of ExampleListWithContext ------------------------------/
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference

from tfr_moe.errors import UserError
from tfr_moe.folders import make_folder, read_json, write_json

from . import progress as listening
from .asking import PredictOptions, asked_lists, partial_folder, runs_folder
from .inference import Scores
from .progress import Progress
from .records import check_checksums
from .rejects import write_rejects
from .running import is_embedded, running
from .scores import ScoredList, format_of, join_parts, write_part
from .shuffle import UseGroups
from .transforms.counting import COUNTS, CountingDoFn
from .transforms.splits import list_hash

_COUNTS_FILE = "counts.json"
_PARTS = 16


def predict(options: PredictOptions, progress: Progress | None = None) -> dict[str, int]:
    """Scores all lists and writes `options.out`, which is there when it is complete, or not at all.

    Rows that do not fit go to `<out>.rejects.jsonl` with file, line and reason. The same input gives
    the same file, on any runner.

    Args:
        options: model, input, schema and output.
        progress: as for `build`.

    Returns:
        Numbers of rows `read`, `written`, `rejected` and `cut`, and of `lists`; read is the sum of
        the next three.

    Raises:
        UserError: for whatever can't work, in one line.
    """
    check_checksums()
    out = Path(os.path.abspath(options.out))
    kind = format_of(out)
    with _working_folder(out, options.overwrite) as folder:
        lists, files, total_bytes = asked_lists(options)
        with (
            listening.listening(progress, total_bytes, _PARTS),
            running(options.beam_args) as pipeline,
        ):
            _assemble(pipeline, options, lists, files, str(folder), kind)
        counts = {tuple(key): number for key, number in read_json(folder / _COUNTS_FILE)}
        found = _checked(options, counts)
        rejects = sorted((folder / "rejects").iterdir())
        if rejects:
            _join(rejects, folder / "rejects.jsonl").replace(f"{out}.rejects.jsonl")
        join_parts(folder, _PARTS, kind).replace(out)
    return found


@contextmanager
def _working_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    if out.is_dir():
        raise UserError(f"--out {out}: is a folder, a file is to be written here")
    if out.exists() and not overwrite:
        raise UserError(f"--out {out}: exists already; give another name or ask to overwrite it")
    folder = partial_folder(out)
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder / "rejects", f"--out {out}", new=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _join(paths: list[Path], whole: Path) -> Path:
    with open(whole, "wb") as out:
        for path in paths:
            with open(path, "rb") as part:
                shutil.copyfileobj(part, out)
    return whole


class _Score(CountingDoFn):
    """(key of `Asked`, scores of all places) -> (part, (hash, list id, place, `ScoredList`))."""

    def process(self, answered: tuple[Any, Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        (list_id, place, items), scores = answered
        self.tally["lists",] += 1
        self.tally["rows", "written"] += len(items)
        number = list_hash(list_id, 0, "scores")
        scored = ScoredList(list_id, items, scores[: len(items)])
        yield number * _PARTS >> 64, (number, list_id, place, scored)


def _assemble(
    pipeline: beam.Pipeline,
    options: PredictOptions,
    lists: beam.PTransform,
    files: list[str],
    folder: str,
    kind: str,
) -> None:
    runs = runs_folder(options) if is_embedded(pipeline) else None
    handler = KeyedModelHandler(Scores(str(options.model), options.batch_size))
    given = pipeline | "Lists" >> lists
    scored = (
        given["asked"]
        | "Score" >> RunInference(handler)
        | "Place" >> beam.ParDo(_Score()).with_outputs(COUNTS, main="scored")
    )

    def write(part: int, found: Any) -> int:
        rows = write_part(part, map(itemgetter(3), found), folder, kind)
        listening.advance(1, "write")
        return rows

    _ = scored.scored | "Write" >> UseGroups(write, itemgetter(0, 1, 2), runs)
    if given["rejects"] is not None:
        _ = (
            given["rejects"]
            | "KeyByFile" >> beam.Map(lambda reject: (reject[0], reject))
            | "WriteRejects"
            >> UseGroups(
                partial(write_rejects, files=files, folder=str(Path(folder, "rejects"))),
                itemgetter(1, 2),
                runs,
            )
        )
    _ = (
        (given["counts"], scored[COUNTS])
        | "AllCounts" >> beam.Flatten()
        | "SumCounts" >> beam.CombinePerKey(sum)
        | "ListCounts" >> beam.combiners.ToList()
        | "WriteCounts" >> beam.Map(partial(write_json, Path(folder, _COUNTS_FILE)))
    )


def _checked(options: PredictOptions, counts: dict[tuple[Any, ...], int]) -> dict[str, int]:
    def total(kind: str) -> int:
        return sum(number for key, number in counts.items() if key[0] == kind)

    found = {
        "read": counts.get(("rows", "read"), 0),
        "written": counts.get(("rows", "written"), 0),
        "rejected": total("rejects"),
        "cut": total("cut"),
        "lists": counts.get(("lists",), 0),
    }
    if found["read"] != found["written"] + found["rejected"] + found["cut"]:
        raise AssertionError(f"rows were lost: {found}")
    if not found["read"]:
        raise UserError(f"--input {options.input}: there are no rows")
    if not found["written"]:
        reasons = "; ".join(sorted(str(key[1]) for key in counts if key[0] == "rejects"))
        raise UserError(f"--input {options.input}: no row fits the schema ({reasons})")
    return found
