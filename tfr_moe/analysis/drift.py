"""How far the data of today is from that of a reference: per feature, label and category."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfr_moe.analysis.drift_limits import DriftLimits, Limits
from tfr_moe.analysis.drift_values import LENGTH, values_of
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder, open_data
from tfr_moe.errors import UserError
from tfr_moe.schema import (
    MASK,
    SPLITS,
    FeatureSchema,
    Statistics,
    shard_files,
)

Array = NDArray[Any]

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
        reference_lists: number of reference lists.
        current_lists: number of current lists.
        psi: population stability index.
        mean_shift: difference of the means in standard deviations of the reference; None for IDs.
        missing: share of missing values.
        reference_missing: that of the reference.
        out_of_vocabulary: share of IDs that are not in the vocabulary of the reference; None for
            numbers and hashed IDs.
        reference_out_of_vocabulary: that of the reference.
        mean: mean of the numbers before their transform, 0 without any; None for IDs.
        reference_mean: that of the reference.
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


class RecordedLists(NamedTuple):
    """Lists without labels to compare with a reference, such as those of recorded requests.

    Attributes:
        name: in messages.
        batches: features [B, n] and [B, L, n] and the mask [B, L], by the reference's schema.
    """

    name: str
    batches: Iterable[Mapping[str, Array]]


def psi(reference: Array, current: Array) -> float:
    r"""The population stability index of two histograms, [bins] counts.

    $$ PSI = \sum_b (c_b - r_b) \ln \frac{c_b}{r_b} $$

    with r and c the shares of the bins that are not empty in both, half an observation being added
    to each. It is the sum of both Kullback-Leibler divergences. Of two samples of n and m values of
    one distribution it is about chi-squared with bins - 1 degrees of freedom, times 1/n + 1/m
    (Yurdakul 2018, https://scholarworks.wmich.edu/dissertations/3208).

    Example:
        >>> round(psi(np.array([49.5, 49.5]), np.array([24.5, 74.5])), 4)
        0.2747
    """
    used = reference + current > 0
    counts = [side[used] + 0.5 for side in (reference, current)]
    shares = [side / side.sum() for side in counts]
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


class _Histogram:
    """Counts of the bins of a column by group of lists; bin 0 is that of missing values.

    Args:
        sample: values of the reference, from which bins are made: between quantiles of numbers,
            and for each of the most frequent IDs, all other known IDs, and unknown ones.
        words: the vocabulary, most frequent first; None for numbers and hashed IDs.
        groups: number of groups.
    """

    def __init__(self, sample: Array, words: Sequence[bytes] | None, groups: int):
        self.is_number = sample.dtype.kind == "f"
        self.has_vocabulary = words is not None
        if self.is_number:
            present = sample[~np.isnan(sample)]
            quantiles = np.quantile(present, np.linspace(0, 1, _BINS + 1)) if len(present) else []
            # A value below the least one of the sample is in a bin of its own.
            lowest = [np.nextafter(quantiles[0], -np.inf)] if len(present) else []
            self._edges = np.unique(np.concatenate([lowest, quantiles]))
            bins = len(self._edges) + 2
        else:
            if words is None:
                found, counts = np.unique(sample[sample != b""], return_counts=True)
                words = found[np.argsort(-counts, kind="stable")][:_ENTRIES].tolist()
            self._bin = {w: min(n, _ENTRIES + 1) for n, w in enumerate(words, start=1)}
            self._bin[b""] = 0
            bins = _ENTRIES + 3
        self._unknown = bins - 1
        self._groups = groups
        self.counts = np.zeros([groups, bins], np.int64)
        self.sums = np.zeros([3, groups])

    def empty(self) -> _Histogram:
        """The same bins without counts."""
        other = object.__new__(_Histogram)
        other.__dict__.update(self.__dict__)
        other.counts, other.sums = np.zeros_like(self.counts), np.zeros_like(self.sums)
        return other

    def add(self, values: Array, groups: Array, stored: Array) -> None:
        """Counts values of the lists of some groups; sums them, their squares, and as stored."""
        if self.is_number:
            missing = np.isnan(values)
            bins = np.where(missing, 0, np.searchsorted(self._edges, values) + 1)
            for i, numbers in enumerate((values, values**2, stored)):
                weights = np.where(missing, 0.0, numbers)
                self.sums[i] += np.bincount(groups, weights, self._groups)
        else:
            words, index = np.unique(values, return_inverse=True)
            bins = np.array([self._bin.get(w, self._unknown) for w in words.tolist()])[index]
        width = self.counts.shape[1]
        self.counts += np.bincount(groups * width + bins, minlength=self.counts.size).reshape(
            self.counts.shape
        )


class _Collected(NamedTuple):
    """Histograms by column, the number of lists by group, and the statistics of the reference."""

    histograms: dict[str, _Histogram]
    lists: Array
    statistics: Statistics


def _batches(folder: DataFolder) -> Iterator[dict[str, Array]]:
    builder = ElwcDatasetBuilder(folder, _BATCH)
    for split in SPLITS:
        if shard_files(folder.path, split):
            yield from builder.build_parsed_dataset(split).as_numpy_iterator()


class _Groups:
    """The group of each list: its top category, of the reference's vocabulary; 0 for others."""

    def __init__(self, folder: DataFolder):
        tree = folder.schema.hierarchy
        paths = folder.tables().vocabularies
        self._parent = tree.parent if tree is not None and tree.parent in paths else None
        self.names = [] if self._parent is None else _words(str(paths[self._parent]))
        self._number = {name: n for n, name in enumerate(self.names, start=1)}

    def __len__(self) -> int:
        return len(self.names) + 1

    def __call__(self, batch: Mapping[str, Array]) -> Array:
        if self._parent is None:
            return np.zeros(len(batch[MASK]), np.int64)
        names, index = np.unique(batch[self._parent][:, 0], return_inverse=True)
        return np.array([self._number.get(name, 0) for name in names.tolist()])[index]


def _words(path: str) -> list[bytes]:
    return [line for line in Path(path).read_bytes().split(b"\n") if line]


def _collect_reference(folder: DataFolder, groups: _Groups) -> _Collected:
    """Reads all lists of the reference once; the first ones define the bins."""
    batches = _batches(folder)
    first: list[dict[str, Array]] = []
    while sum(len(b[MASK]) for b in first) < _SAMPLE and (batch := next(batches, None)):
        first.append(batch)
    if not first:
        raise UserError(f"data {folder.path}: has no lists")
    empty = _Collected(
        _histograms(folder, first, len(groups)), np.zeros(len(groups), np.int64), folder.statistics
    )
    return _count(empty, folder.schema, chain(first, batches), groups, f"data {folder.path}")


def _count(
    into: _Collected,
    schema: FeatureSchema,
    batches: Iterable[Mapping[str, Array]],
    groups: _Groups,
    where: str,
) -> _Collected:
    """Reads lists once and counts their values; only columns that they have are in the result."""
    found = set()
    for batch in batches:
        group = groups(batch)
        into.lists[:] += np.bincount(group, minlength=len(groups))
        for name, column in values_of(schema, into.statistics, batch):
            if name in into.histograms:
                found.add(name)
                stored = column.values if column.stored is None else column.stored
                into.histograms[name].add(column.values, group[column.lists], stored)
    if not into.lists.sum():
        raise UserError(f"{where}: has no lists")
    return into._replace(histograms={n: h for n, h in into.histograms.items() if n in found})


def _histograms(
    folder: DataFolder, first: Sequence[Mapping[str, Array]], groups: int
) -> dict[str, _Histogram]:
    parts: dict[str, list[Array]] = {}
    for batch in first:
        for name, column in values_of(folder.schema, folder.statistics, batch):
            parts.setdefault(name, []).append(column.values)
    words = {name: _words(str(p)) for name, p in folder.tables().vocabularies.items()}
    return {
        name: _Histogram(np.concatenate(part), words.get(name), groups)
        for name, part in parts.items()
    }


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
        limits: None for the defaults.

    Returns:
        For each column a row over all lists, then one for each category of enough lists in both.

    Raises:
        UserError: for a data set without lists, or without a column of the reference.
    """
    limits = limits or DriftLimits()
    before = open_data(reference)
    schema, where, batches = _current(before, current)
    limits.check_names([LENGTH, *before.schema.labels, *(f.name for f in before.schema.features)])
    groups = _Groups(before)
    old = _collect_reference(before, groups)
    empty = {name: histogram.empty() for name, histogram in old.histograms.items()}
    none = _Collected(empty, np.zeros(len(groups), np.int64), old.statistics)
    new = _count(none, schema, batches, groups, where)
    selected = [(ALL, np.arange(len(groups)))]
    for number, name in enumerate(groups.names, start=1):
        if min(old.lists[number], new.lists[number]) >= limits.min_lists:
            selected.append((name.decode("utf-8", "replace"), np.array([number])))
    return [
        _row(column, category, index, old, new, limits.of(column))
        for column in new.histograms
        for category, index in selected
    ]


def _current(
    reference: DataFolder, current: str | Path | DataFolder | RecordedLists
) -> tuple[FeatureSchema, str, Iterable[Mapping[str, Array]]]:
    if isinstance(current, RecordedLists):
        return reference.schema, current.name, current.batches
    now = open_data(current)
    _check_same_columns(reference, now)
    return now.schema, f"data {now.path}", _batches(now)


def _check_same_columns(before: DataFolder, now: DataFolder) -> None:
    one, other = before.schema, now.schema
    kinds = {feature.name: _COMPARED(feature) for feature in other.features}
    for feature in one.features:
        if kinds.get(feature.name) != _COMPARED(feature):
            what = "has another kind of" if feature.name in kinds else "has no"
            raise UserError(
                f"data {now.path}: {what} feature {feature.name!r} of data {before.path}"
            )
    for name in ("labels", "hierarchy"):
        if getattr(one, name) != getattr(other, name):
            raise UserError(f"data {now.path}: has other {name} than data {before.path}")


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0


def _row(
    column: str, category: str, index: Array, old: _Collected, new: _Collected, limits: Limits
) -> DriftRow:
    one, other = old.histograms[column], new.histograms[column]
    counts = [h.counts[index].sum(axis=0) for h in (one, other)]
    lists = [int(side.lists[index].sum()) for side in (old, new)]
    noise = sum(1.0 / max(n, 1) for n in lists)
    missing = [_share(c[0], c.sum()) for c in counts]
    unknown: list[float | None] = [None, None]
    if one.has_vocabulary:
        unknown = [_share(c[-1], c[1:].sum()) for c in counts]
    shift: float | None = None
    stored: list[float | None] = [None, None]
    if one.is_number:
        present = [max(int(c[1:].sum()), 1) for c in counts]
        pairs = list(zip((one, other), present, strict=True))
        means = [h.sums[0, index].sum() / n for h, n in pairs]
        stored = [float(h.sums[2, index].sum() / n) for h, n in pairs]
        variance = one.sums[1, index].sum() / present[0] - means[0] ** 2
        deviation = np.sqrt(max(variance, 1e-12 * (1e-12 + means[0] ** 2)))
        shift = float((means[1] - means[0]) / deviation)
    used = int(((counts[0] + counts[1]) > 0).sum())
    of_index = psi(*counts)
    z = float(stats.norm.isf(_SIGNIFICANCE / 2))

    def of_shares(values: Sequence[float | None]) -> float:
        pooled = sum((v or 0.0) * n for v, n in zip(values, lists, strict=True)) / sum(lists)
        return z * float(np.sqrt(pooled * (1 - pooled) * noise))

    measured: dict[str, tuple[float | None, float]] = {
        "psi": (of_index, float(stats.chi2.isf(_SIGNIFICANCE, max(used - 1, 1))) * noise),
        "mean_shift": (None if shift is None else abs(shift), z * float(np.sqrt(noise))),
        "missing": (abs(missing[1] - missing[0]), of_shares(missing)),
        "out_of_vocabulary": (
            None if unknown[0] is None or unknown[1] is None else unknown[1] - unknown[0],
            of_shares(unknown),
        ),
    }
    exceeded = {}
    for name, (value, allowance) in measured.items():
        limit = getattr(limits, name)
        if value is not None and limit is not None and value > limit + allowance:
            exceeded[name] = limit + allowance
    return DriftRow(
        column, category, lists[0], lists[1], of_index, shift, missing[1], missing[0], unknown[1],
        unknown[0], stored[1], stored[0], exceeded,
    )  # fmt: skip
