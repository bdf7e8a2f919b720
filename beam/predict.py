"""Scores, or vectors, of all items of a table or of record files by an exported model.

    table -> GroupRows -> MakeLists -> record \\
                                               RunInference -> rows -> one file
    files of ExampleListWithContext ----------/
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference

from tfr_moe.beam.inference import SavedModel
from tfr_moe.beam.manifest import Counts, WriteCounts, WriteRejects, take_counts
from tfr_moe.beam.rows import COUNTS, CountingDoFn
from tfr_moe.beam.runner import advance, reporting, running
from tfr_moe.beam.score_files import ScoredList, ScoreFiles, concatenate
from tfr_moe.beam.sorted_groups import UseGroups
from tfr_moe.beam.sources.files import ReadFiles, columns, match, read, records
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
from tfr_moe.elwc.tfrecord import ListIds, check_checksums, is_tfrecord
from tfr_moe.elwc.values import RowError, is_missing, to_id
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.io import working_directory

__all__ = ["PredictOptions", "predict"]

_PARTS = 16
_SCORES, _VECTORS = "scores", "vectors"

Request = tuple[tuple[str, tuple[int, int], tuple[str, ...]], bytes]
"""((list ID, (file, record), item IDs), serialized list); (0, 0) for lists of a table."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of `predict`.

    Attributes:
        model: folder of a SavedModel whose default signature takes serialized lists.
        input: path or pattern. Files that end in `.tfrecord` or `.tfrecord.gz` hold lists; anything
            else is a table, which the source turns into rows.
        schema: of the rows or lists. Labels, weight and time may be missing.
        out: file to create; its ending is one of `score_files.FORMATS`.
        item_id: column of a table, or feature of the items, that identifies an item.
        vectors: column for the vectors of a model that returns `vectors` [B, L, d], instead of its
            scores.
        source: name of a source; None for a table with one row per item, as `search-logs`.
        settings: options of another source, `key=value`.
        source_modules: modules to import first, which register sources.
        batch_size: lists scored per call.
        max_list_size: longer lists of a table keep the items shown first.
        overwrite: replace `out` if it exists.
        beam_args: arguments for Beam.
    """

    model: str | Path
    input: str
    schema: FeatureSchema
    out: str | Path
    item_id: str
    vectors: str | None = None
    source: str | None = None
    settings: tuple[str, ...] = ()
    source_modules: tuple[str, ...] = ()
    batch_size: int = 128
    max_list_size: int = 1000
    overwrite: bool = False
    beam_args: tuple[str, ...] = ()


def predict(options: PredictOptions, progress: ProgressCallback | None = None) -> dict[str, int]:
    """Scores all lists and writes `options.out`, which appears only when it is complete.

    A file of vectors can be joined to a log, see `join` of the source `search-logs`.

    Invalid rows go to `<out>.rejects.jsonl` with file, line and reason. The same input gives the
    same file on any runner.

    Args:
        options: model, input, schema and output.
        progress: as for `build`.

    Returns:
        Numbers of rows `read`, `written`, `rejected` and `cut`, with read = written + rejected +
        cut, and of `lists`.

    Raises:
        UserError: for invalid input, in one line.
    """
    check_checksums()
    load_source_modules(options.source_modules)
    out = Path(os.path.abspath(options.out))
    files = ScoreFiles(out, options.vectors)
    with _working_folder(out, options.overwrite) as folder:
        requests = _requests(options)
        with (
            reporting(progress, requests.total_bytes, _PARTS),
            running(options.beam_args, folder) as pipeline,
        ):
            _assemble(pipeline, options, requests, folder, files)
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
    if out.is_dir():
        raise UserError(f"out {out}: is a folder, expected a file")
    if out.exists() and not overwrite:
        raise UserError(f"out {out}: already exists; choose another name or set overwrite")
    with working_directory(out) as folder:
        (folder / "rejects").mkdir()
        yield folder


def _assemble(
    pipeline: beam.Pipeline,
    options: PredictOptions,
    requests: _Requests,
    folder: Path,
    files: ScoreFiles,
) -> None:
    output = _VECTORS if options.vectors else _SCORES
    handler = KeyedModelHandler(ScoreLists(str(options.model), output, options.batch_size))
    collections = pipeline | "Lists" >> requests.read
    scored = (
        collections["requests"]
        | "Score" >> RunInference(handler)
        | "KeyByPart" >> beam.ParDo(_KeyByPart()).with_outputs(COUNTS, main="scored")
    )

    def write(part: int, found: Any) -> int:
        files.write_part(folder / f"part-{part:05d}", map(itemgetter(3), found))
        advance(1, "write")
        return part

    _ = scored.scored | "Write" >> UseGroups(write, itemgetter(0, 1, 2))
    if "rejects" in collections:
        rejects = WriteRejects(requests.files, str(folder / "rejects"))
        _ = collections["rejects"] | "WriteRejects" >> rejects
    _ = (collections["counts"], scored[COUNTS]) | "WriteCounts" >> WriteCounts(str(folder))


def _totals(options: PredictOptions, counts: Counts) -> dict[str, int]:
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
    return found


class ScoreLists(ModelHandler[bytes, list[Any], SavedModel]):
    """Serialized `ExampleListWithContext` -> outputs of its items, followed by padding.

    The signature returns [B, L] or [B, L, d], L the length of the longest list of the batch.

    Args:
        folder: of the SavedModel.
        output: name of the output; a model without `scores` may call its only output otherwise.
        batch_size: lists per call.
    """

    def __init__(self, folder: str, output: str, batch_size: int):
        super().__init__()
        self._folder, self._output, self._batch_size = folder, output, batch_size

    def load_model(self) -> SavedModel:
        """Loads the model, once on each worker."""
        return SavedModel(self._folder, "a list")

    def run_inference(
        self,
        batch: Sequence[bytes],
        model: SavedModel,
        inference_args: Mapping[str, Any] | None = None,
    ) -> list[list[Any]]:
        """Returns the outputs of a batch.

        Raises:
            UserError: if the model rejects a list, or returns no such output.
        """
        outputs = model(batch)
        if self._output in outputs:
            return outputs[self._output]
        (name, *more) = outputs
        if more or self._output == _VECTORS or name == _VECTORS:
            raise UserError(
                f"model {self._folder}: returns no {self._output}, but {', '.join(outputs)}"
            )
        return outputs[name]

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """Fixes the batch size, so that results are reproducible."""
        return {"min_batch_size": self._batch_size, "max_batch_size": self._batch_size}

    def get_metrics_namespace(self) -> str:
        """Returns the namespace of Beam's metrics."""
        return "tfr_moe"


class _KeyByPart(CountingDoFn):
    """(key of `Request`, outputs) -> (part, (hash, list ID, (file, record), `ScoredList`))."""

    def process(self, answer: tuple[Any, Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        (list_id, origin, items), outputs = answer
        self.tally["lists",] += 1
        self.tally["rows", "written"] += len(items)
        number = list_hash(list_id, 0, "scores")
        scored = ScoredList(list_id, items, outputs[: len(items)])
        yield number * _PARTS >> 64, (number, list_id, origin, scored)


class _Requests(NamedTuple):
    """The lists to score.

    Attributes:
        read: transform from the pipeline to a mapping of `requests`, `counts` and, for a table,
            `rejects`.
        files: names of the files.
        total_bytes: their size as stored.
    """

    read: beam.PTransform
    files: list[str]
    total_bytes: int


def _requests(options: PredictOptions) -> _Requests:
    """Returns the lists to score.

    Raises:
        UserError: for invalid input: no file, a missing column, an unknown source.
    """
    if options.settings and options.source in (None, "search-logs"):
        name = options.settings[0].partition("=")[0]
        raise UserError(
            f"setting {name!r}: does not apply to predict, which reads the rows of a table as they "
            "are; apply it when the table is made, or name another source"
        )
    if options.source is None and is_tfrecord(options.input):
        sizes = match(options.input)
        return _Requests(_FromRecords(options, list(sizes)), list(sizes), sum(sizes.values()))
    if options.source in (None, "search-logs"):
        table = _table(options)
    else:
        source = get_source(options.source or "")
        settings = parse_options(source.options, options.settings, source.name)
        table = source(options.input, options.schema, settings)
    return _Requests(_FromTable(options, table), table.files, table.total_bytes)


def _table(options: PredictOptions) -> Input:
    sizes, schema = match(options.input), options.schema
    needed = [schema.list_id, options.item_id, *(feature.name for feature in schema.features)]
    for path in sizes:
        check_columns(path, columns(path), list(dict.fromkeys(needed)))
    return Input(ReadFiles(sizes, read), list(sizes), sum(sizes.values()))


class _ItemEncoder:
    """Rows -> `EncodedRow`s without labels, with the item ID in place of the IDs to count."""

    def __init__(self, schema: FeatureSchema, item_id: str):
        self._encode = RowEncoder(schema, labelled=False)
        self._item_id = item_id

    def __call__(self, row: Mapping[str, Any]) -> EncodedRow:
        value = row.get(self._item_id)
        if is_missing(value):
            raise RowError(f"column {self._item_id!r}: a value is required")
        encoded = self._encode(row)
        return encoded._replace(
            context=(encoded.context[0], ()),
            example=(encoded.example[0], (to_id(self._item_id, value),)),
        )


class _FromTable(beam.PTransform):
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
        made = grouped.lists | "MakeLists" >> MakeLists(combine, min_list_size=1)
        return {
            "requests": made.lists | "Record" >> beam.Map(_request, list_id=schema.list_id),
            "rejects": grouped.rejects,
            "counts": (grouped.counts, made[COUNTS]) | "TableCounts" >> beam.Flatten(),
        }


def _request(ranked: RankedList, list_id: str) -> Request:
    bodies = [body for body, _ in ranked.items]
    context = ranked.context[0] + ids_entry(list_id)([ranked.list_id])
    items = tuple([ids[0] for _, ids in ranked.items])
    return (ranked.list_id, (0, 0), items), list_record(bodies, context)


class _FromRecords(beam.PTransform):
    """Pipeline -> requests of the lists of TFRecord files, with counts."""

    def __init__(self, options: PredictOptions, paths: list[str]):
        super().__init__()
        self._read = _ReadLists(options.schema, options.item_id)
        self._files = list(enumerate(paths))

    def expand(self, pipeline: beam.Pipeline) -> dict[str, Any]:
        lists = (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.Reshuffle()
            | beam.ParDo(self._read).with_outputs(COUNTS, main="requests")
        )
        return {"requests": lists.requests, "counts": lists[COUNTS]}


class _ReadLists(CountingDoFn):
    """(index, path) of a TFRecord file -> `Request`."""

    def __init__(self, schema: FeatureSchema, item_id: str):
        self._schema, self._item_id = schema, item_id

    def setup(self) -> None:
        self._ids = ListIds(self._schema, self._item_id)

    def process(self, file: tuple[int, str]) -> Iterator[Request]:
        index, path = file
        for number, record in records(path):
            try:
                list_id, items = self._ids(record)
            except UserError as error:
                raise UserError(f"{path}, record {number}: {error}") from None
            self.tally["rows", "read"] += len(items)
            yield (list_id, (index, number), tuple(items)), record
