"""Scores, or vectors, of all items of a table by an exported model.

table -> GroupRows -> MakeLists -> record -> RunInference -> rows -> one file
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference

from tfr_moe.beam.manifest import Counts, WriteCounts, WriteRejects, take_counts
from tfr_moe.beam.rows import COUNTS, CountingDoFn
from tfr_moe.beam.runner import advance, reporting, running
from tfr_moe.beam.score_files import ScoredList, ScoreFiles, concatenate
from tfr_moe.beam.sorted_groups import UseGroups
from tfr_moe.beam.sources.files import ReadFiles, columns, match, read
from tfr_moe.beam.sources.registry import (
    Input,
    check_columns,
    get_source,
    load_source_modules,
    parse_options,
)
from tfr_moe.beam.transforms.make_lists import CombineList, GroupRows, MakeLists, RankedList
from tfr_moe.beam.transforms.shards import list_hash
from tfr_moe.elwc.encoder import EncodedRow, RowEncoder
from tfr_moe.elwc.values import RowError, is_missing, to_id
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.digests import check_model_files
from tfr_moe.utils.failures import load_saved_model, reason_of
from tfr_moe.utils.io import check_free_file, working_directory

__all__ = ["PredictOptions", "predict"]

_PARTS = 16
_SCORES, _VECTORS = "scores", "vectors"

Request = tuple[tuple[str, tuple[str, ...]], bytes]
"""((list ID, item IDs), serialized list)."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of `predict`.

    Attributes:
        model: folder of a SavedModel whose default signature takes serialized lists, or a function
            that each worker calls for what takes them, strings [B], and returns outputs by name.
        input: path or pattern of the table, which the source turns into rows.
        schema: of the rows. Labels, weight and time may be missing.
        out: file to create; its ending is one of `score_files.FORMATS`.
        item_id: column that identifies an item.
        vectors: column for the vectors of a model that returns `vectors` [B, L, d], instead of its
            scores.
        tasks: tasks that the model returns `scores_<task>` for, beside `scores`.
        source: name of a source; None for a table with one row per item, as `search-logs`.
        settings: options of another source, `key=value`.
        source_modules: modules to import first, which register sources.
        batch_size: lists scored per call.
        max_list_size: longer lists keep the items shown first.
        overwrite: replace `out` if it exists.
        beam_args: arguments for Beam.
    """

    model: str | Path | Callable[[], Any]
    input: str
    schema: FeatureSchema
    out: str | Path
    item_id: str
    vectors: str | None = None
    tasks: tuple[str, ...] = ()
    source: str | None = None
    settings: tuple[str, ...] = ()
    source_modules: tuple[str, ...] = ()
    batch_size: int = 128
    max_list_size: int = 1000
    overwrite: bool = False
    beam_args: tuple[str, ...] = ()


def predict(options: PredictOptions, progress: ProgressCallback | None = None) -> dict[str, Any]:
    """Scores all lists and writes `options.out`, which appears only when it is complete.

    A file of vectors can be joined to a log, see `join` of the source `search-logs`.

    Invalid rows go to `<out>.rejects.jsonl` with file, line and reason. The same input gives the
    same file on any runner.

    Args:
        options: model, input, schema and output.
        progress: as for `build`.

    Returns:
        Numbers of rows `read`, `written`, `rejected` and `cut`, with read = written + rejected +
        cut, and of `lists`; `rejects` by reason.

    Raises:
        UserError: for invalid input, in one line.
    """
    load_source_modules(options.source_modules)
    out = Path(os.path.abspath(options.out))
    files = ScoreFiles(out, options.vectors, options.tasks)
    with _working_folder(out, options.overwrite) as folder:
        table = _table(options)
        with (
            reporting(progress, table.total_bytes, _PARTS),
            running(options.beam_args, folder) as pipeline,
        ):
            _assemble(pipeline, options, table, folder, files)
        totals = _totals(options, take_counts(folder))
        rejects = sorted((folder / "rejects").iterdir())
        if rejects:
            with open(folder / "rejects.jsonl", "wb") as whole:
                concatenate(rejects, whole)
            Path(whole.name).replace(f"{out}.rejects.jsonl")
        files.join(sorted(folder.glob("part-*")), folder / "whole").replace(out)
    return totals


@contextmanager
def _working_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    check_free_file(out, overwrite)
    with working_directory(out) as folder:
        (folder / "rejects").mkdir()
        yield folder


def _assemble(
    pipeline: beam.Pipeline,
    options: PredictOptions,
    table: Input,
    folder: Path,
    files: ScoreFiles,
) -> None:
    scores = (_SCORES, *(f"{_SCORES}_{task}" for task in options.tasks))
    outputs = (_VECTORS,) if options.vectors else scores
    handler = KeyedModelHandler(ScoreLists(options.model, outputs, options.batch_size))
    collections = pipeline | "Lists" >> _Requests(options, table)
    scored = (
        collections["requests"]
        | "Score" >> RunInference(handler)
        | "KeyByPart" >> beam.ParDo(_KeyByPart()).with_outputs(COUNTS, main="scored")
    )

    def write(part: int, found: Any) -> int:
        files.write_part(folder / f"part-{part:05d}", map(itemgetter(2), found))
        advance(1, "write")
        return part

    _ = scored.scored | "Write" >> UseGroups(write, itemgetter(0, 1))
    rejects = WriteRejects(table.files, str(folder / "rejects"))
    _ = collections["rejects"] | "WriteRejects" >> rejects
    _ = (collections["counts"], scored[COUNTS]) | "WriteCounts" >> WriteCounts(str(folder))


def _totals(options: PredictOptions, counts: Counts) -> dict[str, Any]:
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
        raise UserError(f"input {options.input}: there are no rows")
    if not found["written"]:
        reasons = "; ".join(sorted(str(key[1]) for key in counts if key[0] == "rejects"))
        raise UserError(f"input {options.input}: no row fits the schema ({reasons})")
    rejects = {str(key[1]): number for key, number in counts.items() if key[0] == "rejects"}
    return {**found, "rejects": rejects}


class _Model:
    """A loaded model, which takes strings [B].

    Args:
        model: as in `PredictOptions`, on a path that the workers have.

    Raises:
        UserError: if the folder has no SavedModel.
    """

    def __init__(self, model: str | Path | Callable[[], Any]):
        self._function = model() if callable(model) else _signature(Path(model))

    def __call__(self, batch: Sequence[bytes]) -> dict[str, Any]:
        """Returns the outputs for a batch, by name, as lists with one entry per element.

        Raises:
            UserError: if the model rejects an element, with TensorFlow's message.
        """
        from tfr_moe._compat import tf

        try:
            outputs: Mapping[str, Any] = self._function(tf.constant(list(batch), tf.string))
        except tf.errors.OpError as error:
            raise UserError(f"the model rejects a list: {reason_of(error)}") from None
        return {name: output.numpy().tolist() for name, output in outputs.items()}


def _signature(folder: Path) -> Callable[[Any], Any]:
    """The default signature of a SavedModel."""
    if not (folder / "saved_model.pb").is_file():
        raise UserError(f"model {folder}: there is no saved_model.pb on this worker")
    check_model_files(folder)
    saved = load_saved_model(folder)  # owns the variables
    (name,) = saved.signatures["serving_default"].structured_input_signature[1]
    return lambda batch: saved.signatures["serving_default"](**{name: batch})


class ScoreLists(ModelHandler[bytes, list[Any], _Model]):
    """Serialized `ExampleListWithContext` -> a tuple of outputs per item, followed by padding.

    The signature returns [B, L] or [B, L, d], L the length of the longest list of the batch.

    Args:
        model: as in `PredictOptions`.
        outputs: their names; a model without `scores` may call its only output otherwise.
        batch_size: lists per call.
    """

    def __init__(
        self, model: str | Path | Callable[[], Any], outputs: Sequence[str], batch_size: int
    ):
        super().__init__()
        self._model, self._outputs, self._batch_size = model, tuple(outputs), batch_size

    def load_model(self) -> _Model:
        """Loads the model, once on each worker."""
        return _Model(self._model)

    def run_inference(
        self,
        batch: Sequence[bytes],
        model: _Model,
        inference_args: Mapping[str, Any] | None = None,
    ) -> list[list[Any]]:
        """Returns the outputs of a batch.

        Raises:
            UserError: if the model rejects a list, or returns no such output.
        """
        found = model(batch)
        names = self._outputs
        if names == (_SCORES,) and len(found) == 1 and _VECTORS not in found:
            names = tuple(found)
        missing = [name for name in names if name not in found]
        if missing:
            raise UserError(f"the model returns no {missing[0]}, but {', '.join(sorted(found))}")
        lists = zip(*(found[name] for name in names), strict=True)
        return [list(zip(*outputs, strict=True)) for outputs in lists]

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """Fixes the batch size, so that results are reproducible."""
        return {"min_batch_size": self._batch_size, "max_batch_size": self._batch_size}

    def get_metrics_namespace(self) -> str:
        """Returns the namespace of Beam's metrics."""
        return "tfr_moe"


class _KeyByPart(CountingDoFn):
    """(key of `Request`, outputs) -> (part, (hash, list ID, `ScoredList`))."""

    def process(self, answer: tuple[Any, Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        (list_id, items), outputs = answer
        self.tally["lists",] += 1
        self.tally["rows", "written"] += len(items)
        number = list_hash(list_id, 0, "scores")
        scored = ScoredList(list_id, items, outputs[: len(items)])
        yield number * _PARTS >> 64, (number, list_id, scored)


def _table(options: PredictOptions) -> Input:
    """Returns the rows of the source.

    Raises:
        UserError: for invalid input: no file, a missing column, an unknown source.
    """
    if options.settings and options.source in (None, "search-logs"):
        name = options.settings[0].partition("=")[0]
        raise UserError(
            f"setting {name!r}: does not apply to predict, which reads the rows of a table as they "
            "are; apply it when the table is made, or name another source"
        )
    if options.source in (None, "search-logs"):
        return _search_log(options)
    source = get_source(options.source or "")
    settings = parse_options(source.options, options.settings, source.name)
    return source(options.input, options.schema, settings)


def _search_log(options: PredictOptions) -> Input:
    sizes, schema = match(options.input), options.schema
    needed = [schema.list_id, options.item_id, *(feature.name for feature in schema.log_features)]
    for path in sizes:
        check_columns(path, columns(path), list(dict.fromkeys(needed)))
    return Input(ReadFiles(sizes, read), list(sizes), sum(sizes.values()))


class _ItemEncoder:
    """Rows -> `EncodedRow`s without labels, with the item ID behind the IDs to count."""

    def __init__(self, schema: FeatureSchema, item_id: str):
        self._encode = RowEncoder(schema, labelled=False)
        self._item_id = item_id

    def __call__(self, row: Mapping[str, Any]) -> EncodedRow:
        value = row.get(self._item_id)
        if is_missing(value):
            raise RowError(f"column {self._item_id!r}: a value is required")
        encoded = self._encode(row)
        return encoded._replace(
            example=(encoded.example[0], (*encoded.example[1], to_id(self._item_id, value))),
        )


class _Requests(beam.PTransform):
    """Pipeline -> requests of the rows of a table, with rejects and counts."""

    def __init__(self, options: PredictOptions, table: Input):
        super().__init__()
        self._options, self._table = options, table

    def expand(self, pipeline: beam.Pipeline) -> dict[str, Any]:
        schema = self._options.schema
        combine = CombineList(self._options.max_list_size)
        encoder = partial(_ItemEncoder, item_id=self._options.item_id)
        rows = pipeline | "Read" >> self._table.rows
        grouped = rows | "GroupRows" >> GroupRows(schema, combine, encoder)
        made = grouped.lists | "MakeLists" >> MakeLists(combine, 1, schema)
        return {
            "requests": made.lists | "Record" >> beam.Map(_request, list_id=schema.list_id),
            "rejects": grouped.rejects,
            "counts": (grouped.counts, made[COUNTS]) | "TableCounts" >> beam.Flatten(),
        }


def _request(ranked: RankedList, list_id: str) -> Request:
    bodies = [body for body, _ in ranked.items]
    context = ranked.context[0] + ids_entry(list_id)([ranked.list_id])
    items = tuple([ids[-1] for _, ids in ranked.items])
    return (ranked.list_id, items), list_record(bodies, context)
