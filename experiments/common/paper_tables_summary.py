"""A paper's table beside ours: means with 95 % intervals over seeds and folds, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from experiments.common.tables import interval_cell, score_cell, score_summary, welch_difference

ATTENTION, MLP = "self-attention", "MLP"
Results = Sequence[Mapping[str, Any]]
"""All runs: `row`, `data`, `metrics`, `parameters`."""


def _values(results: Results, row: str, metric: str, base: Mapping[str, Any]) -> list[float]:
    """Per run the metric in per cent, or its gain over the order of the lists in per cent."""
    return [
        100.0 * (run["metrics"][metric] / base[run["data"]][metric] - 1.0)
        if base
        else 100.0 * run["metrics"][metric]
        for run in results
        if run["row"] == row
    ]


def summarize_rows(
    metrics: Sequence[str],
    rows: Sequence[Any],
    results: Results,
    base: Mapping[str, Mapping[str, float]],
) -> list[dict[str, Any]]:
    """Returns per row and metric our mean with its interval and the paper's number, for JSON.

    Args:
        metrics: names, in the order of the paper's columns.
        rows: the rows that were run.
        results: of all runs.
        base: per data set the metrics of the lists' order, where numbers are gains over it.
    """
    summary = []
    for row in rows:
        cells = {
            metric: score_summary(
                _values(results, row.name, metric, base),
                None if row.paper is None else row.paper[column],
            )
            for column, metric in enumerate(metrics)
        }
        parameters = next(run["parameters"] for run in results if run["row"] == row.name)
        summary.append({"row": row.name, "metrics": cells, "parameters": parameters})
    return summary


def mlp_differences(
    rows: Sequence[Any], results: Results, metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns self-attention minus MLP in percentage points, under each loss that has both."""
    names = [row.name for row in rows]
    differences = []
    for name in names:
        other = name.replace(ATTENTION, MLP)
        if other == name or other not in names:
            continue
        ours, theirs = (_values(results, row, metrics[0], {}) for row in (name, other))
        loss = {"loss": name.split(",")[0], "metric": metrics[0]}
        differences.append({**loss, **welch_difference(ours, theirs)})
    return differences


def render(
    title: str,
    metrics: Sequence[str],
    summary: Sequence[Mapping[str, Any]],
    differences: Sequence[Mapping[str, Any]],
    skipped: Sequence[str],
) -> list[RenderableType]:
    """Returns the table to print, the differences below it, and the rows that were skipped."""
    scores = Table(title=title, title_justify="left")
    scores.add_column("row")
    for metric in metrics:
        scores.add_column(metric, justify="right", no_wrap=True)
    scores.add_column("parameters", justify="right")
    for row in summary:
        cells = [score_cell(row["metrics"][metric], digits=2) for metric in metrics]
        scores.add_row(row["row"], *cells, f"{row['parameters']:,}")
    parts: list[RenderableType] = [scores]
    if differences:
        parts.append(_difference_table(differences))
    parts += [f"skipped, the data has no personal_vector: {row}" for row in skipped]
    return parts


def _difference_table(differences: Sequence[Mapping[str, Any]]) -> Table:
    metric = differences[0]["metric"]
    table = Table(
        title=f"{ATTENTION} minus {MLP}, {metric} in percentage points [95 %, Welch]",
        title_justify="left",
    )
    table.add_column("loss")
    table.add_column("difference", justify="right")
    for gap in differences:
        cell = interval_cell(gap["difference"], gap["low"], gap["high"], digits=2)
        table.add_row(gap["loss"], cell)
    return table
