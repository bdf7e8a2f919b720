"""Tables of evaluations for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tfr_moe.evaluation.breakdown import CategoryRow
from tfr_moe.evaluation.evaluate import EvaluationReport
from tfr_moe.evaluation.results import CONFIDENCE
from tfr_moe.utils.console import TableColumn, fitted_table
from tfr_moe.utils.formats import interval, number, p_value

_INTERVAL = f"{CONFIDENCE:.0%} interval"
_POLICY = {"skip": "are skipped", "zero": "count 0", "one": "count 1"}
_MOST_CATEGORIES = 20


def _range(report: EvaluationReport) -> str:
    """The number of lists without a relevant item, as a range over metrics."""
    counts = [
        s.nothing_relevant for summaries in report.models.values() for s in summaries.values()
    ]
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def overall_table(report: EvaluationReport, width: int | None = None) -> Table:
    """Means with 95 % t intervals over lists, and numbers of lists, by metric and model."""
    rows = [(m, name, of[m]) for m in report.metrics for name, of in report.models.items()]
    return fitted_table(
        [
            TableColumn("metric", [metric for metric, _, _ in rows], numeric=False),
            TableColumn("model", [model for _, model, _ in rows], numeric=False),
            TableColumn("mean", [number(s.mean) for *_, s in rows]),
            TableColumn(_INTERVAL, [interval(s.low, s.high) for *_, s in rows]),
            TableColumn("evaluated", [f"{s.evaluated:,}" for *_, s in rows]),
            TableColumn("skipped", [f"{s.skipped:,}" for *_, s in rows]),
        ],
        always=3,
        width=width,
        title=f"Means over {report.lists:,} lists",
        caption=f"{_range(report)} lists without a relevant item {_POLICY[report.policy]} "
        f"(policy {report.policy}).",
        grouped=True,
    )


def comparison_table(report: EvaluationReport, width: int | None = None) -> Table:
    """Differences from the baseline with intervals and p-values over lists."""
    rows = [(m, name, of[m]) for m in report.metrics for name, of in report.comparisons.items()]
    return fitted_table(
        [
            TableColumn("metric", [metric for metric, _, _ in rows], numeric=False),
            TableColumn("model", [model for _, model, _ in rows], numeric=False),
            TableColumn("difference", [number(c.difference, sign=True) for *_, c in rows]),
            TableColumn(_INTERVAL, [interval(c.low, c.high, sign=True) for *_, c in rows]),
            TableColumn("p", [p_value(c.p_value) for *_, c in rows]),
            TableColumn("lists", [f"{c.evaluated:,}" for *_, c in rows]),
        ],
        always=3,
        width=width,
        title=f"Difference from {report.baseline}",
        caption="t-test of the differences, paired by list. Seed variance is not included.",
        grouped=True,
    )


def _mean_cell(row: CategoryRow, model: str) -> str:
    mean = number(row.means[model])
    if model not in row.differences:
        return mean
    return f"{mean} ({number(row.differences[model], sign=True)})"


def category_table(report: EvaluationReport, width: int | None = None) -> Table:
    """Means of a metric by top category, largest first, with differences from the baseline."""
    hidden = len(report.categories) - _MOST_CATEGORIES
    rows = report.categories[:_MOST_CATEGORIES]
    return fitted_table(
        [
            TableColumn("category", [row.title for row in rows], numeric=False),
            TableColumn("evaluated", [f"{row.evaluated:,}" for row in rows]),
            *(
                TableColumn(model, [_mean_cell(row, model) for row in rows])
                for model in report.models
            ),
            TableColumn("lists", [f"{row.lists:,}" for row in rows]),
            TableColumn("positives", [f"{row.positives:,}" for row in rows]),
        ],
        always=2,
        width=width,
        title=f"{report.category_metric} by category",
        caption=f"{hidden} smaller categories are hidden." if hidden > 0 else "",
    )


def render(report: EvaluationReport, console: Console) -> None:
    """Prints all tables of a report."""
    tables = [overall_table(report, console.width)]
    if report.comparisons:
        tables.append(comparison_table(report, console.width))
    if report.categories:
        tables.append(category_table(report, console.width))
    for table in tables:
        console.print(table)
        console.print()
