"""Metrics by category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from tfr_moe.evaluation.results import CONFIDENCE, PerListResult, Policy
from tfr_moe.evaluation.significance import alignment

NO_CATEGORY = "(none)"
"""How pages and tables call the lists without a category."""


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

    @property
    def title(self) -> str:
        """The category, as pages and tables show it."""
        return self.category or NO_CATEGORY


class _GroupMeans(NamedTuple):
    """Per group the number of values that are no NaN, their mean and its standard error."""

    evaluated: NDArray[np.int64]
    mean: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64], groups: NDArray[np.intp], number: int) -> _GroupMeans:
        """The values of each group from 0 to `number` - 1; NaN where a mean or error has none."""
        known = ~np.isnan(values)
        values, groups = values[known], groups[known]
        count = np.bincount(groups, minlength=number)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(groups, values, number) / count
            squares = np.bincount(groups, (values - mean[groups]) ** 2, number)
            return cls(count, mean, np.sqrt(squares / (count - 1) / count))


class _Differences(NamedTuple):
    """Per group a mean difference, the ends of its interval, and whether it is significant."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    significant: NDArray[np.bool_]


def _differences(groups: _GroupMeans) -> _Differences:
    from scipy import stats  # takes long to load

    freedom = np.maximum(groups.evaluated - 1, 1)
    half_widths = stdtrit(freedom, (1 + CONFIDENCE) / 2) * groups.error
    with np.errstate(invalid="ignore", divide="ignore"):
        p_values = np.nan_to_num(2 * stdtr(freedom, -np.abs(groups.mean) / groups.error), nan=1.0)
    significant = stats.false_discovery_control(p_values) < 1 - CONFIDENCE
    mean = groups.mean
    return _Differences(mean, mean - half_widths, mean + half_widths, significant)


def per_category(
    results: Mapping[str, PerListResult],
    metric: str,
    baseline: str | None = None,
    policy: Policy = "skip",
    level: Literal["top", "sub"] = "top",
) -> list[CategoryRow]:
    """One row per top or sub-category, by decreasing number of lists (ties by name).

    `results` are per model its result on the same lists; without categories there are no rows. The
    other models are compared with the `baseline`.

    Raises:
        UserError: if the results are of different lists.
    """
    first = next(iter(results.values()))
    categories = first.categories if level == "top" else first.sub_categories
    if categories is None:
        return []
    names, of_list = np.unique(categories.astype(str), return_inverse=True)
    groups_of = partial(_GroupMeans.of, groups=of_list, number=len(names))
    values = {
        model: result.with_policy(metric, policy)[alignment(first, result)]
        for model, result in results.items()
    }
    groups = {model: groups_of(of_model) for model, of_model in values.items()}
    lists = np.bincount(of_list)
    positives = np.bincount(of_list, first.num_relevant)
    differences = {
        model: _differences(groups_of(values[model] - values[baseline]))
        for model in results
        if baseline is not None and model != baseline
    }
    return [
        CategoryRow(
            category=str(names[n]),
            lists=int(lists[n]),
            positives=int(positives[n]),
            evaluated=int(next(iter(groups.values())).evaluated[n]),
            means={model: float(of_model.mean[n]) for model, of_model in groups.items()},
            differences={model: float(of.mean[n]) for model, of in differences.items()},
            intervals={m: (float(of.low[n]), float(of.high[n])) for m, of in differences.items()},
            significant=tuple(m for m, of in differences.items() if of.significant[n]),
        )
        for n in np.argsort(-lists, kind="stable")
    ]
