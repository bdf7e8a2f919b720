"""Per-list results: metrics computed once per list from a stream of batches, then averaged.

The same lists in other batches give the same numbers: nothing is ever averaged over a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import stats

from tfr_moe.errors import UserError
from tfr_moe.evaluation.batches import Array, Bools, Floats, ListBatch
from tfr_moe.evaluation.per_list import PerListMetric, resolve
from tfr_moe.metric_names import DEFAULT_NAMES

Policy = Literal["skip", "zero", "one"]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PerListResult:
    """The metrics of n lists, in the order in which the lists came.

    Attributes:
        list_ids: [n] strings.
        values: per metric [n] float64, NaN where the metric can't judge the list.
        nothing_relevant: per metric [n] bool, True where no judged item of the list is relevant.
        num_items: [n] items in the list.
        num_relevant: [n] relevant items in the list.
        categories: [n] strings, the top category, or None.
    """

    list_ids: Array
    values: dict[str, Floats]
    nothing_relevant: dict[str, Bools]
    num_items: Array
    num_relevant: Array
    categories: Array | None = None

    def __len__(self) -> int:
        return len(self.list_ids)

    def metric(self, name: str) -> Floats:
        """The values of one metric.

        Raises:
            UserError: if it was not computed; the message lists those that were.
        """
        if name not in self.values:
            raise UserError(f"metric {name!r} was not computed; there are {', '.join(self.values)}")
        return self.values[name]

    def taken(self, kept: Array) -> PerListResult:
        """The same of some lists: `kept` is a mask [n], or the places of the lists in their new order."""
        return dataclasses.replace(
            self,
            list_ids=self.list_ids[kept],
            values={name: values[kept] for name, values in self.values.items()},
            nothing_relevant={name: flags[kept] for name, flags in self.nothing_relevant.items()},
            num_items=self.num_items[kept],
            num_relevant=self.num_relevant[kept],
            categories=None if self.categories is None else self.categories[kept],
        )

    def with_policy(self, name: str, policy: Policy = "skip") -> Floats:
        """[n] values of a metric, the lists with nothing relevant treated as the policy says.

        Args:
            name: the metric.
            policy: `skip` leaves such lists NaN, `zero` and `one` give them 0 and 1. Lists that
                can't be judged for another reason (all items relevant, for the AUC) stay NaN.

        Raises:
            UserError: for a metric that was not computed or an unknown policy.
        """
        values = self.metric(name)
        if policy not in get_args(Policy):
            raise UserError(f"policy {policy!r}: must be one of {', '.join(get_args(Policy))}")
        if policy == "skip":
            return values
        return np.where(self.nothing_relevant[name], float(policy == "one"), values)


@dataclass(frozen=True)
class Summary:
    """The mean of one metric over the lists that it can judge.

    Attributes:
        metric: its name.
        mean: the mean, NaN where no list was judged.
        judged: number of lists in the mean.
        left_out: number of lists that are not.
        nothing_relevant: number of lists with nothing relevant among the judged items; they are
            left out, or count 0 or 1, as the policy says.
        policy: `skip`, `zero` or `one`.
        standard_error: sample standard deviation over the root of `judged`; NaN below two lists.
        low: lower end of the 95 % t interval of the mean over lists.
        high: upper end.
    """

    metric: str
    mean: float
    judged: int
    left_out: int
    nothing_relevant: int
    policy: Policy
    standard_error: float
    low: float
    high: float


def t_interval(values: Array) -> tuple[float, float, float, float]:
    """Mean, standard error and the ends of the 95 % t interval of a sample without NaN.

    The mean is NaN for an empty sample, the rest below two values. There is no interval to speak
    of where all values are equal: both ends are the mean.
    """
    if len(values) < 2:
        mean = float(values[0]) if len(values) else np.nan
        return mean, np.nan, np.nan, np.nan
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return mean, error, mean - reach, mean + reach


def summarize(result: PerListResult, policy: Policy = "skip") -> dict[str, Summary]:
    """Averages every metric of a result over the lists that it can judge.

    Example:
        >>> from tfr_moe.evaluation.batches import ListBatch
        >>> batch = ListBatch(
        ...     scores=np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]),
        ...     labels=np.array([[1, 0], [0, 1], [0, 0]]),
        ...     mask=np.ones((3, 2), bool),
        ...     list_ids=np.array(["a", "b", "c"]),
        ... )
        >>> mrr = summarize(evaluate_lists([batch], ["mrr"]))["mrr"]
        >>> mrr.mean, mrr.judged, mrr.left_out
        (0.75, 2, 1)
    """
    summaries = {}
    for name in result.values:
        values = result.with_policy(name, policy)
        judged = values[~np.isnan(values)]
        mean, error, low, high = t_interval(judged)
        summaries[name] = Summary(
            metric=name,
            mean=mean,
            judged=len(judged),
            left_out=len(values) - len(judged),
            nothing_relevant=int(result.nothing_relevant[name].sum()),
            policy=policy,
            standard_error=error,
            low=low,
            high=high,
        )
    return summaries


def _refuse_repeated(list_ids: Array) -> None:
    ids, counts = np.unique(list_ids, return_counts=True)
    repeated = ids[(counts > 1) & (ids != "")]
    if len(repeated):
        raise UserError(
            f"list {str(repeated[0])!r} occurs more than once ({len(repeated)} such lists); "
            "every list must be scored once"
        )


class _Judge:
    """Collects the metrics of single lists, batch by batch."""

    def __init__(self, metrics: Sequence[str | PerListMetric]):
        self._metrics = [resolve(m) if isinstance(m, str) else m for m in metrics]
        self._columns: dict[str, list[Array]] = {
            "id": [],
            "items": [],
            "relevant": [],
            "category": [],
        }
        self._values: dict[str, list[Array]] = {m.name: [] for m in self._metrics}
        self._nothing: dict[str, list[Array]] = {m.name: [] for m in self._metrics}

    def add(self, batch: ListBatch) -> None:
        """Judges a batch and lets it go."""
        batch.check()
        columns = self._columns
        columns["id"].append(batch.list_ids.astype(object))
        columns["items"].append(batch.mask.sum(axis=1))
        columns["relevant"].append((batch.mask & (batch.labels > 0)).sum(axis=1))
        if batch.categories is not None:
            columns["category"].append(batch.categories.astype(object))
        for metric in self._metrics:
            self._values[metric.name].append(metric(batch))
            self._nothing[metric.name].append(metric.nothing_relevant(batch))

    def result(self) -> PerListResult:
        """All lists."""
        columns = self._columns
        if not columns["id"]:
            raise UserError("there are no lists to evaluate")
        list_ids = np.concatenate(columns["id"])
        _refuse_repeated(list_ids)
        return PerListResult(
            list_ids=list_ids,
            values={name: np.concatenate(parts) for name, parts in self._values.items()},
            nothing_relevant={name: np.concatenate(parts) for name, parts in self._nothing.items()},
            num_items=np.concatenate(columns["items"]),
            num_relevant=np.concatenate(columns["relevant"]),
            categories=np.concatenate(columns["category"]) if columns["category"] else None,
        )


def evaluate_lists(
    batches: Iterable[ListBatch], metrics: Sequence[str | PerListMetric] = DEFAULT_NAMES
) -> PerListResult:
    """Computes metrics list by list from a stream of batches; a batch is let go once it is judged.

    Args:
        batches: of any size and any padding.
        metrics: names (`tfr_moe.metric_names`) or resolved metrics.

    Raises:
        UserError: for an unknown metric, a batch that can't be judged, a list that comes twice, or
            no lists at all. Lists without an id (the empty string) are let through.
    """
    judge = _Judge(metrics)
    for batch in batches:
        judge.add(batch)
    return judge.result()


def evaluate_tasks(
    batches: Iterable[Mapping[str, ListBatch]],
    tasks: Sequence[str],
    metrics: Sequence[str] = DEFAULT_NAMES,
) -> PerListResult:
    """Computes the metrics of several labels of the same lists, as `evaluate_lists` does for one.

    Args:
        batches: per task the same lists with its scores and labels, such as `score_tasks` yields.
        tasks: names of the tasks.
        metrics: names, for every task.

    Returns:
        One result with the metrics `<task>_<metric>`; `num_relevant` counts by the first task's label.

    Raises:
        UserError: as `evaluate_lists`.
    """
    judges = {task: _Judge(metrics) for task in tasks}
    for batch in batches:
        for task, judge in judges.items():
            judge.add(batch[task])
    results = {task: judge.result() for task, judge in judges.items()}
    first = results[tasks[0]]
    return dataclasses.replace(
        first,
        values={f"{t}_{m}": v for t, found in results.items() for m, v in found.values.items()},
        nothing_relevant={
            f"{t}_{m}": v for t, found in results.items() for m, v in found.nothing_relevant.items()
        },
    )
