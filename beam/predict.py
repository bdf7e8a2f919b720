"""Scores, or vectors, of all items of a table by an exported model.

table -> group_rows -> make_lists -> batches -> records -> model -> rows -> one file
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.utils.shared import Shared

from tfr_moe.beam.manifest import (
    Counts,
    named,
    rows_of,
    take_counts,
    write_counts,
    write_rejects,
)
from tfr_moe.beam.rows import COUNTS, CountingDoFn
from tfr_moe.beam.runner import advance, reporting, running
from tfr_moe.beam.score_files import ScoredList, ScoreFiles, concatenate
from tfr_moe.beam.sorted_groups import use_groups
from tfr_moe.beam.sources.files import ReadRows, columns, match
from tfr_moe.beam.sources.registry import Input, check_columns
from tfr_moe.beam.transforms.make_lists import (
    CombineList,
    RankedList,
    group_rows,
    make_lists,
    value_encoder,
)
from tfr_moe.elwc.splits import list_hash
from tfr_moe.elwc.values import required_id
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.failures import load_saved_model, reason_of
from tfr_moe.utils.io import check_free_file, working_directory

MAX_LIST_SIZE = 1000
"""Longer lists keep the items shown first."""
_PARTS = 16

Request = tuple[tuple[str, tuple[str, ...]], bytes]
"""((list ID, item IDs), serialized list)."""


def predict(
    model: str | Path | Callable[[], Any],
    input_pattern: str,
    schema: FeatureSchema,
    out: str | Path,
    item_id: str,
    *,
    vectors: str | None = None,
    tasks: tuple[str, ...] = (),
    batch_size: int = 128,
    overwrite: bool = False,
    beam_args: tuple[str, ...] = (),
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Scores all lists of a table and writes `out`, which appears only when it is complete.

    A file of vectors can be joined to a log, see `join` of the source `search-logs`. Invalid rows
    go to `<out>.rejects.jsonl` with file, line and reason. The same input gives the same file in
    this process. Other runners make other batches, in which scores differ by rounding.

    Args:
        model: folder of a SavedModel whose default signature takes serialized lists, or a function
            that each worker calls for what takes them, strings [B], and returns outputs by name.
        input_pattern: path or pattern of files with one row per item: CSV, TSV, JSON lines or
            Parquet.
        schema: of the rows. Labels, weight and time may be missing.
        out: file to create; its ending is one of `score_files.FORMATS`.
        item_id: column that identifies an item.
        vectors: column for the vectors of a model that returns `vectors` [B, L, d], instead of its
            scores.
        tasks: tasks that the model returns `scores_<task>` for, beside `scores`.
        batch_size: lists scored per call.
        overwrite: replace `out` if it exists.
        beam_args: arguments for Beam.
        progress: as for `build`.

    Returns:
        Numbers of rows `read`, `written`, `rejected` and `cut`, with read = written + rejected +
        cut, and of `lists`; `rejects` by reason.

    Raises:
        UserError: for invalid input, in one line.
    """
    out = Path(os.path.abspath(out))
    files = ScoreFiles(out, vectors, tasks)
    table = _table(input_pattern, schema, item_id)
    check_free_file(out, overwrite, table.files)
    outputs = ("vectors",) if vectors else ("scores", *(f"scores_{task}" for task in tasks))
    score = _ScoreLists(model, outputs)
    with working_directory(out) as folder:
        with (
            reporting(progress, table.total_bytes, _PARTS),
            running(beam_args, folder) as pipeline,
        ):
            made, counts = _read_lists(pipeline, table, schema, item_id, folder)
            scored = (
                made
                | "Record" >> beam.Map(_request, list_id=schema.list_id)
                | "Batch" >> beam.BatchElements(batch_size, batch_size)
                | "Score" >> beam.ParDo(score).with_outputs(COUNTS, main="scored")
            )
            write = partial(_write_part, files=files, folder=folder)
            _ = scored.scored | "Write" >> use_groups(write, lambda entry: (entry[0], entry[1][0]))
            _ = (*counts, scored[COUNTS]) | "WriteCounts" >> write_counts(folder)
        totals = _totals(input_pattern, take_counts(folder))
        rejects, beside = sorted(folder.glob("rejects-*")), Path(f"{out}.rejects.jsonl")
        if rejects:
            with open(folder / "rejects", "wb") as whole:
                concatenate(rejects, whole)
            Path(whole.name).replace(beside)
        else:
            beside.unlink(missing_ok=True)  # those of the file that is replaced
        files.join(sorted(folder.glob("part-*")), folder / "whole").replace(out)
    return totals


def _read_lists(
    pipeline: beam.Pipeline, table: Input, schema: FeatureSchema, item_id: str, folder: Path
) -> tuple[beam.PCollection, tuple[beam.PCollection, ...]]:
    """Returns the lists of a table, whose items have their ID last, and counts."""
    combine = CombineList(MAX_LIST_SIZE)
    encoder = partial(
        value_encoder, column=item_id, scope="example", read=required_id, labelled=False
    )
    rows = pipeline | "Read" >> table.rows
    groups, rejects, read = rows | "GroupRows" >> group_rows(schema, combine, encoder)
    made = groups | "MakeLists" >> make_lists(schema, combine)
    _ = rejects | "WriteRejects" >> write_rejects(table.files, folder)
    return made.lists, (read, made[COUNTS])


def _write_part(
    part: int, lists: Iterable[tuple[int, ScoredList]], files: ScoreFiles, folder: Path
) -> None:
    files.write_part(folder / f"part-{part:05d}", map(itemgetter(1), lists))
    advance(1, "write")


def _totals(input_pattern: str, counts: Counts) -> dict[str, Any]:
    rows, rejects = rows_of(counts), named(counts, "rejects")
    if not rows["read"]:
        raise UserError(f"input {input_pattern}: there are no rows")
    if not rows["written"]:
        raise UserError(f"input {input_pattern}: no row matches the schema ({'; '.join(rejects)})")
    return {**rows, "lists": counts["lists",], "rejects": rejects}


def _signature(folder: Path) -> Callable[[Any], Any]:
    """The default signature of a SavedModel."""
    if not (folder / "saved_model.pb").is_file():
        raise UserError(f"model {folder}: there is no saved_model.pb on this worker")
    saved = load_saved_model(folder)  # owns the variables
    (name,) = saved.signatures["serving_default"].structured_input_signature[1]
    return lambda batch: saved.signatures["serving_default"](**{name: batch})


class _ScoreLists(CountingDoFn):
    """Batches of `Request` -> (part, (hash, `ScoredList`)).

    The model takes strings [B] and returns [B, L] or [B, L, d] for each output, L the length of the
    longest list of the batch.
    """

    def __init__(self, model: str | Path | Callable[[], Any], outputs: Sequence[str]):
        self._model, self._outputs = model, tuple(outputs)
        self._name = "the model" if callable(model) else f"model {model}"
        self._shared = Shared()

    def setup(self) -> None:
        # Threads of a worker share the model.
        self._function = self._shared.acquire(self._load)

    def _load(self) -> Callable[[Any], Any]:
        function = self._model() if callable(self._model) else _signature(Path(self._model))
        return lambda batch: function(batch)

    def process(self, batch: list[Request]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        lists = zip(*self._call([record for _, record in batch]), strict=True)
        for ((list_id, items), _), outputs in zip(batch, lists, strict=True):
            self.tally["lists",] += 1
            self.tally["items", "scored"] += len(items)
            number = list_hash(list_id, 0, "scores")
            of_items = list(zip(*outputs, strict=True))[: len(items)]
            yield number * _PARTS >> 64, (number, (list_id, items, of_items))

    def _call(self, records: list[bytes]) -> list[Any]:
        """Returns the outputs of a batch, with an entry for each list."""
        from tfr_moe._compat import tf

        try:
            outputs: Mapping[str, Any] = self._function(tf.constant(records, tf.string))
        except tf.errors.OpError as error:
            raise UserError(f"{self._name} rejects a list: {reason_of(error)}") from None
        if missing := [name for name in self._outputs if name not in outputs]:
            available = ", ".join(sorted(outputs))
            raise UserError(f"{self._name} returns no {missing[0]}, but {available}")
        return [outputs[name].numpy().tolist() for name in self._outputs]


def _table(input_pattern: str, schema: FeatureSchema, item_id: str) -> Input:
    """Returns the rows of a table, whose columns are checked here."""
    sizes = match(input_pattern)
    needed = [schema.list_id, item_id, *(feature.name for feature in schema.log_features)]
    for path in sizes:
        check_columns(path, columns(path), list(dict.fromkeys(needed)))
    return Input(ReadRows(sizes, by_column=True), list(sizes), sum(sizes.values()))


def _request(ranked: RankedList, list_id: str) -> Request:
    items = tuple([ids[-1] for _, ids in ranked.items])
    return (ranked.list_id, items), ranked.record(list_id)
