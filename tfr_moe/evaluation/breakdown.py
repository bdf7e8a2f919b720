"""Metrics by top category and by buckets of categories of similar training size.

Fig. 4 of Xiao et al. 2021 shows the gain over the baseline by the size of the categories' training
data: small categories gain most. `bucketed` makes those buckets.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.results import PerListResult, Policy, summarize
from tfr_moe.evaluation.scoring import strings
from tfr_moe.evaluation.significance import alignment, compare
from tfr_moe.metrics.per_list import Array, Floats
from tfr_moe.schema import PAIR_SEPARATOR


@dataclass(frozen=True)
class CategoryRow:
    """One metric of all models in one category.

    Attributes:
        category: its name.
        lists: number of lists.
        positives: number of relevant items in them.
        evaluated: number of lists on which the metric is defined.
        means: per model the mean over these lists, NaN if there are none.
        differences: mean minus the mean of the baseline, for each other model; empty without a
            baseline.
    """

    category: str
    lists: int
    positives: int
    evaluated: int
    means: dict[str, float]
    differences: dict[str, float]


def _means(values: Floats, groups: Array, count: int) -> tuple[Array, Floats]:
    """Number of values and their mean per group; NaN values are skipped."""
    evaluated = ~np.isnan(values)
    sizes = np.bincount(groups[evaluated], minlength=count)
    sums = np.bincount(groups[evaluated], weights=values[evaluated], minlength=count)
    return sizes, np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


def per_category(
    results: Mapping[str, PerListResult],
    metric: str,
    baseline: str | None = None,
    policy: Policy = "skip",
) -> list[CategoryRow]:
    """One row per category, by decreasing number of lists (ties by name).

    Args:
        results: per model its result on the same lists. The categories are those of the first;
            without categories there are no rows.
        metric: a metric of all results.
        baseline: the model that the others are compared with.
        policy: value of lists without a relevant item.

    Raises:
        UserError: if the results are of different lists.
    """
    first = next(iter(results.values()))
    if first.categories is None:
        return []
    names, groups = np.unique(first.categories.astype(str), return_inverse=True)
    groups = groups.reshape(-1)
    lists = np.bincount(groups, minlength=len(names))
    positives = np.bincount(groups, weights=first.num_relevant, minlength=len(names))
    evaluated, _ = _means(first.with_policy(metric, policy), groups, len(names))
    means = {
        model: _means(
            result.with_policy(metric, policy)[alignment(first, result)], groups, len(names)
        )[1]
        for model, result in results.items()
    }
    return [
        CategoryRow(
            category=str(names[i]),
            lists=int(lists[i]),
            positives=int(positives[i]),
            evaluated=int(evaluated[i]),
            means={model: float(values[i]) for model, values in means.items()},
            differences={
                model: float(values[i] - means[baseline][i])
                for model, values in means.items()
                if baseline is not None and model != baseline
            },
        )
        for i in np.argsort(-lists, kind="stable")
    ]


def bucketed(
    result: PerListResult, training_sizes: Mapping[str, int], num_buckets: int | Sequence[int]
) -> PerListResult:
    """The same result with buckets of categories of similar size in the place of categories.

    Categories are ordered by their training size and cut into `num_buckets` runs of (nearly) equal
    numbers of categories. A bucket is named by its number, smallest categories first, and its range
    of sizes: `1: 20 to 340`.

    Args:
        result: with categories.
        training_sizes: per category the size of its training data, such as its number of lists; a
            category that is not there counts 0.
        num_buckets: from 1 to the number of categories; or, instead of a number, the sizes at which
            buckets begin (empty buckets are left out).

    Raises:
        UserError: for a result without categories or a number of buckets out of range.
    """
    if result.categories is None:
        raise UserError("buckets need categories: the schema has no hierarchy")
    names, groups = np.unique(result.categories.astype(str), return_inverse=True)
    if isinstance(num_buckets, int) and not 1 <= num_buckets <= len(names):
        raise UserError(f"num_buckets must be from 1 to {len(names)} (categories): {num_buckets}")
    sizes = np.array([training_sizes.get(str(name), 0) for name in names])
    bucket_names: Array = np.empty(len(names), dtype=object)
    order = np.argsort(sizes, kind="stable")
    if isinstance(num_buckets, int):
        parts = np.array_split(order, num_buckets)
    else:
        parts = np.split(order, np.searchsorted(sizes[order], sorted(num_buckets)))
    for number, members in enumerate(filter(len, parts), start=1):
        low, high = sizes[members].min(), sizes[members].max()
        bucket_names[members] = f"{number}: {low} to {high}"
    return dataclasses.replace(result, categories=bucket_names[groups.reshape(-1)])


LEVELS = ("top", "sub")


class Categories(NamedTuple):
    """Names [n] of the top categories of lists, and of the sub-categories as `top > sub`."""

    top: Array
    sub: Array


def read_categories(folder: DataFolder, split: str, batch_size: int = 4096) -> Iterator[Categories]:
    """Reads the categories of the lists of a split, batch by batch in the order of the files.

    Only these two columns are parsed. Yields nothing if the schema has no hierarchy.
    """
    tree = folder.schema.hierarchy
    if tree is None:
        return
    spec = folder.schema.feature_spec("context")
    wanted = {name: spec[name] for name in (tree.parent, tree.child)}
    labels = folder.schema.label_spec()

    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        # The parser requires a column of the items: the label of the first item is the cheapest.
        return tfr.data.parse_from_example_list(
            records, list_size=1, context_feature_spec=wanted, example_feature_spec=labels
        )

    for found in ElwcDatasetBuilder(folder).serialized_lists(split).batch(batch_size).map(parse):
        top, child = strings(found[tree.parent]), strings(found[tree.child])
        yield Categories(top, top + PAIR_SEPARATOR + child)


def training_sizes(folder: DataFolder) -> dict[str, dict[str, int]]:
    """Number of training lists by level (`top`, `sub`) and category."""
    counts: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    for found in read_categories(folder, "train"):
        for level in LEVELS:
            counts[level].update(getattr(found, level).tolist())
    return {level: dict(count) for level, count in counts.items()}


def categories_of(folder: DataFolder, split: str) -> Categories | None:
    """The categories of all lists of a split; None if the schema has no hierarchy."""
    parts = list(read_categories(folder, split))
    if not parts:
        return None
    top, sub = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Categories(top, sub)


@dataclass(frozen=True)
class SizeBucket:
    """The metric of a model in a bucket of categories of similar training size.

    Attributes:
        name: number of the bucket, by size, and range of sizes: `1: 20 to 340`.
        categories: number of categories.
        evaluated: number of lists on which the metric is defined.
        mean: of the model.
        difference: from the baseline; None for the baseline itself or without a baseline.
        low: lower end of the 95 % interval: of the difference (bootstrap over lists), or of the
            mean (t) where there is no difference.
        high: upper end.
    """

    name: str
    categories: int
    evaluated: int
    mean: float
    difference: float | None
    low: float
    high: float


def gain_by_size(
    results: Mapping[str, PerListResult],
    metric: str,
    sizes: Mapping[str, int],
    baseline: str | None = None,
    num_buckets: int = 5,
    policy: Policy = "skip",
) -> dict[str, list[SizeBucket]]:
    """Each model by buckets of categories of similar training size, as Fig. 4 of Xiao et al. 2021.

    Args:
        results: per model its result on the same lists, with categories.
        metric: a metric of all results.
        sizes: number of training lists by category.
        baseline: the model that the others are compared with.
        num_buckets: maximum number of buckets.
        policy: value of lists without a relevant item.

    Raises:
        UserError: if the results are of different lists or have no categories.
    """
    first = next(iter(results.values()))
    names = np.unique(np.asarray(first.categories, dtype=str))
    cut = bucketed(first, sizes, max(1, min(num_buckets, len(names))))
    buckets = np.asarray(cut.categories, dtype=str)
    labels = sorted(set(buckets), key=lambda name: int(name.partition(":")[0]))
    counts = {
        label: len(np.unique(np.asarray(first.categories, dtype=str)[buckets == label]))
        for label in labels
    }
    aligned = {m: result.select(alignment(first, result)) for m, result in results.items()}
    found: dict[str, list[SizeBucket]] = {}
    for model in results:
        rows = []
        for label in labels:
            kept = buckets == label
            mine = aligned[model].select(kept)
            summary = summarize(mine, policy)[metric]
            low, high, difference = summary.low, summary.high, None
            if baseline is not None and model != baseline:
                against = compare(mine, aligned[baseline].select(kept), metric, policy)
                low, high, difference = against.low, against.high, against.difference
            rows.append(
                SizeBucket(
                    label, counts[label], summary.evaluated, summary.mean, difference, low, high
                )
            )
        found[model] = rows
    return found
