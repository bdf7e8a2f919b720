"""Comparisons of kinds of models by several runs of each, corrected for multiple testing.

Intervals and p-values are those of `tfr_moe.evaluation.compare`, over seeds and lists where both
kinds have several runs. The p-values of all comparisons of one metric are corrected together by
Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table
from statsmodels.stats.multitest import multipletests

from tfr_moe.errors import UserError
from tfr_moe.evaluation import Comparison, PerListResult, compare
from tfr_moe.report import Chart, Line, chart

HEADINGS = ("model", "minus", "difference [95 %]", "p", "runs")


@dataclass(frozen=True)
class ModelComparison:
    """The difference model - reference of one metric.

    Attributes:
        metric: name of the metric.
        model: name of one kind of model.
        reference: name of the other.
        comparison: the difference with its interval and its p-value.
        holm: the p-value after Holm's correction within the metric's family.
        lists: number of all lists.
    """

    metric: str
    model: str
    reference: str
    comparison: Comparison
    holm: float
    lists: int


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values after Holm's step-down correction (1979); NaN are kept and not counted.

    Example:
        >>> [round(p, 4) for p in holm([0.03, 0.01, float("nan"), 0.04])]
        [0.06, 0.03, nan, 0.06]
    """
    defined = [p for p in p_values if not math.isnan(p)]
    corrected = iter(multipletests(defined, method="holm")[1] if defined else ())
    return [p if math.isnan(p) else float(next(corrected)) for p in p_values]


def model_comparisons(
    results: Mapping[str, Sequence[PerListResult]],
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
) -> list[ModelComparison]:
    """Compares kinds of models by several runs of each, all on the same lists.

    Args:
        results: kind of model -> the results of its runs.
        pairs: (model, reference) of each comparison; corrected together for each metric.
        metrics: names of metrics.

    Returns:
        A comparison for each metric and pair, in this order.

    Raises:
        UserError: for a model without runs, runs of different lists, or a metric that is defined on
            no list.
    """
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if not results.get(name):
            raise UserError(f"model {name!r} has no run to compare; models: {', '.join(results)}")
    compared: list[ModelComparison] = []
    for metric in metrics:
        family = [compare(results[a], results[b], metric) for a, b in pairs]
        if any(not one.evaluated for one in family):
            raise UserError(f"metric {metric!r} is defined on no list")
        corrected = holm([one.p_value for one in family])
        compared += [
            ModelComparison(metric, a, b, one, p, len(results[a][0]))
            for (a, b), one, p in zip(pairs, family, corrected, strict=True)
        ]
    return compared


def by_metric(comparisons: Sequence[ModelComparison]) -> dict[str, list[ModelComparison]]:
    """Groups comparisons by metric, in order."""
    grouped: dict[str, list[ModelComparison]] = {}
    for comparison in comparisons:
        grouped.setdefault(comparison.metric, []).append(comparison)
    return grouped


def p_text(value: float) -> str:
    """Formats a p-value; - if it is undefined.

    Example:
        >>> p_text(0.03), p_text(2e-7), p_text(float("nan"))
        ('0.0300', '2e-07', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _difference(one: ModelComparison) -> str:
    comparison = one.comparison
    return f"{comparison.difference:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"


def _table(comparisons: Sequence[ModelComparison], more: str) -> Table:
    first = comparisons[0]
    over = "seeds and lists" if first.comparison.includes_seeds else "lists, without seed variance"
    return Table(
        title=f"{first.metric}: {first.comparison.evaluated:,} of {first.lists:,} lists evaluated",
        caption=f"95 % and p: t over {over}; p after Holm within the table. {more}".strip(),
        title_justify="left",
        caption_justify="left",
    )


def model_comparison_table(comparisons: Sequence[ModelComparison]) -> Table:
    """Comparisons by one metric, a row for each."""
    table = _table(comparisons, "")
    for column, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if column < 2 else "right", no_wrap=column > 1)
    for one in comparisons:
        runs = f"{one.comparison.runs_a}, {one.comparison.runs_b}"
        cells = (one.model, one.reference, _difference(one), p_text(one.holm), runs)
        table.add_row(*map(escape, cells))
    return table


def difference_chart(comparisons: Sequence[ModelComparison], title: str) -> Chart:
    """Draws the differences from one reference by one metric, in points, from the top down."""
    drawn = comparisons[::-1]
    points = [100 * one.comparison.difference for one in drawn]
    ends = [(100 * one.comparison.low, 100 * one.comparison.high) for one in drawn]
    best = max(comparisons, key=lambda one: one.comparison.difference)
    lines = [Line("", pair, (row, row), kind="curve", colour=0) for row, pair in enumerate(ends)]
    lines.append(Line("", points, range(len(points)), kind="points", colour=0))
    return chart(
        lines,
        f"{best.model} is highest, {_difference(best)} from {best.reference}",
        f"{best.metric} minus that of {best.reference}, points, with 95 % intervals",
        "",
        title=title,
        y_ticks=[(row, one.model) for row, one in enumerate(drawn)],
        include=((0.0,), (-0.5, len(drawn) - 0.5)),
        rule=((0.0, -math.inf), (0.0, math.inf)),
    )


def difference_table(comparisons: Sequence[ModelComparison]) -> Table:
    """Comparisons by one metric with a row per model and a column per reference, for many models.

    A star marks p below 0.05 after Holm.
    """
    references = list(dict.fromkeys(one.reference for one in comparisons))
    table = _table(comparisons, "* p < 0.05.")
    table.add_column("model")
    for reference in references:
        table.add_column(escape(f"minus {reference}"), no_wrap=True)
    by_pair = {(one.model, one.reference): one for one in comparisons}
    for model in dict.fromkeys(one.model for one in comparisons):
        cells = []
        for reference in references:
            one = by_pair.get((model, reference))
            star = " *" if one is not None and one.holm < 0.05 else ""
            cells.append("" if one is None else f"{_difference(one)}{star}")
        table.add_row(escape(model), *map(escape, cells))
    return table
