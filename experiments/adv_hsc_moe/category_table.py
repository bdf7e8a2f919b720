"""Table V of Adv & HSC-MoE: one DNN per category against joint models for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from experiments.adv_hsc_moe.category_data import top_sizes, write_category_data
from experiments.adv_hsc_moe.model_tables import (
    ModelRow,
    ModelTable,
    ModelTableSettings,
    need_hierarchy,
)
from experiments.common.comparisons import model_comparison_table, model_comparisons
from experiments.common.study import Study, StudyContext
from experiments.common.tables import load_table, score_cell, score_summary, select_rows
from experiments.common.tuned_runs import Cell, TunedRun, results_of, tuned_runs
from tfr_moe.errors import UserError
from tfr_moe.evaluation import summarize
from tfr_moe.utils import write_json

NAME = "adv-hsc-moe-table5"
FOLDER = "table5"
JOINT = "joint"


class CategoryTableSettings(ModelTableSettings):
    """Settings of Table V.

    Attributes:
        categories: names of top categories; None for the three with the most training lists.
    """

    categories: tuple[str, ...] | None = Field(None, min_length=2)


def select_categories(settings: CategoryTableSettings, data: Path) -> list[str]:
    """Returns the categories of the table.

    Raises:
        UserError: for an unknown category, or data with a single one.
    """
    sizes = top_sizes(data)
    if settings.categories is None:
        if len(sizes) < 2:
            raise UserError(f"--data {data}: has a single top category, nothing to compare")
        return list(sizes)[:3]
    for name in settings.categories:
        if name not in sizes:
            some = ", ".join(list(sizes)[:20])
            raise UserError(f"categories: {name!r} is no top category of {data}; allowed: {some}")
    return list(settings.categories)


def write_parts(categories: Sequence[str], data: Path, out: Path) -> dict[str, str]:
    """Writes a data set for each category, and `joint` for all; returns their paths."""
    parts = {name: (f"category-{i + 1}", [name]) for i, name in enumerate(categories)}
    parts[JOINT] = (JOINT, list(categories))
    paths = {}
    for name, (folder, members) in parts.items():
        path = out.resolve() / "data" / folder
        write_category_data(data, path, members)
        paths[name] = str(path)
    return paths


def cells_of(
    rows: Sequence[ModelRow], categories: Sequence[str], paths: Mapping[str, str]
) -> list[Cell]:
    """Returns one cell for a joint row, otherwise one per category."""
    tests = {name: paths[name] for name in categories}
    cells = []
    for row in rows:
        config = f"{FOLDER}/{row.config}.yaml"
        if row.train == JOINT:
            cells.append(Cell(row.name, config, paths[JOINT], tests))
            continue
        cells += [
            Cell(f"{row.name}: {name}", config, paths[name], {name: paths[name]})
            for name in categories
        ]
    return cells


def run(settings: CategoryTableSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Runs what is missing of the table: data sets, runs, `results.json`."""
    data = context.need_data()
    need_hierarchy(data)
    if settings.runs_of is not None:
        raise UserError("runs_of does not apply to Table V: its models are trained on its own data")
    if settings.test_data is not None:
        raise UserError("test_data does not apply to Table V: each category has its own test lists")
    table = load_table(Path(settings.configs) / FOLDER, ModelTable)
    rows = select_rows(table.rows, settings.rows)
    categories = select_categories(settings, data)
    paths = write_parts(categories, data, context.out)
    runs = tuned_runs(settings, cells_of(rows, categories, paths), table.metrics, context)
    metric = table.metrics[0]
    summary, families = _summarize(rows, categories, runs, metric)
    claims = {name: [dataclasses.asdict(one) for one in of] for name, of in families.items()}
    write_json(context.out / "results.json", {"rows": summary, "claims": claims})
    title = (
        f"{NAME}: {metric} by test category, {settings.split} lists, mean over {settings.runs} "
        "seeds ± 95 %; in brackets the paper's Mobile Phone, Books, Clothing"
    )
    parts: list[RenderableType] = [_scores(title, summary, categories)]
    for name, family in families.items():
        tested = model_comparison_table(family)
        tested.title = f"{name}, {tested.title}"
        parts.append(tested)
    return parts


def _summarize(
    rows: Sequence[ModelRow],
    categories: Sequence[str],
    runs: Mapping[str, Sequence[TunedRun]],
    metric: str,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Per row and category a `score_summary`; per category its comparisons of all rows."""
    summary: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
    families = {}
    order = [row.name for row in rows]
    pairs = [(b, a) for i, a in enumerate(order) for b in order[i + 1 :]]
    for column, category in enumerate(categories):
        results = {
            cell.removesuffix(f": {category}"): of_cell
            for cell, of_cell in results_of(runs, category).items()
        }
        for row in rows:
            paper = row.paper if len(categories) == len(row.paper or ()) else None
            summary[row.name][category] = score_summary(
                [summarize(one)[metric].mean for one in results[row.name]],
                None if paper is None else paper[column],
            )
        families[category] = model_comparisons(results, pairs, [metric])
    cells = [{"row": row.name, "categories": summary[row.name]} for row in rows]
    return cells, {name: family for name, family in families.items() if family}


def _scores(title: str, summary: Sequence[Mapping[str, Any]], categories: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for category in categories:
        table.add_column(category, justify="right", no_wrap=True)
    for row in summary:
        cells = [score_cell(row["categories"][category]) for category in categories]
        table.add_row(row["row"], *cells)
    return table


STUDIES = {NAME: Study(CategoryTableSettings, run, needs_data=True)}
