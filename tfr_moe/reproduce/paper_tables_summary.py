"""A table of a paper beside ours: means with 95 % intervals over seeds and folds, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.reproduce.census_summary import difference

ATTENTION, MLP = "self-attention", "MLP"


def _values(
    results: Sequence[Mapping[str, Any]], row: str, metric: str, base: Mapping[str, Any]
) -> list[float]:
    """Per run the metric in per cent, or its gain over the order of the lists in per cent."""
    return [
        100.0 * (run["metrics"][metric] / base[run["data"]][metric] - 1.0)
        if base
        else 100.0 * run["metrics"][metric]
        for run in results
        if run["row"] == row
    ]


def summarize(
    table: Any,
    rows: Sequence[Any],
    results: Sequence[Mapping[str, Any]],
    base: Mapping[str, Mapping[str, float]],
) -> list[dict[str, Any]]:
    """Per row and metric our mean with its interval, and the paper's number; JSON-serializable.

    Args:
        table: a `PaperTable`.
        rows: those of its rows that were run.
        results: of all runs: `row`, `data`, `metrics`, `parameters`.
        base: per data set the metrics of the lists' own order, where numbers are gains over it.
    """
    summary = []
    for row in rows:
        cells = {}
        for place, metric in enumerate(table.metrics):
            values = _values(results, row.name, metric, base)
            found = seed_interval(values)
            cells[metric] = {
                "ours": found.mean,
                "low": found.low,
                "high": found.high,
                "runs": values,
                "paper": None if row.paper is None else row.paper[place],
            }
        of_row = [run for run in results if run["row"] == row.name]
        summary.append({"row": row.name, "metrics": cells, "parameters": of_row[0]["parameters"]})
    return summary


def comparisons(
    rows: Sequence[Any], results: Sequence[Mapping[str, Any]], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Where a table has self-attention and MLP under the same loss, their difference in points."""
    names = [row.name for row in rows]
    found = []
    for name in names:
        other = name.replace(ATTENTION, MLP)
        if other == name or other not in names:
            continue
        ours, theirs = (_values(results, row, metrics[0], {}) for row in (name, other))
        found.append({"loss": name.split(",")[0], "metric": metrics[0], **difference(ours, theirs)})
    return found


def shown(
    name: str,
    table: Any,
    summary: Sequence[Mapping[str, Any]],
    pairs: Sequence[Mapping[str, Any]],
    left_out: Sequence[str],
    runs: int,
) -> list[RenderableType]:
    """The table to print, the differences below it, and what has been left out and why."""
    parts: list[RenderableType] = [_scores(name, table, summary, runs)]
    if pairs:
        parts.append(_differences(pairs))
    parts += [f"left out, since the data has no personal_vector: {row}" for row in left_out]
    return parts


def _scores(name: str, table: Any, summary: Sequence[Mapping[str, Any]], runs: int) -> Table:
    title = (
        f"{name}: {table.title}; {table.split} lists, nothing relevant: {table.policy}; "
        f"{runs} runs [95 %], the paper's in brackets"
    )
    shown_table = Table(title=title, title_justify="left")
    shown_table.add_column("row")
    for metric in table.metrics:
        shown_table.add_column(metric, justify="right", no_wrap=True)
    shown_table.add_column("parameters", justify="right")
    for row in summary:
        cells = [_cell(row["metrics"][metric]) for metric in table.metrics]
        shown_table.add_row(row["row"], *cells, f"{row['parameters']:,}")
    return shown_table


def _cell(cell: Mapping[str, Any]) -> str:
    text = f"{cell['ours']:.2f}"
    if cell["low"] == cell["low"]:
        text += f" ±{cell['high'] - cell['ours']:.2f}"
    return text if cell["paper"] is None else f"{text} ({cell['paper']:.2f})"


def _differences(pairs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title=f"{ATTENTION} minus {MLP}, {pairs[0]['metric']} in points [95 %, Welch]",
        title_justify="left",
    )
    table.add_column("loss")
    table.add_column("difference", justify="right")
    for pair in pairs:
        text = f"{pair['difference']:+.2f}"
        if pair["low"] == pair["low"]:
            text += f" [{pair['low']:+.2f}, {pair['high']:+.2f}]"
        table.add_row(pair["loss"], text)
    return table
