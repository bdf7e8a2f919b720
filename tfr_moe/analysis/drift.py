"""How far the data of today is from that of a reference: per feature, label and category."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.table import Table
from scipy import stats

from tfr_moe.analysis.drift_limits import ColumnLimits, DriftLimits
from tfr_moe.analysis.drift_values import LENGTH, values_of
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK, SPLITS, FeatureSchema, Statistics, shard_files
from tfr_moe.utils.console import TableColumn, fitted_table
from tfr_moe.utils.formats import DASH, percent

MEASURES = {
    "psi": "PSI",
    "mean_shift": "mean shift",
    "missing": "missing",
    "out_of_vocabulary": "unknown IDs",
}
"""What has a limit, and its heading."""
ALL = ""
"""The category of rows over all lists."""
_COMPARED = attrgetter("scope", "kind", "width", "ratio", "clip", "transform")
"""What of a feature must be equal in both data sets."""
_BINS = 10
_ENTRIES = 20
_SAMPLE = 5000
_BATCH = 512
_SIGNIFICANCE = 1e-4
"""Probability that sampling noise alone exceeds what it may add to a limit, per number."""


@dataclass(frozen=True)
class DriftRow:
    """The drift of one column, over all lists or those of a top category.

    Attributes:
        column: a feature (`a[0]`, `a[1]` where it is wide), a label, or `list length`.
        category: the top category; empty for all lists.
        mean_shift: difference of the means in standard deviations of the reference; None for IDs.
        out_of_vocabulary: share of IDs that are not in the vocabulary of the reference; None for
            numbers and hashed IDs.
        mean: mean of the numbers before their transform, 0 without any; None for IDs.
        exceeded: limit -> what was allowed, with the noise of these numbers of lists.
    """

    column: str
    category: str
    reference_lists: int
    current_lists: int
    psi: float
    mean_shift: float | None
    missing: float
    reference_missing: float
    out_of_vocabulary: float | None
    reference_out_of_vocabulary: float | None
    mean: float | None
    reference_mean: float | None
    exceeded: dict[str, float]

    def change(self, measure: str) -> float:
        """How far one of `MEASURES` is from the reference, 0 if undefined; limits are of this."""
        value = getattr(self, measure) or 0.0
        if measure in ("psi", "mean_shift"):
            return abs(value)
        increase = value - (getattr(self, f"reference_{measure}") or 0.0)
        return abs(increase) if measure == "missing" else max(increase, 0.0)

    def text(self, measure: str, before: str = "({})") -> str:
        """One of `MEASURES` in its unit, a share with that of the reference."""
        value = getattr(self, measure)
        if value is None:
            return DASH
        if measure in ("psi", "mean_shift"):
            return f"{value:.2f}" if measure == "psi" else f"{value:+.2f} sd"
        reference = percent(getattr(self, f"reference_{measure}"), 1)
        return f"{percent(value, 1)} {before.format(reference)}"


class RecordedLists(NamedTuple):
    """Lists without labels to compare with a reference, such as those of recorded requests.

    `batches` have features [B, n] and [B, L, n] and the mask [B, L], by the reference's schema.
    """

    name: str
    batches: Iterable[Mapping[str, Array]]


def psi(reference: Array, current: Array) -> float:
    r"""The population stability index of two histograms, [bins] counts.

    $$ PSI = \sum_b (c_b - r_b) \ln \frac{c_b}{r_b} $$

    with r and c the shares of the bins that are not empty in both, half an observation being added
    to each. Of two samples of n and m values of one distribution it is about chi-squared with bins
    - 1 degrees of freedom, times 1/n + 1/m (Yurdakul 2018,
    https://scholarworks.wmich.edu/dissertations/3208).
    """
    used = reference + current > 0
    old, new = (side[used] + 0.5 for side in (reference, current))
    return float(stats.entropy(new, old) + stats.entropy(old, new))


class _Bins:
    """The bins of a column, from a sample of the reference; bin 0 is that of missing values.

    Numbers have bins between quantiles of the sample. The most frequent IDs of the vocabulary, or
    of the sample without one, have one each, all other known IDs one, and unknown IDs the last.
    """

    def __init__(self, sample: Array, words: Sequence[bytes] | None):
        self.of_numbers = sample.dtype.kind == "f"
        self.has_vocabulary = words is not None
        if self.of_numbers:
            present = sample[~np.isnan(sample)]
            quantiles = np.quantile(present, np.linspace(0, 1, _BINS + 1)) if len(present) else []
            # A value below the least one of the sample is in a bin of its own.
            lowest = [np.nextafter(quantiles[0], -np.inf)] if len(present) else []
            self._edges = np.unique(np.concatenate([lowest, quantiles]))
            self.number = len(self._edges) + 2
            return
        if words is None:
            ids, counts = np.unique(sample[sample != b""], return_counts=True)
            words = ids[np.argsort(-counts, kind="stable")][:_ENTRIES].tolist()
        self._words = pd.Index([b"", *words])
        self.number = _ENTRIES + 3

    def __call__(self, values: Array) -> Array:
        """The bin of each value."""
        if self.of_numbers:
            return np.where(np.isnan(values), 0, np.searchsorted(self._edges, values) + 1)
        index = self._words.get_indexer(values)
        return np.where(index < 0, self.number - 1, np.minimum(index, _ENTRIES + 1))


class _TopCategories:
    """The group of each list: its top category, of the reference's vocabulary; 0 for others."""

    def __init__(self, folder: DataFolder):
        tree = folder.schema.hierarchy
        paths = folder.tables().vocabularies
        self._parent = tree.parent if tree is not None and tree.parent in paths else None
        self.names = pd.Index([] if self._parent is None else _words(str(paths[self._parent])))

    def __len__(self) -> int:
        return len(self.names) + 1

    def __call__(self, batch: Mapping[str, Array]) -> Array:
        if self._parent is None:
            return np.zeros(len(batch[MASK]), np.int64)
        return self.names.get_indexer(batch[self._parent][:, 0]) + 1


def _words(path: str) -> list[bytes]:
    return [line for line in Path(path).read_bytes().split(b"\n") if line]


def _batches(folder: DataFolder) -> Iterator[dict[str, Array]]:
    builder = ElwcDatasetBuilder(folder, _BATCH)
    for split in SPLITS:
        if shard_files(folder.path, split):
            yield from builder.build_parsed_dataset(split).as_numpy_iterator()


class _Counts(NamedTuple):
    """What is counted of a data set, by group of lists and by column that the data has."""

    lists: Array  # [groups], number of lists
    bins: dict[str, Array]  # [groups, bins], number of values
    sums: dict[str, Array]  # [3, groups], of numbers, their squares, and the numbers as stored


def _count(
    bins_of: Mapping[str, _Bins],
    groups: _TopCategories,
    schema: FeatureSchema,
    statistics: Statistics,
    batches: Iterable[Mapping[str, Array]],
    where: str,
) -> _Counts:
    """Reads lists once and counts their values, by the statistics of the reference."""
    total = _Counts(np.zeros(len(groups), np.int64), {}, {})
    for batch in batches:
        group = groups(batch)
        total.lists[:] += np.bincount(group, minlength=len(groups))
        for name, column in values_of(schema, statistics, batch):
            if name not in bins_of:
                continue
            bins, of_value = bins_of[name], group[column.lists]
            shape = len(groups), bins.number
            cells = np.bincount(
                of_value * bins.number + bins(column.values), minlength=np.prod(shape)
            )
            total.bins[name] = total.bins.get(name, 0) + cells.reshape(shape)
            if bins.of_numbers:
                stored = column.values if column.stored is None else column.stored
                parts = (column.values, column.values**2, stored)
                present = ~np.isnan(column.values)
                sums = [
                    np.bincount(of_value, np.where(present, p, 0.0), len(groups)) for p in parts
                ]
                total.sums[name] = total.sums.get(name, 0) + np.array(sums)
    if not total.lists.sum():
        raise UserError(f"{where}: has no lists")
    return total


def _bins(folder: DataFolder, first: Sequence[Mapping[str, Array]]) -> dict[str, _Bins]:
    """The bins of all columns, from the first lists of the reference."""
    parts: dict[str, list[Array]] = {}
    for batch in first:
        for name, column in values_of(folder.schema, folder.statistics, batch):
            parts.setdefault(name, []).append(column.values)
    words = {name: _words(str(path)) for name, path in folder.tables().vocabularies.items()}
    return {name: _Bins(np.concatenate(part), words.get(name)) for name, part in parts.items()}


def measure_drift(
    reference: str | Path | DataFolder,
    current: str | Path | DataFolder | RecordedLists,
    limits: DriftLimits | None = None,
) -> list[DriftRow]:
    """Compares two data sets, over all lists and by top category.

    Both are read once in batches; memory is that of the counts, of the vocabularies and of the
    first 5,000 reference lists, whose quantiles are the bins of numbers.

    A limit is compared after an allowance for sampling noise, which shrinks with the number of
    lists: the values of one list may all depend on each other, so that lists are what is counted.

    Args:
        reference: data set, such as that of the model in production.
        current: data set of today, whose features that only it has are ignored; or recorded lists,
            without labels.

    Returns:
        For each column a row over all lists, then one for each category of enough lists in both.

    Raises:
        UserError: for a data set without lists, or without a column of the reference.
    """
    limits = limits or DriftLimits()
    before = open_data(reference)
    schema, where, batches = _current(before, current)
    limits.check_names([LENGTH, *before.schema.labels, *(f.name for f in before.schema.features)])
    groups, rest = _TopCategories(before), _batches(before)
    first: list[dict[str, Array]] = []
    while sum(len(b[MASK]) for b in first) < _SAMPLE and (batch := next(rest, None)):
        first.append(batch)
    bins = _bins(before, first)
    name = f"data {before.path}"
    old = _count(bins, groups, before.schema, before.statistics, chain(first, rest), name)
    new = _count(bins, groups, schema, before.statistics, batches, where)
    selected = [(ALL, np.arange(len(groups)))]
    for number, category in enumerate(groups.names, start=1):
        if min(old.lists[number], new.lists[number]) >= limits.min_lists:
            selected.append((category.decode("utf-8", "replace"), np.array([number])))
    return [
        _row(column, category, index, bins[column], old, new, limits.of(column))
        for column in bins
        if column in new.bins
        for category, index in selected
    ]


def _current(
    reference: DataFolder, current: str | Path | DataFolder | RecordedLists
) -> tuple[FeatureSchema, str, Iterable[Mapping[str, Array]]]:
    """The schema of the current lists, their name in messages, and their batches."""
    if isinstance(current, RecordedLists):
        return reference.schema, current.name, current.batches
    now, known = open_data(current), reference.schema
    kinds = {feature.name: _COMPARED(feature) for feature in now.schema.features}
    for feature in known.features:
        if kinds.get(feature.name) != _COMPARED(feature):
            what = "has another kind of" if feature.name in kinds else "has no"
            raise UserError(
                f"data {now.path}: {what} feature {feature.name!r} of data {reference.path}"
            )
    for name in ("labels", "hierarchy"):
        if getattr(known, name) != getattr(now.schema, name):
            raise UserError(f"data {now.path}: has other {name} than data {reference.path}")
    return now.schema, f"data {now.path}", _batches(now)


def _row(
    column: str,
    category: str,
    index: Array,
    bins: _Bins,
    old: _Counts,
    new: _Counts,
    limits: ColumnLimits,
) -> DriftRow:
    counts = [side.bins[column][index].sum(axis=0) for side in (old, new)]
    missing = [c[0] / max(c.sum(), 1) for c in counts]
    unknown: list[Any] = [None, None]
    if bins.has_vocabulary:
        unknown = [c[-1] / max(c[1:].sum(), 1) for c in counts]
    shift: float | None = None
    means: list[Any] = [None, None]
    if bins.of_numbers:
        (mean, square, before), (other, _, now) = (
            side.sums[column][:, index].sum(axis=1) / max(int(c[1:].sum()), 1)
            for side, c in zip((old, new), counts, strict=True)
        )
        shift = float((other - mean) / np.sqrt(max(square - mean**2, 1e-12 * (1e-12 + mean**2))))
        means = [float(before), float(now)]
    row = DriftRow(
        column, category, int(old.lists[index].sum()), int(new.lists[index].sum()), psi(*counts),
        shift, missing[1], missing[0], unknown[1], unknown[0], means[1], means[0], {},
    )  # fmt: skip
    noise = _noise(row, int(((counts[0] + counts[1]) > 0).sum()))
    for name in MEASURES:
        limit = getattr(limits, name)
        if limit is not None and row.change(name) > limit + noise[name]:
            row.exceeded[name] = limit + noise[name]
    return row


def _noise(row: DriftRow, bins: int) -> dict[str, float]:
    """What sampling alone adds to each of `MEASURES`, with the number of bins that have values."""
    lists = row.reference_lists, row.current_lists
    variance = sum(1.0 / max(n, 1) for n in lists)
    z = stats.norm.isf(_SIGNIFICANCE / 2)
    noise = {
        "psi": stats.chi2.isf(_SIGNIFICANCE, max(bins - 1, 1)) * variance,
        "mean_shift": z * np.sqrt(variance),
    }
    for name in ("missing", "out_of_vocabulary"):
        shares = [getattr(row, f"reference_{name}") or 0.0, getattr(row, name) or 0.0]
        pooled = np.average(shares, weights=lists)
        noise[name] = z * np.sqrt(pooled * (1 - pooled) * variance)
    return {name: float(value) for name, value in noise.items()}


def drift_table(rows: Sequence[DriftRow], width: int | None = None) -> Table:
    """All columns over all lists, and of the top categories those above a limit."""
    listed = [row for row in rows if row.category == ALL or row.exceeded]
    categories = {row.category for row in rows} - {ALL}
    lists = f"{rows[0].current_lists:,} lists, reference {rows[0].reference_lists:,}"
    return fitted_table(
        [
            TableColumn("column", [row.column for row in listed], numeric=False),
            TableColumn("category", [row.category or "all" for row in listed], numeric=False),
            TableColumn("above limit", [", ".join(row.exceeded) for row in listed], numeric=False),
            *(
                TableColumn(heading, [row.text(measure) for row in listed])
                for measure, heading in MEASURES.items()
            ),
        ],
        always=3,
        width=width,
        caption=f"{lists}; {len(categories)} top categories compared on their own",
    )
