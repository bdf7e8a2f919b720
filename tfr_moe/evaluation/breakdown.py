"""Metrics by category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
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


def _differences(groups: Any) -> dict[str, dict[str, Any]]:
    """Category -> mean, ends of its interval, and whether it is significant, of grouped values."""
    from scipy import stats  # takes long to load

    means, errors = groups.mean(), groups.sem()
    freedom = np.maximum(groups.count() - 1, 1)
    half_widths = stdtrit(freedom, (1 + CONFIDENCE) / 2) * errors
    p_values = (2 * stdtr(freedom, -means.abs() / errors)).fillna(1.0)
    significant = stats.false_discovery_control(p_values) < 1 - CONFIDENCE
    columns = {"low": means - half_widths, "high": means + half_widths}
    return means.to_frame("mean").assign(**columns, significant=significant).to_dict("index")


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
    import pandas as pd  # takes long to load

    first = next(iter(results.values()))
    categories = first.categories if level == "top" else first.sub_categories
    if categories is None:
        return []
    names = categories.astype(str)
    values = pd.DataFrame(
        {
            model: result.with_policy(metric, policy)[alignment(first, result)]
            for model, result in results.items()
        }
    )
    groups = values.groupby(names)
    lists, means, evaluated = groups.size(), groups.mean().to_dict("index"), groups.count()
    positives = pd.Series(first.num_relevant).groupby(names).sum()
    differences = {
        model: _differences((values[model] - values[baseline]).groupby(names))
        for model in results
        if baseline is not None and model != baseline
    }
    return [
        CategoryRow(
            category=name,
            lists=int(lists[name]),
            positives=int(positives[name]),
            evaluated=int(evaluated.loc[name].iloc[0]),
            means=means[name],
            differences={model: of[name]["mean"] for model, of in differences.items()},
            intervals={m: (of[name]["low"], of[name]["high"]) for m, of in differences.items()},
            significant=tuple(m for m, of in differences.items() if of[name]["significant"]),
        )
        for name in lists.sort_values(ascending=False, kind="stable").index
    ]
