"""Metrics by category, and the categories of the lists of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from tfr_moe._compat import tf, tfr
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.evaluation.results import CONFIDENCE, PerListResult, Policy
from tfr_moe.evaluation.significance import alignment
from tfr_moe.metrics.per_list import Array, Floats
from tfr_moe.schema import PAIR_SEPARATOR
from tfr_moe.scorers.gate_maps import strings


@dataclass(frozen=True)
class CategoryRow:
    """One metric of all models in one category.

    Attributes:
        positives: number of relevant items in its lists.
        evaluated: number of lists on which the metric is defined.
        means: per model the mean over these lists, NaN if there are none.
        differences: mean minus the mean of the baseline, for each other model; empty without a
            baseline.
        intervals: of the differences, 95 % t intervals over lists; NaN below two lists.
        significant: the models whose difference is significant at a false discovery rate of 5 %
            over all categories (Benjamini and Hochberg).
    """

    category: str
    lists: int
    positives: int
    evaluated: int
    means: dict[str, float]
    differences: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    significant: tuple[str, ...]


def _differences(values: Floats, groups: Array, count: int) -> tuple[Floats, Floats, Floats, Array]:
    """Means [C] of differences [n] by category, ends of their intervals, what is significant."""
    from scipy import stats  # takes long to load

    sizes, means = _means(values, groups, count)
    _, variances = _means(np.square(values - means[groups]), groups, count)
    freedom = np.maximum(sizes - 1, 1)
    errors = np.where(sizes > 1, np.sqrt(variances / freedom), np.nan)
    half_widths = stdtrit(freedom, (1 + CONFIDENCE) / 2) * errors
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * stdtr(freedom, -np.abs(means) / errors)
    p_values = np.where(np.isnan(p_values), 1.0, p_values)
    significant = stats.false_discovery_control(p_values) < 1 - CONFIDENCE
    return means, means - half_widths, means + half_widths, significant


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
    categories: Array | None = None,
) -> list[CategoryRow]:
    """One row per category, by decreasing number of lists (ties by name).

    Args:
        results: per model its result on the same lists. Without categories there are no rows.
        baseline: the model that the others are compared with.
        categories: names [n] for the lists of the first result, instead of its top categories.

    Raises:
        UserError: if the results are of different lists.
    """
    first = next(iter(results.values()))
    categories = first.categories if categories is None else categories
    if categories is None:
        return []
    names, groups = np.unique(categories.astype(str), return_inverse=True)
    groups = groups.reshape(-1)
    lists = np.bincount(groups, minlength=len(names))
    positives = np.bincount(groups, weights=first.num_relevant, minlength=len(names))
    evaluated, _ = _means(first.with_policy(metric, policy), groups, len(names))
    values = {
        model: result.with_policy(metric, policy)[alignment(first, result)]
        for model, result in results.items()
    }
    means = {model: _means(column, groups, len(names))[1] for model, column in values.items()}
    differences = {
        model: _differences(column - values[baseline], groups, len(names))
        for model, column in values.items()
        if baseline is not None and model != baseline
    }
    return [
        CategoryRow(
            category=str(names[i]),
            lists=int(lists[i]),
            positives=int(positives[i]),
            evaluated=int(evaluated[i]),
            means={model: float(of_model[i]) for model, of_model in means.items()},
            differences={model: float(means[i]) for model, (means, *_) in differences.items()},
            intervals={
                model: (float(low[i]), float(high[i]))
                for model, (_, low, high, _) in differences.items()
            },
            significant=tuple(model for model, (*_, sure) in differences.items() if sure[i]),
        )
        for i in np.argsort(-lists, kind="stable")
    ]


class Categories(NamedTuple):
    """Names [n] of the top categories of lists, and of the sub-categories as `top > sub`."""

    top: Array
    sub: Array


def categories_of(folder: DataFolder, split: str) -> Categories | None:
    """The categories of all lists of a split, in the order of the files.

    None if the schema has no hierarchy, or the split no lists.
    """
    tree = folder.schema.hierarchy
    if tree is None:
        return None
    spec = folder.schema.feature_spec("context")
    wanted = {name: spec[name] for name in (tree.parent, tree.child)}
    labels = folder.schema.label_spec()

    def parse(records: tf.Tensor) -> dict[str, tf.Tensor]:
        # The parser requires a column of the items: the label of the first item is the cheapest.
        return tfr.data.parse_from_example_list(
            records, list_size=1, context_feature_spec=wanted, example_feature_spec=labels
        )

    records = ElwcDatasetBuilder(folder).serialized_lists(split).batch(1024)
    parts = list(records.map(parse, num_parallel_calls=tf.data.AUTOTUNE))
    if not parts:
        return None
    top, child = (
        np.concatenate([strings(part[name]) for part in parts])
        for name in (tree.parent, tree.child)
    )
    return Categories(top, top + PAIR_SEPARATOR + child)
