"""Rows of a data frame -> lists in the order of records, their splits and their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfr_moe.data.builder import Dictionary, ParsedSplit
from tfr_moe.data.columns import convert_words, read_ids, read_numbers, read_times, read_wide
from tfr_moe.elwc.log_checks import check_lost
from tfr_moe.elwc.splits import Bounds, hash_bounds, hash_fraction, list_hash, time_bounds
from tfr_moe.elwc.statistics import SCOPES
from tfr_moe.elwc.values import minima, required_id
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, Scope
from tfr_moe.tables.arrow import Ids, column_of, encode

MAX_LIST_SIZE = 200
MAX_LOST = 0.05
_SEED = 0
Log = Callable[[str], None]


def silent(line: str) -> None:
    """Prints nothing."""


class ListLimits(NamedTuple):
    """Limits of lists and of what may be lost, see `training_data`; checks and logs losses."""

    max_list_size: int = MAX_LIST_SIZE
    max_lost: float = MAX_LOST
    log: Log = silent

    def check(self, lost: int, of: int, what: str) -> None:
        """Logs a loss; raises `UserError` where it is more than `max_lost`."""
        check_lost(lost, of, what, self.max_lost)
        if lost:
            self.log(f"warning: {lost} of {of} {what}")


DEFAULTS = ListLimits()


class SplitLists(NamedTuple):
    """The lists of a split, as rows of a frame.

    `rows` are row numbers, list after list, in the order of the items; `row_splits`, [lists + 1],
    has the offset of each list in them.
    """

    list_ids: list[str]
    rows: NDArray[np.int64]
    row_splits: NDArray[np.int64]

    def select(self, lists: NDArray[np.int64]) -> SplitLists:
        """Returns some of the lists, in the order of the given indices."""
        rows = pa.LargeListArray.from_arrays(pa.array(self.row_splits), pa.array(self.rows))
        chosen = rows.take(pa.array(lists))
        list_ids = [self.list_ids[i] for i in lists]
        return SplitLists(list_ids, chosen.flatten().to_numpy(), chosen.offsets.to_numpy())

    def in_record_order(self, shards: int) -> SplitLists:
        """Returns the lists in the order of the records that `build` writes in a number of files.

        The order follows from the list IDs, so that the order of the rows does not matter.
        """
        hashes = [list_hash(list_id, _SEED, "order") for list_id in self.list_ids]
        keys = [(h % shards, h, list_id) for h, list_id in zip(hashes, self.list_ids, strict=True)]
        return self.select(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))


def group(table: pa.Table, schema: FeatureSchema, labelled: bool = True) -> SplitLists:
    """Groups rows by list ID, in any order of the rows; items are ordered by position, then row.

    Only labelled rows must have the position column.
    """
    if not table.num_rows:
        raise UserError("the data frame has no rows")
    name = schema.list_id

    column = column_of(table, name, "list_id")
    ids = convert_words(encode(column), partial(required_id, name))
    lengths = np.bincount(ids.codes, minlength=len(ids.words))
    keys: list[NDArray[Any]] = [ids.codes]
    if schema.position and (labelled or schema.position in table.column_names):
        column, lowest = column_of(table, schema.position, "position"), float(labelled)
        keys.insert(0, read_numbers(schema.position, column, None if labelled else 0.0, lowest))
    rows = np.lexsort(keys)
    used = np.flatnonzero(lengths)
    list_ids = [ids.words[code] for code in used]
    return SplitLists(list_ids, rows, np.concatenate([[0], np.cumsum(lengths[used])]))


def cut(
    table: pa.Table, schema: FeatureSchema, parts: Mapping[str, SplitLists], limits: ListLimits
) -> dict[str, SplitLists]:
    """Cuts lists to `max_list_size`; checks and logs how many positives that loses."""
    size = limits.max_list_size
    if size < 1:
        raise UserError(f"max_list_size must be >= 1, got {size}")
    shorter = {}
    for name, lists in parts.items():
        lengths = np.diff(lists.row_splits)
        index = np.arange(len(lists.rows)) - np.repeat(lists.row_splits[:-1], lengths)
        row_splits = np.concatenate([[0], np.cumsum(np.minimum(lengths, size))])
        shorter[name] = SplitLists(lists.list_ids, lists.rows[index < size], row_splits)
        lost = lists.rows[index >= size]
        if len(lost):
            positive = read_numbers(schema.label, column_of(table, schema.label), lowest=0.0) > 0
            limits.log(f"warning: {len(lost)} {name} items are beyond max_list_size={size}")
            what = f"{name} items with a label above 0 are cut by max_list_size={size}"
            limits.check(int(positive[lost].sum()), int(positive[lists.rows].sum()), what)
    return shorter


def is_validation(
    table: pa.Table, schema: FeatureSchema, lists: SplitLists, fraction: float
) -> NDArray[np.bool_]:
    """Which lists are for validation, by the rule of `build` with an empty test split."""
    if not 0 < fraction <= 0.5:
        raise UserError(f"validation_fraction must be above 0 and at most 0.5, got {fraction}")
    if schema.time is None:
        bounds: Bounds = hash_bounds(fraction, 0.0)
        values = np.array([hash_fraction(list_id, _SEED) for list_id in lists.list_ids])
    else:
        times = read_times(schema.time, column_of(table, schema.time, "time"))[lists.rows]
        values = np.minimum.reduceat(times, lists.row_splits[:-1])
        bounds = time_bounds(values, fraction, 0.0)
    return np.asarray(values >= bounds.validation)


def frame_columns(schema: FeatureSchema, labelled: bool = True) -> list[str]:
    """Returns the columns that are read: without labels, time and weight for rows to be scored."""
    roles = [schema.list_id, schema.position]
    if labelled:
        roles += [*schema.labels, schema.time, schema.weight]
    return [*(c for c in roles if c), *(feature.name for feature in schema.features)]


def parse(
    table: pa.Table,
    schema: FeatureSchema,
    parts: Mapping[str, SplitLists],
    labelled: bool = True,
    limits: ListLimits = DEFAULTS,
) -> dict[str, ParsedSplit]:
    """Checks and converts all columns, each once for all splits."""
    splits = {}
    for name, lists in parts.items():
        list_ids = np.array([text.encode("utf-8") for text in lists.list_ids], np.object_)
        context = {schema.list_id: list_ids[:, None]}
        splits[name] = ParsedSplit(context, {}, lists.row_splits.astype(np.int64))
    for scope in SCOPES:
        for name, lists in parts.items():
            size = len(lists.list_ids) if scope == "context" else len(lists.rows)
            for stored, columns in schema.stored_numbers(scope).items():
                numbers = np.empty((size, len(columns)), np.float32)
                splits[name].columns(scope)[stored] = numbers
        for feature in schema.select(scope, "numeric"):
            stored, at = schema.stored_at(feature.name)
            column = column_of(table, feature.name, "feature")
            values = read_wide(feature, column).astype(np.float32)
            for name, lists in parts.items():
                selected = _of_scope(feature.name, values, scope, lists, limits)
                splits[name].columns(scope)[stored][:, at] = selected
        for feature in schema.select(scope, "categorical", "categorical_list"):
            if feature not in schema.log_features and feature.name not in table.column_names:
                ids = Ids(np.zeros(table.num_rows, np.int32), [""])
            else:
                ids = read_ids(feature, column_of(table, feature.name, "feature"))
            words = np.array([str(word).encode("utf-8") for word in ids.words], np.object_)
            for name, lists in parts.items():
                codes = _of_scope(feature.name, ids.codes, scope, lists, limits)
                codes = codes if codes.ndim == 2 else codes[:, None]
                splits[name].columns(scope)[feature.name] = Dictionary(codes, words)
    for role, lowest in minima(schema).items() if labelled else ():
        values = read_numbers(role, column_of(table, role), lowest=lowest).astype(np.float32)
        for name, lists in parts.items():
            splits[name].example[role] = values[lists.rows, None]
    return splits


def _of_scope(
    name: str, values: NDArray[Any], scope: Scope, lists: SplitLists, limits: ListLimits
) -> NDArray[Any]:
    """Returns the values of the items, or those of the first row of each list."""
    if scope == "example":
        return values[lists.rows]
    first = values[np.minimum.reduceat(lists.rows, lists.row_splits[:-1])]
    lengths = np.diff(lists.row_splits)
    ordered, expected = values[lists.rows], np.repeat(first, lengths, axis=0)
    # NaN, a missing number, differs from itself.
    different = (ordered != expected) & ((ordered == ordered) | (expected == expected))
    items = np.flatnonzero(different.reshape(len(ordered), -1).any(axis=1))
    if len(items):
        list_of_item = np.repeat(np.arange(len(lengths)), lengths)[items]
        at = np.argmin(lists.rows[items])
        limits.check(
            len(np.unique(list_of_item)),
            len(lengths),
            f"lists have several values of the context feature {name!r}; the first is list "
            f"{lists.list_ids[list_of_item[at]]!r} at row {lists.rows[items[at]]}",
        )
    return first
