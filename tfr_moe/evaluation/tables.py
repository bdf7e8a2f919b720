"""Tables for the terminal of an evaluation report; numbers have four decimals."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tfr_moe.evaluation.report import EvaluationReport
from tfr_moe.evaluation.result import CONFIDENCE

_INTERVAL = f"{CONFIDENCE:.0%} interval"
_POLICY = {"skip": "left out", "zero": "count 0", "one": "count 1"}


def _number(value: float, sign: bool = False) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:+.4f}" if sign else f"{value:.4f}"


def _interval(low: float, high: float, sign: bool = False) -> str:
    if math.isnan(low):
        return "-"
    return f"[{_number(low, sign)}, {_number(high, sign)}]"


def _p_value(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def _table(title: str, text: list[str], numbers: list[str], caption: str) -> Table:
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,  # vertical lines would not leave room for intervals in 80 columns
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in text:
        table.add_column(escape(name), overflow="fold")
    for name in numbers:
        table.add_column(escape(name), justify="right", no_wrap=True)
    return table


def _keep_names_whole(table: Table) -> None:
    # Names of metrics are told apart by their ends: rather is a model's name folded.
    table.columns[0].no_wrap = True


def _span(found: EvaluationReport) -> str:
    """How many lists have nothing relevant: one number, or the least and the most over metrics."""
    counts = [s.nothing_relevant for summaries in found.models.values() for s in summaries.values()]
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def overall_table(found: EvaluationReport) -> Table:
    """Model by metric: mean, 95 % t interval over lists, number judged and left out."""
    table = _table(
        f"Means over {found.lists:,} lists",
        ["metric", "model"],
        ["mean", _INTERVAL, "judged", "left out"],
        f"{_span(found)} lists with nothing relevant {_POLICY[found.policy]} (policy {found.policy}).",
    )
    _keep_names_whole(table)
    for metric in found.metrics:
        for model, summaries in found.models.items():
            summary = summaries[metric]
            table.add_row(
                metric,
                escape(model),
                _number(summary.mean),
                escape(_interval(summary.low, summary.high)),
                f"{summary.judged:,}",
                f"{summary.left_out:,}",
            )
        table.add_section()
    return table


def comparison_table(found: EvaluationReport) -> Table:
    """Difference of each model from the baseline: mean, bootstrap interval, p of the paired t-test."""
    table = _table(
        f"Difference from {escape(str(found.baseline))}",
        ["metric", "model"],
        ["difference", _INTERVAL, "p", "lists"],
        "Paired over lists: percentile bootstrap and t-test. Chance of the training seed is not in it.",
    )
    _keep_names_whole(table)
    for metric in found.metrics:
        for model, comparisons in found.comparisons.items():
            comparison = comparisons[metric]
            table.add_row(
                metric,
                escape(model),
                _number(comparison.difference, sign=True),
                escape(_interval(comparison.low, comparison.high, sign=True)),
                _p_value(comparison.p_value),
                f"{comparison.judged:,}",
            )
        table.add_section()
    return table


def category_table(found: EvaluationReport, max_rows: int = 20) -> Table:
    """One metric by top category, largest first: each model's mean and difference from the baseline."""
    hidden = len(found.categories) - max_rows
    table = _table(
        f"{found.category_metric} by category",
        ["category"],
        ["lists", "positives", "judged", *found.models],
        f"{hidden} smaller categories are not shown." if hidden > 0 else "",
    )
    for row in found.categories[:max_rows]:
        cells = [
            _number(mean)
            + (
                f" ({_number(row.differences[model], sign=True)})"
                if model in row.differences
                else ""
            )
            for model, mean in row.means.items()
        ]
        numbers = [f"{row.lists:,}", f"{row.positives:,}", f"{row.judged:,}"]
        table.add_row(escape(row.category) or "(none)", *numbers, *cells)
    return table


def render(found: EvaluationReport, console: Console, max_categories: int = 20) -> None:
    """Prints the tables that the report has something for."""
    tables = [overall_table(found)]
    if found.comparisons:
        tables.append(comparison_table(found))
    if found.categories:
        tables.append(category_table(found, max_categories))
    for table in tables:
        console.print(table)
        console.print()
