"""The result of a comparison: a row for each model, differences, and what to ship."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from tfr_moe.config import BASELINE_NAMES
from tfr_moe.evaluation.results import PerListResult, summarize
from tfr_moe.evaluation.significance import Comparison, compare
from tfr_moe.utils.terminal import Column, fitted_table

TOWERS = ("dnn", "wide_dnn", "mlp")
"""The single towers."""


@dataclass(frozen=True)
class Entry:
    """A model.

    Attributes:
        model: its name.
        runs: names of its runs, below `runs/`, one for each seed.
        learning_rate: that of its runs, selected on validation; None if it has none.
        validation: mean of the metric on the validation split.
        test: mean on the test split.
        best_run: the run with the highest validation metric.
        differences: reference model -> this model minus it on the test split.
        seconds: mean training time.
        parameters: number of parameters; for trees, of leaves.
    """

    model: str
    runs: list[str]
    learning_rate: float | None
    validation: float
    test: float
    best_run: str
    differences: dict[str, Comparison]
    seconds: float
    parameters: int


@dataclass(frozen=True)
class Leaderboard:
    """The models, best validation metric first.

    Attributes:
        metric: the metric of all numbers.
        entries: the models.
        tree: the best tree or linear ranker by validation; None without one.
        tower: the best single tower by validation; None without one.
        ship: the model with the best validation metric.
        verdict: sentences that say what to ship, and what is not significant.
    """

    metric: str
    entries: list[Entry]
    tree: str | None
    tower: str | None
    ship: str
    verdict: str

    def table(self, width: int | None = None) -> Table:
        """The leaderboard for a terminal of `width` columns."""
        entries = self.entries
        columns = [
            Column("model", [entry.model for entry in entries], numeric=False),
            Column("test", [f"{entry.test:.4f}" for entry in entries]),
        ]
        for reference in (self.tree, self.tower):
            if reference is not None:
                cells = [_short(entry.differences.get(reference)) for entry in entries]
                columns.append(Column(f"minus {reference}", cells))
        columns += [
            Column("time", [f"{entry.seconds:.0f} s" for entry in entries]),
            Column("parameters", [f"{entry.parameters:,}" for entry in entries]),
            Column("validation", [f"{entry.validation:.4f}" for entry in entries]),
            Column("rate", [f"{e.learning_rate or math.nan:g}" for e in entries]),
        ]
        return fitted_table(
            columns,
            always=2,
            width=width,
            title=f"{self.metric}, best validation first",
            caption=f"{_seeds(entries[0])}; differences with 95 % intervals, * significant.",
            hint="in leaderboard.json",
        )


def _seeds(entry: Entry) -> str:
    return f"{len(entry.runs)} seed{'s' if len(entry.runs) > 1 else ''} each"


def significant(difference: Comparison) -> bool:
    """Whether the 95 % interval excludes 0."""
    return difference.low > 0 or difference.high < 0


def _short(difference: Comparison | None) -> str:
    if difference is None:
        return "-"
    half_width = (difference.high - difference.low) / 2
    star = "*" if significant(difference) else " "
    return f"{difference.difference:+.4f} ±{half_width:.4f}{star}"


def difference_text(difference: Comparison) -> str:
    """A difference, its interval, and whether it is significant.

    Example:
        >>> one = Comparison("ndcg", 0.72, 0.7, 0.02, 0.01, 0.03, 0.01, True, 3, 3, 500, "skip")
        >>> difference_text(one)
        '+0.0200 [+0.0100, +0.0300], significant'
    """
    interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    said = "significant" if significant(difference) else "not significant"
    return f"{difference.difference:+.4f} {interval}, {said}"


def make_leaderboard(
    metric: str,
    validation: Mapping[str, Sequence[PerListResult]],
    test: Mapping[str, Sequence[PerListResult]],
    trained: Mapping[str, Mapping[str, Mapping[str, Any]]],
    rates: Mapping[str, float | None],
) -> Leaderboard:
    """Ranks models by their mean validation metric and compares them on the test split.

    Args:
        metric: metric of all results, higher is better.
        validation: model -> results of its runs.
        test: the same on the test split.
        trained: model -> name of the run -> its `metrics.json`, in the same order.
        rates: model -> learning rate.
    """
    values = {model: [_mean(r, metric) for r in results] for model, results in validation.items()}
    ranked = sorted(values, key=lambda model: -float(np.mean(values[model])))
    tree = next((model for model in ranked if model in BASELINE_NAMES), None)
    tower = next((model for model in ranked if model in TOWERS), None)
    entries = []
    for model in ranked:
        others = [other for other in (tree, tower, ranked[0]) if other not in (None, model)]
        runs = trained[model]
        entries.append(
            Entry(
                model=model,
                runs=list(runs),
                learning_rate=rates[model],
                validation=float(np.mean(values[model])),
                test=float(np.mean([_mean(result, metric) for result in test[model]])),
                best_run=list(runs)[int(np.argmax(values[model]))],
                differences={o: compare(test[model], test[o], metric) for o in others},
                seconds=float(np.mean([run["seconds"] for run in runs.values()])),
                parameters=next(iter(runs.values()))["parameters"],
            )
        )
    verdict = _verdict(metric, entries, tree, tower)
    return Leaderboard(metric, entries, tree, tower, ranked[0], verdict)


def _mean(result: PerListResult, metric: str) -> float:
    return summarize(result)[metric].mean


def _verdict(metric: str, entries: Sequence[Entry], tree: str | None, tower: str | None) -> str:
    best, *others = entries
    mean = f"{best.validation:.4f}, {_seeds(best)}"
    first = f"Ship {best.model}: it has the best validation {metric} ({mean})"
    names = {tree: "the best tree", tower: "the best single tower"}
    against = [
        f"minus {name}, {names[name]}: {difference_text(best.differences[name])}"
        for name in (tree, tower)
        if name is not None and name in best.differences
    ]
    lines = [f"{first}.", *(f"Test {metric} {text}." for text in against)]
    level = [e for e in others if not significant(e.differences[best.model])]
    if level:
        fastest = min([best, *level], key=lambda entry: entry.seconds)
        lines.append(
            f"Not significantly different from {best.model} on test: "
            f"{', '.join(entry.model for entry in level)}; the fastest to train is "
            f"{fastest.model} ({fastest.seconds:.0f} s)."
        )
    elif others:
        lines.append(f"All other models differ significantly from {best.model} on test.")
    if len(best.runs) == 1:
        lines.append("One training run each: seed variance is not included.")
    return "\n".join(lines)
