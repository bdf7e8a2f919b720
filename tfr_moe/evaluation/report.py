"""EvaluationReport: what an evaluation found, for the tables and the JSON file alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.evaluation.categories import CategoryRow, per_category
from tfr_moe.evaluation.result import CONFIDENCE, PerListResult, Policy, Summary, summarize
from tfr_moe.evaluation.significance import Comparison, compare


@dataclass(frozen=True)
class EvaluationReport:
    """The findings on some models.

    Attributes:
        lists: number of lists.
        policy: what lists with nothing relevant count.
        metrics: names, in order.
        models: per model and metric the mean over lists.
        baseline: the model that the others are compared with, or None.
        comparisons: per model other than the baseline and metric the difference from it.
        category_metric: the metric of `categories`.
        categories: one row a top category; empty without a hierarchy.
    """

    lists: int
    policy: Policy
    metrics: tuple[str, ...]
    models: dict[str, dict[str, Summary]]
    baseline: str | None
    comparisons: dict[str, dict[str, Comparison]]
    category_metric: str
    categories: list[CategoryRow]


def report(
    results: Mapping[str, PerListResult],
    baseline: str | None = None,
    policy: Policy = "skip",
    category_metric: str | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> EvaluationReport:
    """Summarises the results of some models and compares them with the baseline.

    Args:
        results: per model its result, all of the same lists and metrics.
        baseline: the model that the others are compared with.
        policy: what lists with nothing relevant count.
        category_metric: the metric of the per-category table, by default the first.
        resamples: of the bootstrap over lists.
        seed: of the bootstrap.

    Raises:
        UserError: without results, for a baseline that is none of the models, or where the results
            are not of the same lists and metrics.
    """
    if not results:
        raise UserError("there are no results to report")
    if baseline is not None and baseline not in results:
        raise UserError(f"baseline {baseline!r} is not evaluated; there are {', '.join(results)}")
    first = next(iter(results.values()))
    metrics = tuple(first.values)
    for model, result in results.items():
        if set(result.values) != set(metrics):
            raise UserError(
                f"model {model!r} was judged by {', '.join(result.values)}, others by "
                f"{', '.join(metrics)}: must be the same"
            )
    category_metric = category_metric or metrics[0]
    comparisons = {
        model: {
            metric: compare(result, results[baseline], metric, policy, resamples, seed)
            for metric in metrics
        }
        for model, result in results.items()
        if baseline is not None and model != baseline
    }
    return EvaluationReport(
        lists=len(first),
        policy=policy,
        metrics=metrics,
        models={model: summarize(result, policy) for model, result in results.items()},
        baseline=baseline,
        comparisons=comparisons,
        category_metric=category_metric,
        categories=per_category(results, category_metric, baseline, policy),
    )


def plain(value: Any) -> Any:
    """Dataclasses to dicts and NaN, which JSON lacks, to None, at any depth."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(found: EvaluationReport) -> dict[str, Any]:
    """The report as a plain dict for `json.dump`, in full precision; what is undefined is None."""
    return {"confidence": CONFIDENCE, **plain(found)}
