"""What `predict` is asked: lists as serialized `ExampleListWithContext`, of a table or of record files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.encoding import RowError, is_missing, to_id
from tfr_moe.errors import UserError
from tfr_moe.row_encoding import EncodedRow, RowEncoder
from tfr_moe.schema import FeatureSchema
from tfr_moe.wire import ids_entry, list_record

from . import progress as listening
from .gathering import GatherLists, MakeWholeLists
from .lists import ListReader, is_records, read_records
from .running import is_embedded
from .sources import Input, SourceRows, formats, get_source
from .sources.files import ReadFiles, check_columns, match
from .sources.settings import parse
from .transforms.counting import COUNTS, CountingDoFn
from .transforms.grouping import GatherList, RankedList
from .transforms.parsing import REJECTS, ParseRows

Asked = tuple[tuple[str, tuple[int, int], tuple[str, ...]], bytes]
"""((list id, (file, record), item ids), serialized list); (0, 0) for lists of a table."""


@dataclass(frozen=True)
class PredictOptions:
    """The options of `predict`.

    Attributes:
        model: folder of a SavedModel whose default signature takes serialized lists.
        input: a path or pattern. Files ending in `.tfrecord` or `.tfrecord.gz` hold lists; any other
            is a table, of which the source makes rows.
        schema: of the rows, or of the lists. Labels, weight and time need not be there.
        out: the file to make; its ending is one of `scores.FORMATS`.
        item_id: column of a table, or feature of the items, that tells items apart.
        source: name of the source of rows; None is a table of one row an item, as `search-logs`.
        settings: options of the source, `key=value`.
        batch_size: lists that are scored at a time.
        max_list_size: longer lists of a table are cut to the items shown first.
        overwrite: replace `out` if it exists.
        beam_args: arguments for Beam.
    """

    model: str | Path
    input: str
    schema: FeatureSchema
    out: str | Path
    item_id: str
    source: str | None = None
    settings: tuple[str, ...] = ()
    batch_size: int = 128
    max_list_size: int = 1000
    overwrite: bool = False
    beam_args: tuple[str, ...] = ()


class ScoringEncoder:
    """Rows -> `EncodedRow`s without labels, the item's id in place of those for vocabularies."""

    def __init__(self, schema: FeatureSchema, item_id: str):
        self._encode = RowEncoder(schema, labelled=False)
        self._item_id = item_id

    def __call__(self, row: Mapping[str, Any]) -> EncodedRow:
        """Encodes one row.

        Raises:
            RowError: naming the column at fault.
        """
        value = row.get(self._item_id)
        if is_missing(value):
            raise RowError(f"column {self._item_id!r}: a value is required")
        found = self._encode(row)
        return found._replace(
            context=(found.context[0], ()),
            example=(found.example[0], (to_id(self._item_id, value),)),
        )


class _FromTable(beam.PTransform):
    """Rows of a source -> `Asked`, with rejects and counts."""

    def __init__(self, options: PredictOptions, given: Input):
        super().__init__()
        self._options, self._given = options, given

    def expand(self, pipeline: beam.Pipeline) -> dict[str, Any]:
        options = self._options
        gather = GatherList(options.max_list_size)
        folder = runs_folder(options) if is_embedded(pipeline.pipeline) else None
        sourced = pipeline | "Read" >> self._given.rows
        batches = sourced.batches if isinstance(sourced, SourceRows) else sourced
        encoder: Callable[[FeatureSchema], Any] = partial(ScoringEncoder, item_id=options.item_id)
        parsed = batches | "Parse" >> beam.ParDo(
            ParseRows(options.schema, gather, encoder)
        ).with_outputs(COUNTS, REJECTS, main="lists")
        made = (
            parsed.lists
            | "Gather" >> GatherLists(gather, folder)
            | "MakeLists" >> MakeWholeLists(gather, folder, 1)
        )
        rejects, counts = [parsed[REJECTS]], [parsed[COUNTS], made[COUNTS]]
        if isinstance(sourced, SourceRows):
            rejects.append(sourced.rejects)
            counts.append(sourced.counts)
        return {
            "asked": made.lists | "Record" >> beam.Map(_record, list_id=options.schema.list_id),
            "rejects": rejects | "AllRejects" >> beam.Flatten(),
            "counts": counts | "SourceCounts" >> beam.Flatten(),
        }


def _record(ranked: RankedList, list_id: str) -> Asked:
    bodies = [body for body, _ in ranked.items]
    context = ranked.context[0] + ids_entry(list_id)([ranked.list_id])
    items = tuple([ids[0] for _, ids in ranked.items])
    return (ranked.list_id, (0, 0), items), list_record(bodies, context)


class _ReadLists(CountingDoFn):
    """(index, path, size) of a TFRecord file -> `Asked`."""

    def __init__(self, schema: FeatureSchema, item_id: str):
        self._schema, self._item_id = schema, item_id

    def setup(self) -> None:
        self._read = ListReader(self._schema, self._item_id)

    def process(self, file: tuple[int, str, int]) -> Iterator[Asked]:
        index, path, size = file
        for number, record in read_records(path, size, listening.advance):
            try:
                list_id, items = self._read(record)
            except UserError as error:
                raise UserError(f"{path}, record {number}: {error}") from None
            self.tally["rows", "read"] += len(items)
            yield (list_id, (index, number), tuple(items)), record


class _FromLists(beam.PTransform):
    """TFRecord files -> `Asked`, with counts; there are no rejects."""

    def __init__(self, options: PredictOptions, sizes: dict[str, int]):
        super().__init__()
        self._options = options
        self._files = [(index, *entry) for index, entry in enumerate(sizes.items())]

    def expand(self, pipeline: beam.Pipeline) -> dict[str, Any]:
        options = self._options
        read = (
            pipeline
            | beam.Create(self._files, reshuffle=False)
            | beam.Reshuffle()
            | beam.ParDo(_ReadLists(options.schema, options.item_id)).with_outputs(
                COUNTS, main="asked"
            )
        )
        return {"asked": read.asked, "rejects": None, "counts": read[COUNTS]}


def partial_folder(out: Path) -> Path:
    """Where everything is until the scores are complete."""
    return out.parent / f".{out.name}.partial-{os.getpid()}"


def runs_folder(options: PredictOptions) -> str:
    """Folder for sorted runs."""
    return str(partial_folder(Path(os.path.abspath(options.out))) / "runs")


def asked_lists(options: PredictOptions) -> tuple[beam.PTransform, list[str], int]:
    """What is asked: a transform to a mapping of `asked`, `rejects` (or None) and `counts`, the names of
    the files and their size.

    Raises:
        UserError: if the input can't work: no file, a column that is missing, an unknown source.
    """
    if options.source is None and is_records(options.input):
        sizes = match(options.input)
        return _FromLists(options, sizes), list(sizes), sum(sizes.values())
    given = _table(options) if options.source in (None, "search-logs") else _sourced(options)
    return _FromTable(options, given), given.files, given.total_bytes


def _table(options: PredictOptions) -> Input:
    sizes, schema = match(options.input), options.schema
    needed = [schema.list_id, options.item_id, *(feature.name for feature in schema.features)]
    for path in sizes:
        check_columns(path, formats.columns(path), list(dict.fromkeys(needed)))
    return Input(ReadFiles(sizes, formats.read), list(sizes), sum(sizes.values()))


def _sourced(options: PredictOptions) -> Input:
    assert options.source is not None
    source = get_source(options.source)
    settings = parse(source.options, list(options.settings), source.name)
    return source(options.input, options.schema, settings)
