"""Per-list results: metrics computed once per list from a stream of batches, and averages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import stdtrit

from tfr_moe.errors import UserError
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.metrics.per_list import Array, Bools, Floats, ListBatch, PerListMetric, resolve

Policy = Literal["skip", "zero", "one"]
"""Value of lists without a relevant item: none, 0 or 1."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PerListResult:
    """Metrics of n lists, in the order of evaluation.

    Attributes:
        list_ids: [n] strings.
        values: metric -> [n] float64, NaN if the metric is undefined on the list.
        nothing_relevant: metric -> [n] bool, whether none of the evaluated items is relevant.
        num_items: [n] number of items, `num_relevant` of relevant ones.
        categories: [n] strings, the top category, or None.
        sub_categories: [n] strings, `top > sub`, or None.
    """

    list_ids: Array
    values: dict[str, Floats]
    nothing_relevant: dict[str, Bools]
    num_items: Array
    num_relevant: Array
    categories: Array | None = None
    sub_categories: Array | None = None

    def __len__(self) -> int:
        return len(self.list_ids)

    def metric(self, name: str) -> Floats:
        """The values of one metric; a `UserError` if it was not computed."""
        if name not in self.values:
            raise UserError(f"metric {name!r} was not computed; computed: {', '.join(self.values)}")
        return self.values[name]

    def with_policy(self, name: str, policy: Policy = "skip") -> Floats:
        """[n] values of a metric, with a policy for lists without a relevant item.

        Such lists are NaN under `skip`, 0 under `zero`, 1 under `one`. Lists on which the metric is
        undefined for another reason (AUC, all items relevant) stay NaN. If the metric is defined on
        no list, it stays undefined under any policy.
        """
        values = self.metric(name)
        if policy not in get_args(Policy):
            raise UserError(f"policy {policy!r} is unknown; allowed: {', '.join(get_args(Policy))}")
        if policy == "skip" or np.isnan(values).all():
            return values
        return np.where(self.nothing_relevant[name], float(policy == "one"), values)


@dataclass(frozen=True)
class Summary:
    """The mean of a metric over the lists on which it is defined; NaN if it is defined on none.

    Attributes:
        evaluated: number of lists in the mean.
        skipped: number of other lists.
        nothing_relevant: number of lists without a relevant item among the evaluated items; they
            are skipped or count 0 or 1, depending on the policy.
        standard_error: sample standard deviation over the root of `evaluated`; NaN below two lists.
        low: lower end of the 95 % t interval of the mean over lists, `high` its upper end.
    """

    metric: str
    mean: float
    evaluated: int
    skipped: int
    nothing_relevant: int
    policy: Policy
    standard_error: float
    low: float
    high: float


def t_interval(values: Array) -> tuple[float, float, float, float]:
    """Mean, standard error and the ends of the 95 % t interval of a sample without NaN.

    The mean is NaN for an empty sample, the others for fewer than two values.
    """
    if len(values) < 2:
        mean = float(values[0]) if len(values) else np.nan
        return mean, np.nan, np.nan, np.nan
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    half_width = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error
    return mean, error, mean - half_width, mean + half_width


def summarize(result: PerListResult, policy: Policy = "skip") -> dict[str, Summary]:
    """Averages every metric of a result over the lists on which it is defined.

    Example:
        >>> from tfr_moe.metrics.per_list import ListBatch
        >>> batch = ListBatch(
        ...     scores=np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]),
        ...     labels=np.array([[1, 0], [0, 1], [0, 0]]),
        ...     mask=np.ones((3, 2), bool),
        ...     list_ids=np.array(["a", "b", "c"]),
        ... )
        >>> mrr = summarize(evaluate_lists([batch], ["mrr"]))["mrr"]
        >>> mrr.mean, mrr.evaluated, mrr.skipped
        (0.75, 2, 1)
    """
    summaries = {}
    for name in result.values:
        values = result.with_policy(name, policy)
        defined = values[~np.isnan(values)]
        mean, error, low, high = t_interval(defined)
        summaries[name] = Summary(
            metric=name,
            mean=mean,
            evaluated=len(defined),
            skipped=len(values) - len(defined),
            nothing_relevant=int(result.nothing_relevant[name].sum()),
            policy=policy,
            standard_error=error,
            low=low,
            high=high,
        )
    return summaries


def _of_batch(
    by_task: Mapping[str, ListBatch], tasks: Sequence[str], metrics: Sequence[PerListMetric]
) -> PerListResult:
    for task in tasks:
        by_task[task].check()
    named = {
        f"{task}_{metric.name}" if task else metric.name: (metric, by_task[task])
        for task in tasks
        for metric in metrics
    }
    first = by_task[tasks[0]]
    return PerListResult(
        list_ids=first.list_ids.astype(object),
        values={name: metric(batch) for name, (metric, batch) in named.items()},
        nothing_relevant={name: m.nothing_relevant(batch) for name, (m, batch) in named.items()},
        num_items=first.mask.sum(axis=1),
        num_relevant=(first.mask & (first.labels > 0)).sum(axis=1),
        categories=first.categories,
        sub_categories=first.sub_categories,
    )


def _joined(parts: Sequence[Any]) -> Any:
    """Concatenates arrays, or the arrays of dicts; None if they are None."""
    first = parts[0]
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in parts]) for name in first}
    return None if first is None else np.concatenate(parts)


def evaluate_lists(
    batches: Iterable[ListBatch], metrics: Sequence[str | PerListMetric] = DEFAULT_NAMES
) -> PerListResult:
    """Computes metrics list by list from a stream of batches, which are not kept in memory.

    Args:
        batches: scored lists, in batches of any size and padding.
        metrics: names (`tfr_moe.metrics.naming`) or resolved metrics.

    Raises:
        UserError: for an unknown metric, an invalid batch, a repeated list, or no lists. Lists
            without an ID (the empty string) are allowed.
    """
    return evaluate_tasks(({"": batch} for batch in batches), [""], metrics)


def evaluate_tasks(
    batches: Iterable[Mapping[str, ListBatch]],
    tasks: Sequence[str],
    metrics: Sequence[str | PerListMetric] = DEFAULT_NAMES,
) -> PerListResult:
    """Computes the metrics of several labels of the same lists, named `<task>_<metric>`.

    Batches are task -> the same lists with its scores and labels, as `score_tasks` yields; `tasks`
    is [""] for a single label. `num_relevant` counts by the first task's label. Raises as
    `evaluate_lists`.
    """
    resolved = [resolve(metric) if isinstance(metric, str) else metric for metric in metrics]
    parts = [_of_batch(batch, tasks, resolved) for batch in batches]
    if not parts:
        raise UserError("there are no lists to evaluate")
    list_ids = np.concatenate([part.list_ids for part in parts])
    ids, counts = np.unique(list_ids, return_counts=True)
    repeated = ids[(counts > 1) & (ids != "")]
    if len(repeated):
        raise UserError(
            f"list {str(repeated[0])!r} occurs more than once ({len(repeated)} such lists); "
            "every list must be scored once"
        )
    fields = [field.name for field in dataclasses.fields(PerListResult)]
    return PerListResult(*(_joined([getattr(part, name) for part in parts]) for name in fields))
