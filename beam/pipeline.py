"""From a source of rows to a data-set folder: reads, groups, splits, describes, encodes and writes.

source -> ParseRows -> GatherList -> MakeLists -> split -> EncodeLists -> shards
              |                                     |
           rejects                     vocabularies and statistics
                                        (training split only)
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, read_json, write_json
from tfr_moe.schema import (
    MANIFEST_FILE,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    FeatureSchema,
    shard_file,
    vocabulary_file,
)

from . import progress as listening
from .elwc import EncodeLists
from .gathering import GatherLists, MakeWholeLists
from .manifest import manifest
from .options import BuildOptions
from .progress import Progress
from .records import check_checksums, write_shard
from .rejects import write_rejects
from .running import is_embedded, running
from .shuffle import UseGroups
from .sources import Input, Source, SourceRows, get_source
from .sources.settings import SourceOptions, parse
from .transforms.counting import COUNTS
from .transforms.grouping import GatherList
from .transforms.parsing import REJECTS, ParseRows
from .transforms.splits import AssignSplit, TimeBounds, as_json, assign_by_hash, split_by_file
from .transforms.statistics import NumericMoments
from .transforms.vocabulary import WriteVocabularies

__all__ = ["BuildOptions", "Progress", "build"]

_COUNTS_FILE = "counts.json"
_BOUNDS_FILE = "bounds.json"
_RUNS = ".runs"


def build(options: BuildOptions, progress: Progress | None = None) -> dict[str, Any]:
    """Builds the data-set folder `options.out` and returns its manifest.

    The folder appears when it is complete; a build that fails leaves nothing. The same input and seed
    give the same records in the same files.

    Args:
        options: source, input, schema, output and how to split.
        progress: called as `progress(stage, done, total)`, stage `read` in stored bytes, then `write`
            in files; silent where the pipeline runs on workers elsewhere.

    Returns:
        The manifest: see `docs/data.md`.

    Raises:
        UserError: for a source, schema, input file or option that can't work, in one line.

    Example:
        manifest = build(BuildOptions("search-logs", "logs/*.csv.gz", "schema.yaml", "data"))
    """
    check_checksums()
    source = get_source(options.source)
    settings = parse(source.options, options.settings, source.name, seed=options.seed)
    schema = _schema(options, source, settings)
    given = source(options.input, schema, settings)
    split = _split_kind(options, schema, given)
    shards = options.shards(given.total_bytes)
    with complete_folder(options.out, options.overwrite) as folder:
        with listening.listening(progress, given.total_bytes, sum(shards.values())):
            with running(options.beam_args) as pipeline:
                _assemble(pipeline, options, schema, split, given, shards, str(folder))
            _fill_up(folder, schema, shards)
            shutil.rmtree(folder / _RUNS, ignore_errors=True)
        counts = {tuple(key): count for key, count in _take(folder / _COUNTS_FILE)}
        bounds = _take(folder / _BOUNDS_FILE) if split == "time" else None
        _refuse_nothing(options, folder, counts)
        described = manifest(options, split, given, shards, counts, bounds)
        schema.save(folder / SCHEMA_FILE)
        write_json(folder / MANIFEST_FILE, described)
    return described


def _schema(options: BuildOptions, source: Source, settings: SourceOptions) -> FeatureSchema:
    if options.schema is not None:
        return FeatureSchema.load(options.schema)
    if source.schema is None:
        raise UserError(
            f"--schema: source {source.name} needs a schema, which says what the columns are"
        )
    return source.schema(options.input, settings)


def _split_kind(options: BuildOptions, schema: FeatureSchema, given: Input) -> str:
    if given.split_of is not None:
        if options.split is not None:
            raise UserError(f"split {options.split}: the files say what is for what")
        return "files"
    if options.split == "time" and schema.time is None:
        raise UserError(f"split time: the schema {options.schema} names no time column")
    return options.split or ("time" if schema.time else "hash")


def _assemble(
    pipeline: beam.Pipeline,
    options: BuildOptions,
    schema: FeatureSchema,
    split: str,
    given: Input,
    shards: dict[str, int],
    folder: str,
) -> None:
    gather = GatherList(options.max_list_size)
    runs = str(Path(folder, _RUNS)) if is_embedded(pipeline) else None
    sourced = pipeline | "Read" >> given.rows
    batches = sourced.batches if isinstance(sourced, SourceRows) else sourced
    parsed = batches | "Parse" >> beam.ParDo(ParseRows(schema, gather)).with_outputs(
        COUNTS, REJECTS, main="lists"
    )
    making = partial(MakeWholeLists, gather, runs, options.min_list_size)
    gathered = parsed.lists | "Gather" >> GatherLists(gather, runs)
    if given.split_of is not None:
        made = gathered | "MakeLists" >> making()
        placed = made.lists | "SplitByFile" >> beam.Map(split_by_file, given.split_of)
    elif split == "hash":
        made = gathered | "MakeLists" >> making()
        placed = _by_hash(made.lists, options)
    else:
        again = gathered | "MakeListsForTimes" >> making()
        bounds = _time_bounds(again.lists, options, folder)
        made = gathered | "MakeLists" >> making(after=bounds)
        placed = made.lists | "SplitByTime" >> beam.ParDo(
            AssignSplit(), bounds=beam.pvalue.AsSingleton(bounds)
        )
    encoded = placed | "Encode" >> beam.ParDo(
        EncodeLists(schema, shards, options.seed)
    ).with_outputs(COUNTS, main="records")
    _ = encoded.records | "WriteShards" >> UseGroups(
        partial(write_shard, folder=folder, shards=shards), itemgetter(0, 1), runs
    )
    training = (
        placed
        | "Training" >> beam.Filter(lambda entry: entry[0] == SPLITS[0])
        | "DropSplit" >> beam.Values()
    )
    _ = (
        training
        | "Statistics" >> beam.CombineGlobally(NumericMoments(schema))
        | "WriteStatistics" >> beam.Map(partial(write_json, Path(folder, STATISTICS_FILE)))
    )
    id_counts = training | "Vocabularies" >> WriteVocabularies(schema, folder, runs)
    rejects, counts = [parsed[REJECTS]], [parsed[COUNTS], made[COUNTS], encoded[COUNTS], id_counts]
    if isinstance(sourced, SourceRows):
        rejects.append(sourced.rejects)
        counts.append(sourced.counts)
    _ = (
        rejects
        | "AllRejects" >> beam.Flatten()
        | "KeyByFile" >> beam.Map(lambda reject: (reject[0], reject))
        | "WriteRejects"
        >> UseGroups(
            partial(write_rejects, files=given.files, folder=folder), itemgetter(1, 2), runs
        )
    )
    _ = (
        counts
        | "AllCounts" >> beam.Flatten()
        | "SumCounts" >> beam.CombinePerKey(sum)
        | "ListCounts" >> beam.combiners.ToList()
        | "WriteCounts" >> beam.Map(partial(write_json, Path(folder, _COUNTS_FILE)))
    )


def _by_hash(lists: beam.PCollection, options: BuildOptions) -> beam.PCollection:
    return lists | "SplitByHash" >> beam.Map(
        assign_by_hash,
        seed=options.seed,
        validation_fraction=options.validation_fraction,
        test_fraction=options.test_fraction,
    )


def _time_bounds(lists: beam.PCollection, options: BuildOptions, folder: str) -> beam.PCollection:
    bounds = (
        lists
        | "Times" >> beam.Map(lambda ranked: ranked.time)
        | "TimeBounds"
        >> beam.CombineGlobally(TimeBounds(options.validation_fraction, options.test_fraction))
    )
    _ = (
        bounds
        | "BoundsAsJson" >> beam.Map(as_json)
        | "WriteBounds" >> beam.Map(partial(write_json, Path(folder, _BOUNDS_FILE)))
    )
    return bounds


def _fill_up(folder: Path, schema: FeatureSchema, shards: dict[str, int]) -> None:
    """Writes the shards and vocabularies that nothing fell into, so that all names exist."""
    for split, count in shards.items():
        for number in range(count):
            if not (folder / shard_file(split, number, count)).exists():
                write_shard((split, number), [], str(folder), shards)
    for feature in schema.features:
        if feature.has_vocabulary:
            path = folder / vocabulary_file(feature.name)
            path.parent.mkdir(exist_ok=True)
            path.touch()


def _take(path: Path) -> Any:
    value = read_json(path)
    path.unlink()
    return value


def _refuse_nothing(
    options: BuildOptions, folder: Path, counts: dict[tuple[Any, ...], int]
) -> None:
    """Refuses input that leaves no list for training."""
    if not counts.get(("rows", "read")):
        found = [f"{key[1]} {key[2]}: {n}" for key, n in counts.items() if key[0] == "source"]
        why = f" ({'; '.join(sorted(found))})" if found else ""
        raise UserError(f"--input {options.input}: there are no rows{why}")
    if counts.get(("lists", SPLITS[0])):
        return
    for path in sorted(folder.glob("rejects-*.jsonl")):
        with open(path, encoding="utf-8") as file:
            first = json.loads(next(file))
        raise UserError(
            f"{first['file']}, line {first['line']}: {first['reason']}; "
            f"no row is left for training, {counts['rows', 'read']} were read"
        )
    raise UserError(
        f"--input {options.input}: no list is left for training, "
        f"min_list_size is {options.min_list_size}"
    )
