"""Tables III and IV of Adv & HSC-MoE: models tested against DNN, wide DNN and MoE."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.table import Table

from experiments.common.comparisons import (
    ModelComparison,
    by_metric,
    difference_chart,
    difference_table,
    model_comparison_table,
    model_comparisons,
    p_text,
)
from experiments.common.study import Study, StudyContext
from experiments.common.tables import load_table, score_cell, score_summary, select_rows
from experiments.common.tuned_runs import (
    Cell,
    TunedRun,
    TunedRunSettings,
    evaluation_data,
    results_of,
    tuned_runs,
)
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult, summarize
from tfr_moe.report import write_figure
from tfr_moe.utils import write_json

CONFIGS = Path(__file__).parent / "configs"
TABLES = {"adv-hsc-moe-table3": "table3", "adv-hsc-moe-table4": "table4"}
COLUMN = "all"
"""The single column of data to evaluate on that these tables have."""
REFERENCES = ("dnn", "wide_dnn", "moe")


class ModelTableSettings(TunedRunSettings):
    """Settings of the paper's tables, with its configs."""

    configs: str = str(CONFIGS)


class ModelRow(BaseModel):
    """A row: its name, its config, and the paper's numbers and p-values.

    Attributes:
        name: its name in the table.
        config: name of its config; in the paper's tables that of its model.
        train: in Table V, on the data of one category (`own`) or of all (`joint`).
        paper: one number for each of the paper's columns.
        against: the row that the paper's p-values compare with.
        paper_p: one p-value for each metric.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: str
    train: str | None = None
    paper: tuple[float, ...] | None = None
    against: str | None = None
    paper_p: tuple[str, ...] | None = None


class ModelTable(BaseModel):
    """A table.

    Attributes:
        title: what it compares.
        metrics: names, one for each of the paper's columns.
        references: configs of the rows that the rows after them are tested against.
        rows: in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    metrics: tuple[str, ...]
    references: tuple[str, ...] = REFERENCES
    rows: tuple[ModelRow, ...]

    @property
    def has_paper_numbers(self) -> bool:
        """Whether the paper has numbers for any row."""
        return any(row.paper is not None for row in self.rows)


def need_hierarchy(data: Path) -> None:
    """Checks that the data has categories.

    Raises:
        UserError: if its schema names no hierarchy.
    """
    if DataFolder(data).schema.hierarchy is None:
        raise UserError(
            f"--data {data}: its schema names no hierarchy, so there are no categories to gate by"
        )


def cells_of(rows: Sequence[ModelRow], folder: str, data: Path, evaluate_on: Path) -> list[Cell]:
    """Returns a cell for each row, trained on one data set and evaluated on the other."""
    path, tests = str(data.resolve()), {COLUMN: str(evaluate_on.resolve())}
    return [Cell(row.name, f"{folder}/{row.config}.yaml", path, tests) for row in rows]


def pairs_of(
    rows: Sequence[ModelRow], references: Sequence[str] = REFERENCES
) -> list[tuple[str, str]]:
    """Returns each row paired with every reference row before it."""
    referred = [row.name for row in rows if row.config in references]
    names = [row.name for row in rows]
    return [
        (name, reference)
        for name in names
        for reference in referred
        if names.index(reference) < names.index(name)
    ]


def run_table(
    name: str, folder: str, settings: TunedRunSettings, context: StudyContext
) -> Sequence[RenderableType]:
    """Runs what is missing of a table and returns the tables to print.

    Writes `results.json`, and `differences.svg` with the differences from the first reference.
    """
    data = context.need_data()
    need_hierarchy(data)
    table = load_table(Path(settings.configs) / folder, ModelTable)
    rows = select_rows(table.rows, settings.rows)
    evaluated = evaluation_data(settings, data)
    cells = cells_of(rows, folder, data, evaluated)
    runs = tuned_runs(settings, cells, table.metrics, context)
    results = results_of(runs, COLUMN)
    comparisons = model_comparisons(results, pairs_of(rows, table.references), table.metrics)
    summary = summarize_rows(rows, runs, results, table.metrics)
    write_json(
        context.out / "results.json",
        {"rows": summary, "claims": [dataclasses.asdict(one) for one in comparisons]},
    )
    if drawn := [one for one in comparisons if one.reference == rows[0].name]:
        family = next(iter(by_metric(drawn).values()))
        write_figure([difference_chart(family, table.title)], context.out / "differences.svg")
    title = f"{name}: {table.title}; {settings.split} lists, mean over {settings.runs} seeds ± 95 %"
    if table.has_paper_numbers:
        title += ", the paper's in brackets"
    make = model_comparison_table if table.has_paper_numbers else difference_table
    tested = [make(family) for family in by_metric(comparisons).values()]
    for one in tested[:-1]:
        one.caption = None  # the same under each table
    p_values = _p_values(rows, table.metrics, comparisons)
    scores = _scores(title, table.metrics, summary)
    if negatives := DataFolder(evaluated).notes.get("negatives"):
        scores.caption = f"negatives: {negatives}"
    return [scores, *tested, *([p_values] if p_values.row_count else [])]


def summarize_rows(
    rows: Sequence[ModelRow],
    runs: Mapping[str, Sequence[TunedRun]],
    results: Mapping[str, Sequence[PerListResult]],
    metrics: Sequence[str],
) -> list[dict[str, Any]]:
    """Returns per row its learning rate, its size, and per metric a `score_summary`, for JSON."""
    summary = []
    for row in rows:
        means = [summarize(result) for result in results[row.name]]
        cells = {
            metric: score_summary(
                [of[metric].mean for of in means], None if row.paper is None else row.paper[column]
            )
            for column, metric in enumerate(metrics)
        }
        first = runs[row.name][0]
        summary.append(
            {
                "row": row.name,
                "learning_rate": first.learning_rate,
                "parameters": first.parameters,
                "metrics": cells,
            }
        )
    return summary


def _scores(title: str, metrics: Sequence[str], summary: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("model")
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    table.add_column("learning rate", justify="right")
    table.add_column("parameters", justify="right")
    for row in summary:
        cells = [score_cell(row["metrics"][metric]) for metric in metrics]
        rate = "-" if row["learning_rate"] is None else f"{row['learning_rate']:g}"
        table.add_row(row["row"], *cells, rate, f"{row['parameters']:,}")
    return table


def _p_values(
    rows: Sequence[ModelRow], metrics: Sequence[str], comparisons: Sequence[ModelComparison]
) -> Table:
    """The paper's p-values beside ours."""
    table = Table(
        title="p-values after Holm; paper",
        title_justify="left",
    )
    table.add_column("model")
    table.add_column("against")
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    tested = {(one.metric, one.model, one.reference): one for one in comparisons}
    for row in rows:
        if row.against is None or (metrics[0], row.name, row.against) not in tested:
            continue
        cells = []
        for column, metric in enumerate(metrics):
            one = tested[metric, row.name, row.against]
            paper = "" if row.paper_p is None else f"; {row.paper_p[column]}"
            cells.append(f"{p_text(one.holm)}{paper}")
        table.add_row(row.name, row.against, *cells)
    return table


STUDIES = {
    name: Study(ModelTableSettings, functools.partial(run_table, name, folder), needs_data=True)
    for name, folder in TABLES.items()
}
