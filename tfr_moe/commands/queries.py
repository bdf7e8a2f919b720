"""The command that learns the categories of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tfr_moe.commands.options import Seed, stderr


def train_queries(
    table: Annotated[
        Path, typer.Option("--input", help="CSV or TSV of queries and their categories")
    ],
    out: Annotated[Path, typer.Option("--out", help="folder of the classifier to make")],
    query: Annotated[str, typer.Option("--query", help="column with the query")] = "query",
    child: Annotated[
        str, typer.Option("--child", help="column with the category")
    ] = "sub_category",
    parent: Annotated[
        str | None, typer.Option("--parent", help="column with the category above it")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", help="at most so many", min=1)] = 30,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Learn to tell a query's category, for logs that have none; see build search-logs --help."""
    from tfr_moe.query_categories import Columns, train_query_categories

    columns = Columns(query, child, parent)
    report = train_query_categories(
        table, out, columns, epochs=epochs, seed=seed, overwrite=overwrite
    )
    stderr().print(_summary(out, report, parent is not None), soft_wrap=True, highlight=False)


def _summary(out: Path, report: dict[str, Any], has_parent: bool) -> str:
    lines = [
        f"wrote {out}: {report['categories']} categories of {report['rows']} rows; on "
        f"{report['held_out_rows']} held-out rows {report['accuracy']:.3f} right"
        + (f" ({report['parent_accuracy']:.3f} at the level above)" if has_parent else "")
        + f", always the most frequent {report['accuracy_of_most_frequent']:.3f}"
    ]
    if report["rows_left_out"]:
        lines.append(f"left out {report['rows_left_out']} rows without a query or a category")
    for row in report["by_least_probability"][1:]:
        right = "none" if row["accuracy"] is None else f"{row['accuracy']:.3f} right"
        lines.append(f"query_probability={row['least']}: {row['answered']:.3f} answered, {right}")
    return "\n".join(lines)
