"""Data frames -> lists in memory, with the interface of a data-set folder.

Rows are grouped by list, assigned to splits, checked, dictionary-encoded and packed with Arrow and
NumPy, by the rules of `tfr-moe build`: the same rows give the same lists in the same order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import Dictionary, ParsedSplit, in_memory
from tfr_moe.data.folder import DataFolder
from tfr_moe.data.frame_tables import ItemCategories, serialized_lists, tables_of
from tfr_moe.data.lists import (
    MAX_LIST_SIZE,
    MAX_LOST,
    ListLimits,
    Log,
    SplitLists,
    cut,
    frame_columns,
    group,
    is_validation,
    parse,
    silent,
)
from tfr_moe.elwc.categories import Clicks, clicks_of_table, table_of
from tfr_moe.elwc.log_checks import OrderSums, log_warnings, repeated_lists
from tfr_moe.elwc.wire import write_records
from tfr_moe.errors import UserError
from tfr_moe.schema import (
    FeatureSchema,
    FeatureTables,
    QueryCategories,
    shard_file,
    write_manifest,
)
from tfr_moe.tables import infer_schema
from tfr_moe.tables.arrow import names_of, to_table
from tfr_moe.utils.io import atomic_directory

_SAMPLE_LISTS = 256
_LOOKED_AT = 10_000  # lists, for warnings
_SHARDS = 8  # the default of `build`


class FrameData(DataFolder):
    """Lists in memory that training, evaluation and baselines read like a data-set folder.

    `path` is the folder of the run, which stands for the data set in its results; `samples` are
    serialized validation lists that a run keeps, for the verification of its export.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        splits: Mapping[str, ParsedSplit],
        tables: FeatureTables,
        path: str | Path,
        samples: Iterable[bytes] = (),
        categories: QueryCategories | None = None,
    ):
        self.path = Path(path)
        self.schema = schema
        self.splits = {name: in_memory(split) for name, split in splits.items()}
        self.statistics, self._vocabularies = tables
        self.manifest = {}
        self._samples = list(samples)
        self.categories = categories or {}

    def tables(self) -> FeatureTables:
        """Statistics, and vocabularies as lists."""
        return FeatureTables(self.statistics, self._vocabularies)

    def files(self, split: str) -> list[str]:
        """No files; raises `UserError` if the frame has no such split."""
        if not self.num_lists(split):
            raise UserError(f"split {split!r} has no lists")
        return []

    def num_lists(self, split: str) -> int:
        """Number of lists of a split."""
        return int(self.splits[split].row_splits.shape[0]) - 1 if split in self.splits else 0

    def check_lists(self, split: str) -> None:
        """Checks that a split has a list."""
        self.files(split)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the training lists by schema, statistics, vocabularies and list lengths."""
        described = [self.schema.to_json(), self.statistics, self._vocabularies]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for name in sorted(self.splits):
            digest.update(np.asarray(self.splits[name].row_splits).tobytes())
        return digest.hexdigest()[:16]

    def copy_description(self, target: Path) -> None:
        """Writes schema, statistics, vocabularies and the sample of validation lists."""
        super().copy_description(target)
        if self._samples:
            write_records(target / shard_file("validation", 0, 1), self._samples)


def given_roles(ignore: str | Iterable[str], **roles: Any) -> dict[str, Any]:
    """Returns the arguments of `infer_schema` that are given."""
    roles["ignore"] = names_of(ignore) or None
    return {role: columns for role, columns in roles.items() if columns is not None}


def schema_of_frame(
    frame: Any,
    schema: FeatureSchema | Mapping[str, Any] | str | Path | None,
    roles: Mapping[str, Any],
    log: Log,
) -> FeatureSchema:
    """Returns the given schema, or infers that of a frame and logs which columns are no features.

    `roles` are arguments of `infer_schema`, which a given schema excludes.
    """
    if schema is not None:
        for role in roles:
            raise UserError(f"{role}: is part of the schema. Received: schema and {role}")
        if isinstance(schema, Mapping):
            return FeatureSchema.of(schema)
        return schema if isinstance(schema, FeatureSchema) else FeatureSchema.load(schema)
    for role in ("list_id", "label"):
        if role not in roles:
            raise UserError(f"{role}: is required without a schema")
    inference = infer_schema(frame, **roles)
    for decision in inference.decisions:
        if decision.outcome == "ignored" and decision.column not in roles.get("ignore", ()):
            prefix = "warning: " if decision.warning else ""
            log(f"{prefix}column {decision.column!r} is ignored: {decision.reason}")
    return FeatureSchema.of(inference.schema)


def training_data(
    train: Any,
    validation: Any,
    schema: FeatureSchema,
    path: str | Path,
    validation_fraction: float = 0.1,
    max_list_size: int = MAX_LIST_SIZE,
    max_lost: float = MAX_LOST,
    log: Log = silent,
) -> FrameData:
    """Makes the data set of a training run in the folder `path`.

    Without a validation frame, lists are taken from `train`: the latest ones if the schema names a
    time column, else those that a hash of the list ID selects. Lists longer than `max_list_size`
    keep the items shown first. `max_lost` is the largest allowed share of positives that are cut,
    and of lists whose rows disagree about a context feature; the first row wins.
    """
    limits = ListLimits(max_list_size, max_lost, log)
    table = to_table(train, frame_columns(schema))
    lists = group(table, schema)

    def read(table: Any, parts: dict[str, SplitLists]) -> dict[str, ParsedSplit]:
        return parse(table, schema, cut(table, schema, parts, limits), limits=limits)

    if validation is None:
        chosen = is_validation(table, schema, lists, validation_fraction)
        rest = round(_SHARDS * validation_fraction / (1.0 - validation_fraction))
        parts = {
            "train": lists.select(np.flatnonzero(~chosen)).in_record_order(_SHARDS),
            "validation": lists.select(np.flatnonzero(chosen)).in_record_order(max(1, rest)),
        }
        for name, part in parts.items():
            if not part.list_ids:
                raise UserError(f"{name} has no lists; give a validation frame, or more lists")
        splits = read(table, parts)
    else:
        splits = read(table, {"train": lists.in_record_order(_SHARDS)})
        try:
            table = to_table(validation, frame_columns(schema))
            splits |= read(table, {"validation": group(table, schema).in_record_order(1)})
        except UserError as error:
            raise UserError(f"validation: {error}") from error
    clicks: Clicks | None = None
    if schema.by_clicks:
        clicks = ItemCategories(schema, splits["train"]).clicks()
    if schema.item_categories:
        _add_categories(schema, splits, clicks, limits.log)
    for warning in _warnings(schema, splits["train"]):
        limits.log(f"warning: {warning}")
    tables = tables_of(schema, splits["train"])
    samples = serialized_lists(schema, splits["validation"], _SAMPLE_LISTS)
    return FrameData(schema, splits, tables, path, samples, table_of(clicks or {}))


def _warnings(schema: FeatureSchema, split: ParsedSplit) -> list[str]:
    """Returns the warnings about training lists; repeats are counted in the first ones."""
    order, row_splits = OrderSums(), split.row_splits
    if schema.position is None:
        order.add(split.example[schema.label][:, 0] > 0, row_splits)
    sample = row_splits[: _LOOKED_AT + 1]
    columns = (c.codes if isinstance(c, Dictionary) else c for c in split.example.values())
    repeated = repeated_lists(columns, sample)
    return log_warnings(int(np.diff(row_splits).max()), repeated, len(sample) - 1, order)


def scoring_data(
    frame: Any,
    schema: FeatureSchema,
    split: str,
    labelled: bool,
    log: Log = silent,
    categories: QueryCategories | None = None,
) -> tuple[FrameData, SplitLists]:
    """Makes a data set of one split to evaluate or score, and its lists.

    Labels, position and weight are read only if it is `labelled`. Of lists whose rows disagree
    about a context feature the first row wins, however many there are; `log` has their number.
    """
    table = to_table(frame, frame_columns(schema, labelled))
    lists = group(table, schema, labelled)
    splits = parse(table, schema, {split: lists}, labelled, ListLimits(max_lost=1.0, log=log))
    if schema.item_categories:
        clicks = clicks_of_table(categories or {}) if schema.by_clicks else None
        _add_categories(schema, splits, clicks, log)
    return FrameData(schema, splits, FeatureTables({}, {}), ""), lists


def _add_categories(
    schema: FeatureSchema, splits: Mapping[str, ParsedSplit], clicks: Clicks | None, log: Log
) -> None:
    """Adds the categories of lists, and logs how many have no clear one."""
    for name, split in splits.items():
        notes = ItemCategories(schema, split).add(clicks, training=name == "train")
        for note, number in notes.items():
            which = f"{name} " if len(splits) > 1 else ""
            log(f"{number} of {len(split.row_splits) - 1} {which}{note}")


def write_frames(
    out: str | Path, train: Any, validation: Any, test: Any, schema: FeatureSchema, log: Log
) -> DataFolder:
    """Writes a data set of one file per split; `build` writes more files, in parallel.

    Without a validation frame lists are taken from `train`, see `training_data`.
    """
    data = training_data(train, validation, schema, out, log=log)
    tested, _ = scoring_data(test, schema, "test", True, log, data.categories)
    counts = {}
    with atomic_directory(out) as folder:
        data.copy_description(folder)
        for name, split in {**data.splits, **tested.splits}.items():
            arrays = tf.nest.map_structure(lambda tensor: tensor.numpy(), split)
            counts[name] = {"lists": len(arrays.row_splits) - 1}
            records = serialized_lists(schema, arrays, counts[name]["lists"])
            write_records(folder / shard_file(name, 0, 1), records)
        write_manifest(folder, {"splits": counts})
    return DataFolder(out)
