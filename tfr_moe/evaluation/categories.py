"""The same metrics by top category, and by buckets of categories of similar size.

Fig. 4 of Adv & HSC-MoE puts top categories into buckets by the size of their training data and shows
the gain over the baseline in each: small categories gained most. `bucketed` makes those buckets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import Array, Floats
from tfr_moe.evaluation.result import PerListResult, Policy
from tfr_moe.evaluation.significance import alignment


@dataclass(frozen=True)
class CategoryRow:
    """One metric of all models in one category.

    Attributes:
        category: its name.
        lists: number of lists.
        positives: number of relevant items in them.
        judged: number of lists that the metric can judge.
        means: per model the mean over the judged lists, NaN where there are none.
        differences: per model other than the baseline its mean minus the baseline's; empty without
            a baseline.
    """

    category: str
    lists: int
    positives: int
    judged: int
    means: dict[str, float]
    differences: dict[str, float]


def _means(values: Floats, groups: Array, count: int) -> tuple[Array, Floats]:
    """Number of values and their mean per group, NaN values left out."""
    judged = ~np.isnan(values)
    sizes = np.bincount(groups[judged], minlength=count)
    sums = np.bincount(groups[judged], weights=values[judged], minlength=count)
    return sizes, np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


def per_category(
    results: Mapping[str, PerListResult],
    metric: str,
    baseline: str | None = None,
    policy: Policy = "skip",
) -> list[CategoryRow]:
    """One row a category, the one with the most lists first (ties by name).

    Args:
        results: per model its result, all of the same lists. The categories are those of the
            first; without categories there are no rows.
        metric: a metric computed in all of them.
        baseline: the model that the others are compared with.
        policy: what lists with nothing relevant count.

    Raises:
        UserError: where the results are not of the same lists.
    """
    first = next(iter(results.values()))
    if first.categories is None:
        return []
    names, groups = np.unique(first.categories.astype(str), return_inverse=True)
    groups = groups.reshape(-1)
    lists = np.bincount(groups, minlength=len(names))
    positives = np.bincount(groups, weights=first.num_relevant, minlength=len(names))
    judged, _ = _means(first.with_policy(metric, policy), groups, len(names))
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
            judged=int(judged[i]),
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
    result: PerListResult, training_sizes: Mapping[str, int], num_buckets: int
) -> PerListResult:
    """The same result with buckets of categories of similar size in the place of categories.

    Categories are ordered by their training size and cut into `num_buckets` runs of (nearly) equal
    numbers of categories. A bucket is named by its number, smallest categories first, and its range
    of sizes: `1: 20 to 340`.

    Args:
        result: with categories.
        training_sizes: per category the size of its training data, such as its number of lists; a
            category that is not there counts 0.
        num_buckets: from 1 to the number of categories.

    Raises:
        UserError: for a result without categories or a number of buckets out of range.
    """
    if result.categories is None:
        raise UserError("buckets need categories: the schema has no hierarchy")
    names, groups = np.unique(result.categories.astype(str), return_inverse=True)
    if not 1 <= num_buckets <= len(names):
        raise UserError(f"num_buckets must be from 1 to {len(names)} (categories): {num_buckets}")
    sizes = np.array([training_sizes.get(str(name), 0) for name in names])
    bucket_names: Array = np.empty(len(names), dtype=object)
    parts = np.array_split(np.argsort(sizes, kind="stable"), num_buckets)
    for number, members in enumerate(parts, start=1):
        low, high = sizes[members].min(), sizes[members].max()
        bucket_names[members] = f"{number}: {low} to {high}"
    return dataclasses.replace(result, categories=bucket_names[groups.reshape(-1)])
