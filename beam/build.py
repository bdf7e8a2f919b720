"""Builds a data-set folder from a source of rows.

source -> group_rows -> make_lists -> split -> EncodeLists -> shards
              |                         |
           rejects        vocabularies and statistics (training split only)
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from tfr_moe.beam.manifest import (
    Counts,
    check_losses,
    first_reject,
    manifest,
    take_counts,
    write_counts,
    write_rejects,
)
from tfr_moe.beam.rows import COUNTS
from tfr_moe.beam.runner import reporting, running
from tfr_moe.beam.sorted_groups import use_groups
from tfr_moe.beam.sources.registry import (
    Input,
    Source,
    SourceOptions,
    get_source,
    load_source_modules,
)
from tfr_moe.beam.transforms.make_lists import (
    CombineList,
    EncoderFactory,
    group_rows,
    list_times,
    make_lists,
    value_encoder,
)
from tfr_moe.beam.transforms.shards import (
    AddCategories,
    EncodeLists,
    TimeBounds,
    add_empty_files,
    assigner,
    count_clicks,
    to_split,
    write_shard,
)
from tfr_moe.beam.transforms.training_tables import write_tables
from tfr_moe.elwc.categories import clicks_of_table, table_of
from tfr_moe.elwc.encoded import Labels
from tfr_moe.elwc.encoder import RowEncoder
from tfr_moe.elwc.splits import hash_bounds
from tfr_moe.errors import UserError
from tfr_moe.schema import (
    MANIFEST_FILE,
    QUERY_CATEGORIES_FILE,
    SCHEMA_FILE,
    SPLITS,
    FeatureSchema,
    description_files,
    query_categories,
    write_manifest,
)
from tfr_moe.schema.folders import check_same_schema, day_folder, days_of
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.io import atomic_directory, check_inputs_outside, plain, read_json, write_json
from tfr_moe.utils.settings import parse_options

_BOUNDS_FILE = "bounds.json"


@dataclass(frozen=True)
class BuildOptions:
    """Options of `build`.

    Attributes:
        source: name of a source, such as `search-logs`.
        input: path or glob pattern, in any file system that Beam supports.
        schema: path of the schema, YAML or JSON; None for sources with a default schema.
        out: data-set folder to create. Workers write into it, so it must be on a file system that
            they share.
        split: `time` (earliest lists for training, latest for the test) or `hash` (of the list ID);
            None means `time` if the schema names a time column, else `hash`.
        split_column: column whose values train, validation and test choose the split of a list,
            instead of `split`; the first row of a list wins.
        like: data set whose schema, vocabularies and statistics are taken; all lists are for the
            test, unless `split_column` says otherwise.
        validation_fraction: fraction of lists for validation.
        test_fraction: fraction of lists for the test.
        max_list_size: longer lists keep the items shown first; between 1 and 1000.
        max_lost: the build stops where more than this share of the rows is rejected, of the lists
            has rows that disagree about the context, or of the positives is cut by
            `max_list_size`.
        num_shards: files of the training split, other splits in proportion; None means 8, or more
            where files would exceed some 32 MB of input.
        seed: of the hashes for split, shard and order.
        overwrite: replace `out` if it exists.
        append: day as YYYY-MM-DD. `out` is then a data set by days; this day is added to it, or
            replaced, in `out/days/<day>`, and no other one is read or written. `time` then splits
            each day.
        settings: options of the source, each `key=value`.
        source_modules: modules to import first, which register sources.
        beam_args: arguments for Beam, such as `--runner=FlinkRunner`. Without `--runner` the
            pipeline runs in this process.

    Raises:
        UserError: for a value out of range, naming the option and the allowed values.
    """

    source: str
    input: str
    schema: str | Path | None
    out: str | Path
    split: str | None = None
    split_column: str | None = None
    like: str | Path | None = None
    validation_fraction: float = 0.1
    test_fraction: float = 0.1
    max_list_size: int = 200
    max_lost: float = 0.05
    num_shards: int | None = None
    seed: int = 0
    overwrite: bool = False
    append: str | None = None
    settings: tuple[str, ...] = ()
    source_modules: tuple[str, ...] = ()
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks ranges."""
        for name, low, high in (
            ("validation_fraction", 0, 0.5),
            ("test_fraction", 0, 0.5),
            ("max_list_size", 1, 1000),
            ("max_lost", 0, 1),
            ("num_shards", 1, 99999),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UserError(f"{name} must be between {low} and {high}, got {value}")
        if self.validation_fraction + self.test_fraction >= 1:
            raise UserError("validation_fraction and test_fraction leave no lists for training")
        if self.split not in (None, "time", "hash"):
            raise UserError(f"split must be time or hash, got {self.split!r}")
        if self.split is not None and self.split_column is not None:
            raise UserError(
                f"split {self.split}: cannot be combined with split_column={self.split_column!r}"
            )
        for name in ("schema", "split"):
            if self.like is not None and getattr(self, name) is not None:
                raise UserError(f"{name}: cannot be combined with like={self.like}")
        if self.append is not None and (self.like is not None or self.overwrite):
            name = "overwrite" if self.like is None else "like"
            raise UserError(f"{name}: cannot be combined with append, which replaces its day")

    @property
    def folder(self) -> Path:
        """Returns the folder that is written: `out`, or that of the day in it."""
        return Path(self.out) if self.append is None else day_folder(self.out, self.append)

    def shards(self, total_bytes: int) -> dict[str, int]:
        """Returns the number of files of each split."""
        train = self.num_shards or max(8, -(-total_bytes // (32 << 20)))
        rest = 1.0 - self.validation_fraction - self.test_fraction
        return {
            "train": train,
            "validation": max(1, round(train * self.validation_fraction / rest)),
            "test": max(1, round(train * self.test_fraction / rest)),
        }


def build(options: BuildOptions, progress: ProgressCallback | None = None) -> dict[str, Any]:
    """Builds the data-set folder `options.out`, or one day of it.

    The folder appears only when it is complete; a failed build leaves nothing. The same input and
    seed give the same records in the same files, on any runner.

    Args:
        options: source, input, schema, output and split.
        progress: called with (done, total, stage); stage `read` in stored bytes, then `write` in
            files. Not called where the pipeline runs on workers elsewhere.

    Returns:
        The manifest, see docs/data.md.

    Raises:
        UserError: for an invalid source, schema, input file or option, or where more than
            `max_lost` is lost, in one line.

    Example:
        manifest = build(BuildOptions("search-logs", "logs/*.csv.gz", "schema.yaml", "data"))
    """
    load_source_modules(options.source_modules)
    source = get_source(options.source)
    settings = parse_options(
        source.options, options.settings, f"source {source.name}", seed=options.seed
    )
    schema = _schema(options, source, settings)
    source_input = source(options.input, schema, settings)
    split = _split_kind(options, schema, source_input)
    shards = options.shards(source_input.total_bytes)
    like = [] if options.like is None else [options.like]
    check_inputs_outside(options.folder, [*source_input.files, *like])
    _check_days(options, schema)
    replace = options.overwrite or options.append is not None
    with atomic_directory(options.folder, MANIFEST_FILE if replace else None) as folder:
        with (
            reporting(progress, source_input.total_bytes, sum(shards.values())),
            running(options.beam_args, folder) as pipeline,
        ):
            _assemble(pipeline, options, schema, split, source_input, shards, folder)
        if options.like is not None:
            _copy_tables(Path(options.like), folder)
        add_empty_files(folder, schema, shards)
        counts = take_counts(folder)
        bounds = read_json(folder / _BOUNDS_FILE)
        (folder / _BOUNDS_FILE).unlink(missing_ok=True)
        _check_not_empty(options, folder, counts)
        result = manifest(options, split, source_input, shards, counts, bounds)
        check_losses(result, options.max_lost, folder)
        schema.save(folder / SCHEMA_FILE)
        of_day = [f"counts/{path.name}" for path in folder.glob("counts/*")]
        return write_manifest(folder, result, of_day)


def _check_days(options: BuildOptions, schema: FeatureSchema) -> None:
    """Raises `UserError` where the schema is not that of the other days, or reads all of them."""
    if options.append is None:
        return
    if schema.by_clicks:
        raise UserError(
            "append: hierarchy `from: clicked_in_training` counts the clicks of all days, which "
            "days alone do not have; take `from: majority`, or build all days at once"
        )
    if options.folder.parent.is_dir():
        days = days_of(options.out, replacing=options.append)
        check_same_schema(days, schema, options.append)


def _schema(options: BuildOptions, source: Source, settings: SourceOptions) -> FeatureSchema:
    if options.like is not None:
        return FeatureSchema.load(Path(options.like, SCHEMA_FILE))
    if options.schema is not None:
        return FeatureSchema.load(options.schema)
    if source.schema is None:
        raise UserError(f"schema: source {source.name} requires a schema")
    return source.schema(options.input, settings)


def _split_kind(options: BuildOptions, schema: FeatureSchema, source_input: Input) -> str:
    if source_input.split_of is not None:
        for name in ("split", "split_column"):
            if getattr(options, name) is not None:
                raise UserError(f"{name} {getattr(options, name)}: the files define the splits")
        return "files"
    if options.split_column is not None:
        return "column"
    if options.like is not None:
        return "like"
    if options.split == "time" and schema.time is None:
        raise UserError(f"split time: the schema {options.schema} has no time column")
    return options.split or ("time" if schema.time else "hash")


def _assemble(
    pipeline: beam.Pipeline,
    options: BuildOptions,
    schema: FeatureSchema,
    split: str,
    source_input: Input,
    shards: dict[str, int],
    folder: Path,
) -> None:
    combine = CombineList(options.max_list_size, Labels(schema))
    lists_of = partial(make_lists, schema, combine)
    encoder: EncoderFactory = RowEncoder
    if split == "column":
        encoder = partial(
            value_encoder, column=options.split_column, scope="context", read=to_split
        )
    rows = pipeline | "Read" >> source_input.rows
    groups, rejects, read = rows | "GroupRows" >> group_rows(schema, combine, encoder)
    bounds = clicks = None
    if split == "time":
        times = groups | "Times" >> list_times(schema, combine)
        fractions = TimeBounds(options.validation_fraction, options.test_fraction)
        bounds = times | "TimeBounds" >> beam.CombineGlobally(fractions)
        _ = bounds | "WriteBounds" >> beam.Map(
            lambda bounds: write_json(folder / _BOUNDS_FILE, plain(bounds._asdict()))
        )
    limits = hash_bounds(options.validation_fraction, options.test_fraction)
    assign = assigner(split, source_input.split_of, limits, options.seed, bounds)
    if schema.by_clicks and options.like is not None:
        known = clicks_of_table(query_categories(options.like, schema))
        clicks = pipeline | "KnownClicks" >> beam.Create([known])
    elif schema.by_clicks:
        lists = (groups | "ListsForClicks" >> lists_of(after=bounds)).lists
        clicks = lists | "SplitForClicks" >> assign | "Clicks" >> count_clicks(schema)
        _ = clicks | "WriteClicks" >> beam.Map(
            lambda clicks: write_json(folder / QUERY_CATEGORIES_FILE, table_of(clicks))
        )
    made = groups | "MakeLists" >> lists_of(after=bounds if clicks is None else clicks)
    assigned = made.lists | "Split" >> assign
    counts = [read, made[COUNTS]]
    if schema.item_categories:
        waits = [] if clicks is None else [beam.pvalue.AsSingleton(clicks)]
        categorized = assigned | "Categories" >> beam.ParDo(
            AddCategories(schema), *waits
        ).with_outputs(COUNTS, main="lists")
        assigned = categorized.lists
        counts.append(categorized[COUNTS])
    encoded = assigned | "Encode" >> beam.ParDo(
        EncodeLists(schema, shards, options.seed)
    ).with_outputs(COUNTS, main="records")
    write = partial(write_shard, folder=folder, shards=shards)
    _ = encoded.records | "WriteShards" >> use_groups(write, itemgetter(0, 1))
    counts.append(encoded[COUNTS])
    if options.like is None:
        mergeable = options.append is not None
        counts.append(assigned | "Tables" >> write_tables(schema, folder, mergeable))
    _ = rejects | "WriteRejects" >> write_rejects(source_input.files, folder)
    _ = tuple(counts) | "WriteCounts" >> write_counts(folder)


def _copy_tables(source: Path, folder: Path) -> None:
    """Copies statistics and vocabularies of a data set."""
    for name in set(description_files(source)) - {SCHEMA_FILE}:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, folder / name)


def _check_not_empty(options: BuildOptions, folder: Path, counts: Counts) -> None:
    """Raises `UserError` where no list is left for training, or at all where it is not needed."""
    if not counts["rows", "read"]:
        numbers = [f"{key[1]} {key[2]}: {n}" for key, n in counts.items() if key[0] == "source"]
        why = f" ({'; '.join(sorted(numbers))})" if numbers else ""
        raise UserError(f"input {options.input}: there are no rows{why}")
    needed = SPLITS if options.like is not None else SPLITS[:1]
    if any(counts["lists", split] for split in needed):
        return
    if first := first_reject(folder):
        raise UserError(
            f"{first['file']}, line {first['line']}: {first['reason']}; "
            f"no row is left for training, {counts['rows', 'read']} were read"
        )
    raise UserError(f"input {options.input}: no list is left for training")
