"""Infers a feature schema from a data frame, with a reason for each decision."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from tfr_moe.errors import UserError
from tfr_moe.tables.arrow import (
    are_numbers,
    are_times,
    as_numbers,
    column_of,
    encode,
    is_list,
    is_supported,
    names_of,
    no_plain_number,
    to_table,
)
from tfr_moe.tables.relations import (
    ITEM,
    ColumnDecision,
    RowLists,
    choose_hierarchy,
    repeated_ids,
    role_decision,
)

SEPARATOR = "|"
MAX_VOCABULARY = 100_000
"""IDs with more distinct values are hashed."""

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")
_RESERVED = ("context_numeric", "example_numeric", "example_list_mask")
_ID_NAME = re.compile(r"(^|_)(id|ids|uuid|key|code)$", re.IGNORECASE)
_POSITION_NAME = re.compile(r"^(display_)?(position|rank|slot)$", re.IGNORECASE)
_POSITION = "looks like the display position, which is no feature; give it as `position`"
_TIME_NAME = re.compile(r"(^|_)(time|timestamp|ts|date|datetime|at)$", re.IGNORECASE)
_UNIX_SECONDS = (946_684_800, 4_102_444_800)
"""From the year 2000 to 2100."""
_TIME = "is a time; give it as `time`, or derive features such as an age in days"
_SPLITS = {"train", "validation", "test"}
_SAMPLE = 100_000
_SKEW = 2.0
_INDICATED = 0.01
"""Numbers with a larger share of missing values get an indicator."""
_CHANCE = 1e-6
_FEW_LISTS = 0.05
_CONTEXT = "lists only; if it belongs to the list, set its scope to context in the schema"
_MIN_POSITIVES = 50


class Inference(NamedTuple):
    """An inferred schema.

    Attributes:
        schema: the arguments of `FeatureSchema`.
        decisions: one for each column of the frame, in the order of the columns, then those on the
            hierarchy.
    """

    schema: dict[str, Any]
    decisions: list[ColumnDecision]

    @property
    def warnings(self) -> list[ColumnDecision]:
        """The decisions that someone should look at."""
        return [decision for decision in self.decisions if decision.warning]


class _WarnedError(Exception):
    """A column that is ignored with a warning."""


def infer_schema(
    frame: Any,
    *,
    list_id: str,
    label: str | Sequence[str],
    time: str | None = None,
    position: str | None = None,
    weight: str | None = None,
    hierarchy: Mapping[str, str] | None = None,
    ignore: str | Iterable[str] = (),
    keep: Iterable[str] = (),
) -> Inference:
    """Infers the schema of a data frame.

    A column is a context feature if it has one value in each list, over all rows, and otherwise a
    feature of the items. Text and columns named `..._id` are categorical (text with `|` and arrays:
    `categorical_list`), other numbers numeric. Columns that equal a label, or are known only where
    it is, are excluded with a warning.

    Args:
        frame: a pandas, polars or pyarrow data frame, one row per item.
        list_id: column that identifies the list of each row.
        label: column or columns with the relevance.
        time: column with the time of the list.
        position: column with the display position.
        weight: column with the weight of the item.
        hierarchy: `{"child": ..., "parent": ...}`; None selects a pair of context features in which
            the child determines the parent.
        ignore: columns that are no features.
        keep: columns that are features even if they look like leaks, IDs or constants.

    Raises:
        UserError: for a missing column, lists of one row only, or no feature at all.
    """
    labels, ignore = names_of(label), names_of(ignore)
    roles = {"list_id": list_id, "time": time, "position": position, "weight": weight}
    named = {name: role for role, name in roles.items() if name} | dict.fromkeys(labels, "label")
    table = to_table(frame)
    for name, role in named.items():
        column_of(table, name, role)
    if not isinstance(hierarchy, Mapping | None):
        raise UserError(f"hierarchy must map child and parent to columns, got {hierarchy!r}")
    given = {role: name for role, name in (hierarchy or {}).items() if role != "from"}
    categories = [name.removeprefix(ITEM) for name in given.values()]
    for name in (*ignore, *keep, *categories):
        column_of(table, name)
    ids, rows = encode(table.column(list_id)), table.num_rows
    listed = ~ids.missing
    if not listed.all():
        table = table.filter(listed)
    if not table.num_rows:
        raise UserError(
            f"list_id {list_id!r}: no row has one" if rows else "the data frame has no rows"
        )
    lists = RowLists.of(ids.codes[listed])
    if lists.sizes.max() == 1:
        raise UserError(f"list_id {list_id!r}: every list has one row; its items share an ID")
    first = table.column(time).drop_null()[:1].to_pylist() if time else []
    if first and isinstance(first[0], str) and not are_times(first):
        raise UserError(f"time {time!r}: expected ISO 8601 time or Unix seconds, got {first[0]!r}")
    for role in ("position", "weight"):
        if column := roles[role]:
            _numbers(table, column, role)
    relevant = {name: _numbers(table, name, "label") > 0 for name in labels}
    scan = _Scan(lists, relevant, {*keep, *categories})
    features: dict[str, dict[str, Any]] = {}
    decisions: dict[str, ColumnDecision] = {}
    for name in table.column_names:
        if name in named:
            unlisted = rows - table.num_rows
            decisions[name] = role_decision(name, named[name], lists, unlisted, relevant)
        elif name in ignore:
            decisions[name] = ColumnDecision(name, "ignored", "as given")
        elif position is None and _POSITION_NAME.match(name) and name not in scan.keep:
            decisions[name] = ColumnDecision(name, "ignored", _POSITION, True)
        else:
            feature, decisions[name] = scan.column(name, column_of(table, name))
            if feature is not None:
                features[name] = feature
    for name, other in scan.repeated_ids().items():
        del features[name], scan.codes[name]
        reason = f"has one value for each {other!r}, nearly; both tell the same items apart"
        decisions[name] = ColumnDecision(name, "ignored", reason)
    if not features:
        raise UserError("no column is left as a feature; name the columns to use with `keep`")
    scopes: dict[str, dict[str, NDArray[np.int32]]] = {"context": {}, "example": {}}
    for name, codes in scan.codes.items():
        scope = features[name]["scope"]
        scopes[scope][name] = codes[lists.first_rows] if scope == "context" else codes
    chosen, more = choose_hierarchy(hierarchy, scopes["context"], scopes["example"])
    if chosen:
        # Gates compare the two, which needs embeddings of one width.
        names = [chosen.get(role, "").removeprefix(ITEM) for role in ("child", "parent")]
        child, parent = (features.get(name, {}) for name in names)
        if "embedding_dim" in child and "embedding_dim" in parent:
            parent["embedding_dim"] = child["embedding_dim"]
    ordered = sorted(features.values(), key=lambda feature: feature["scope"] != "context")
    schema = {
        "list_id": list_id,
        "labels": labels,
        **{role: name for role, name in roles.items() if name and role != "list_id"},
        **({"hierarchy": chosen} if chosen else {}),
        "features": ordered,
    }
    made = [*decisions.values(), *more]
    if time is None:
        made = [d._replace(warning=d.warning or d.reason == _TIME) for d in made]
    return Inference(schema, made)


def _numbers(table: pa.Table, name: str, role: str) -> NDArray[np.float64]:
    column = table.column(name)
    values = as_numbers(column)
    if values is None and (types.is_string(column.type) or types.is_large_string(column.type)):
        with suppress(pa.ArrowInvalid):
            values = as_numbers(column.cast("float64"))
    if values is None:
        kind = re.sub("(large_)?string", "text", str(column.type))
        words = sorted(str(word) for word in column.drop_null().unique().to_pylist())
        if len(words) == 2:
            kind += f" {words[0]!r} and {words[1]!r}; map them to 0 and 1"
        raise UserError(f"{role} {name!r}: expected numbers, got {kind}")
    return values


class _Scan:
    """Decides on one column after the other; those to `keep` are features in any case."""

    def __init__(self, lists: RowLists, relevant: dict[str, NDArray[np.bool_]], keep: set[str]):
        self._lists = lists
        self._relevant = relevant
        self.keep = keep
        self.first_rows = lists.first_rows
        self.codes: dict[str, NDArray[np.int32]] = {}

    def column(
        self, name: str, column: pa.ChunkedArray
    ) -> tuple[dict[str, Any] | None, ColumnDecision]:
        """Returns the feature, None for an ignored column, and the decision."""
        try:
            if not _NAME.match(name) or name in _RESERVED:
                # A nameless column is that of the row numbers which pandas writes.
                error = _WarnedError if name else UserError
                raise error("a feature name must have letters, digits and _ only; rename it")
            feature, reason = self._feature(name, column)
        except _WarnedError as error:
            return None, ColumnDecision(name, "ignored", str(error), True)
        except UserError as error:
            return None, ColumnDecision(name, "ignored", str(error), name in self.keep)
        outcome = f"{feature['scope']} {feature['kind']}"
        return feature, ColumnDecision(name, outcome, reason, _CONTEXT in reason)

    def repeated_ids(self) -> dict[str, str]:
        """Returns the columns of IDs to leave out, with the name of the column they repeat."""
        preferred = sorted(self.codes, key=lambda n: (n not in self.keep, not _ID_NAME.search(n)))
        repeated = repeated_ids(self.codes, preferred)
        return {name: other for name, other in repeated.items() if name not in self.keep}

    def _feature(self, name: str, column: pa.ChunkedArray) -> tuple[dict[str, Any], str]:
        kind = column.type
        if types.is_null(kind) or column.null_count == len(column):
            raise UserError("has no values")
        if types.is_temporal(kind):
            raise UserError(_TIME)
        if types.is_binary(kind) or not is_supported(kind):
            raise UserError(f"has type {kind}, which is not supported")
        if is_list(kind):
            return self._array(name, column)
        numbers = as_numbers(column)
        if numbers is None:
            return self._ids(name, column)
        if _ID_NAME.search(name):
            # Integers become floats where one is missing; hashes may be above the highest int64.
            with suppress(pa.ArrowInvalid):
                return self._ids(name, column if types.is_integer(kind) else column.cast("int64"))
        return self._numeric(name, numbers)

    def _numeric(self, name: str, numbers: NDArray[np.float64]) -> tuple[dict[str, Any], str]:
        missing = ~np.isfinite(numbers)
        present = numbers[~missing]
        if not len(present):
            raise UserError("has no values")
        if name not in self.keep:
            if (present == present[0]).all() and not missing.any():
                raise UserError(f"is constant ({present[0]:g})")
            self._check_leak(numbers, ~missing & (numbers != 0))
            first, last = _UNIX_SECONDS
            if _TIME_NAME.search(name) and first <= present.min() <= present.max() < last:
                raise UserError(_TIME)
            if not missing.any() and self._lists.counts_up(numbers):
                raise _WarnedError(f"counts from 1 in every list: {_POSITION}")
        scope, why = self._scope(np.where(missing, np.inf, numbers))
        feature: dict[str, Any] = {"name": name, "scope": scope, "kind": "numeric"}
        reasons = [why]
        sample = present[:: max(1, len(present) // _SAMPLE)]
        if sample.min() >= 0 and sample.max() > 10 and _skewness(sample) > _SKEW:
            feature["transform"] = "log1p"
            reasons.append(f"skewed (mean {sample.mean():.3g}, median {np.median(sample):.3g})")
        if missing.any():
            feature["missing"] = "mean"
            share = float(missing.mean())
            if share >= _INDICATED:
                feature["missing_indicator"] = True
            reasons.append(f"{share:.1%} missing, replaced by the mean")
        return feature, "; ".join(reasons)

    def _ids(self, name: str, column: pa.ChunkedArray) -> tuple[dict[str, Any], str]:
        ids = encode(column)
        missing = ids.missing
        distinct = int(np.count_nonzero(np.bincount(ids.codes[~missing])))
        if name not in self.keep:
            if distinct < 2 and not missing.any():
                raise UserError("is constant")
            if {word for word in ids.words if word} <= _SPLITS:
                raise UserError("looks like the split of the lists")
            self._check_leak(None, ~missing if missing.any() else None)
            if are_numbers(ids.words):
                value = no_plain_number(ids.words)
                but = "" if value is None else f", but {value!r} is not a plain number"
                raise _WarnedError(
                    f"is text that looks like numbers{but}; convert it to numbers, and leave "
                    "missing ones empty"
                )
        joined = sum(SEPARATOR in str(w) for w in ids.words[: _SAMPLE if distinct else 0])
        scope, why = self._scope(ids.codes)
        if joined > 0.05 * distinct:
            entries = (part for word in ids.words if word for part in str(word).split(SEPARATOR))
            return _id_feature(name, scope, "categorical_list", len(set(entries)), why)
        rows = int((~missing).sum())
        if scope == "context":
            rows = int((~missing[self.first_rows]).sum())
        if name not in self.keep and distinct > 0.5 * rows and distinct > 20:
            if are_times(ids.words):
                raise UserError(_TIME)
            raise UserError(
                f"looks like an ID or free text: {distinct} distinct values in {rows} "
                f"{'lists' if scope == 'context' else 'rows'}"
            )
        self.codes[name] = ids.codes
        return _id_feature(name, scope, "categorical", distinct, why)

    def _array(self, name: str, column: pa.ChunkedArray) -> tuple[dict[str, Any], str]:
        flat = pc.list_flatten(column)
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        numbers = as_numbers(flat)
        present = lengths[lengths > 0]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        keys = numbers if numbers is not None else encode(flat).codes
        # A row is summarised by a hash of its entries, of which order and number matter.
        position = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        digest = np.bincount(rows, np.nan_to_num(keys) * (position + 1.7), len(lengths)) + lengths
        scope, why = self._scope(digest)
        is_float = types.is_floating(flat.type)
        if is_float and len(present) and (present == present[0]).all():
            feature = {"name": name, "scope": scope, "kind": "numeric", "width": int(present[0])}
            if len(present) < len(lengths):
                feature["missing"] = "mean"
            return feature, f"vectors of {present[0]} numbers; {why}"
        if is_float:
            raise UserError("has arrays of numbers of several lengths")
        distinct = len(np.unique(keys))
        return _id_feature(name, scope, "categorical_list", distinct, why)

    def _scope(self, values: NDArray[Any]) -> tuple[str, str]:
        """Returns the scope of a column and why."""
        several = self._lists.several_values(values)
        if not several:
            return "context", "one value in each list"
        _, counts = np.unique(values[self.first_rows], return_counts=True)
        # A rare value of the items makes as many lists differ as it begins, or more.
        if several <= len(self.first_rows) * _FEW_LISTS and several < counts.sum() - counts.max():
            return "example", f"differs within {several} of {len(self.first_rows)} {_CONTEXT}"
        return "example", "differs within lists"

    def _check_leak(
        self, numbers: NDArray[np.float64] | None, present: NDArray[np.bool_] | None
    ) -> None:
        """Raises `_WarnedError` for a column that equals a label, or is present where it is."""
        if present is None:
            return
        word = "non-zero" if numbers is not None else "present"
        count, rate = int(present.sum()), float(present.mean())
        for label, relevant in self._relevant.items():
            positives, share = int(relevant.sum()), float(relevant.mean())
            if not positives or share == 1.0:
                continue
            if np.array_equal(present, relevant):
                raise _WarnedError(f"leak: {word} exactly where {label!r} is")
            if count and share**count < _CHANCE and not (present & ~relevant).any():
                raise _WarnedError(f"leak: {word} only where {label!r} is")
            if rate < 0.5 and positives >= _MIN_POSITIVES and not (relevant & ~present).any():
                raise _WarnedError(
                    f"leak: {word} wherever {label!r} is, and in {rate:.1%} of all rows: probably "
                    "an earlier step, such as a click before a purchase"
                )


def _skewness(values: NDArray[np.float64]) -> float:
    centred = values - values.mean()
    return float(np.mean(centred**3) / np.std(values) ** 3) if np.std(values) > 0 else 0.0


def _id_feature(
    name: str, scope: str, kind: str, distinct: int, why: str
) -> tuple[dict[str, Any], str]:
    width = 4 if distinct <= 20 else 8 if distinct <= 200 else 16 if distinct <= 10_000 else 32
    feature = {"name": name, "scope": scope, "kind": kind, "embedding_dim": width}
    reason = f"{distinct} distinct IDs; {why}"
    if distinct > MAX_VOCABULARY:
        feature["hash_buckets"] = 1 << (distinct - 1).bit_length()
        reason += "; hashed, since a vocabulary would be large"
    elif distinct > 1000:
        feature["min_count"] = 2
        reason += "; IDs that occur once are out of vocabulary"
    return feature, reason
