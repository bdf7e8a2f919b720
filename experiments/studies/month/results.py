"""Numbers of the simulated month: means by day and week, differences, and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.runs import Result
from experiments.common.stored_results import load_result
from experiments.studies.month.log import WEEK, day_name
from experiments.studies.month.settings import METRICS, WAYS, Folders, MonthSettings
from tfr_moe.evaluation import alignment, difference_interval

Values = NDArray[np.float64]
Interval = dict[str, float]
PAIRS = (("scratch", "once"), ("warm", "once"), ("warm", "scratch"))


def difference(values: Values, of: Values | None = None) -> Interval:
    """Mean of values [seeds, lists] with its 95 % interval over seeds and lists, or that of a - b.

    Example:
        >>> difference(np.array([[0.5, 0.7], [0.5, 0.7]]))["mean"]
        0.6
    """
    other = np.zeros_like(values) if of is None else of
    interval = difference_interval(values, other)
    mean = float(values.mean() - other.mean())
    return {"mean": mean, "low": interval.low, "high": interval.high}


def values_of(folders: Folders, way: str, seeds: int, day: int) -> dict[str, Values]:
    """Metric -> [seeds, lists] on the test lists of a day that have both kinds of items."""
    results = [load_result(folders.scores(way, seed, day)) for seed in range(1, seeds + 1)]
    values = {}
    for metric in METRICS:
        rows = [one.metric(metric)[alignment(results[0], one)] for one in results]
        stacked = np.stack(rows)
        values[metric] = stacked[:, ~np.isnan(stacked[0])]
    return values


def compared(days: Sequence[Mapping[str, Mapping[str, Values]]]) -> dict[str, Any]:
    """Means and differences over the lists of some days.

    Args:
        days: for each day way -> metric -> [seeds, lists].

    Returns:
        metric -> name of a way, or `a - b` -> interval.
    """
    content: dict[str, Any] = {}
    for metric in METRICS:
        joined = {way: np.concatenate([day[way][metric] for day in days], axis=1) for way in WAYS}
        content[metric] = {way: difference(values) for way, values in joined.items()}
        for a, b in PAIRS:
            content[metric][f"{a} - {b}"] = difference(joined[a], joined[b])
    return content


def summarize(
    settings: MonthSettings,
    folders: Folders,
    drifted: Mapping[int, Sequence[str]],
    months: Mapping[tuple[str, int], Result],
    broken: Sequence[Result],
) -> dict[str, Any]:
    """Collects all numbers of the study.

    Args:
        settings: of the study.
        folders: with the scores.
        drifted: day -> columns that have drifted.
        months: way and seed -> result of `run_month`.
        broken: of each seed, the result of `train_on_broken_day`.
    """
    values = {
        day: {way: values_of(folders, way, settings.runs, day) for way in WAYS}
        for day in settings.scored
    }
    weeks = [settings.scored[at : at + WEEK] for at in range(0, settings.days, WEEK)]
    return {
        "days": [
            {
                "day": day - settings.first,
                "date": day_name(day),
                "broken": day == settings.broken_day,
                "opens": day % WEEK == 0,
                "drifted": list(drifted[day]),
                **compared([values[day]]),
                "published": _published(months, day),
            }
            for day in settings.scored
        ],
        "weeks": [compared([values[day] for day in week]) for week in weeks],
        "month": compared(list(values.values())),
        "seconds": {way: seconds_of(settings, months, way) for way in WAYS},
        "broken": broken_summary(broken),
    }


def _published(months: Mapping[tuple[str, int], Result], day: int) -> dict[str, Any]:
    decided = {way: one["published"].get(str(day)) for (way, _), one in months.items()
               if one["published"]}  # fmt: skip
    return {way: decision for way, decision in decided.items() if decision is not None}


def seconds_of(
    settings: MonthSettings, months: Mapping[tuple[str, int], Result], way: str
) -> dict[str, float]:
    """Median over the runs of all days and seeds, and the sum of a month, median over seeds."""
    rows = [months[way, seed]["seconds"] for seed in range(1, settings.runs + 1)]
    trained = [seconds for row in rows for seconds in row if seconds]
    a_day = float(np.median(trained)) if trained else 0.0
    return {"a_day": a_day, "month": float(np.median([sum(row) for row in rows]))}


def broken_summary(results: Sequence[Result]) -> dict[str, Any]:
    """How often each gate published the run of the broken day, and its NDCG beside the live one's.

    Args:
        results: of `train_on_broken_day`, one for each seed.
    """
    content: dict[str, Any] = {"seeds": len(results)}
    for gate in ("with_drift", "quality_alone"):
        decisions = [one[gate] for one in results]
        failed = {f["check"]: f["text"] for d in decisions for f in d["failed"]}
        published = sum(d["published"] for d in decisions)
        content[gate] = {"published": published, "failed": failed}
    for kind in ("cents", "corrected"):
        content[kind] = {
            of: float(np.mean([one[of][kind]["ndcg_10"] for one in results]))
            for of in ("live", "candidate")
        }
    return content
