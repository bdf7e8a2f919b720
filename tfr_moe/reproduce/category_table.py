"""Table V of Adv & HSC-MoE: a DNN for each of some categories, one for all of them, and ours for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from tfr_moe.errors import UserError
from tfr_moe.folders import write_json
from tfr_moe.reproduce.fair_runs import Cell, FairRun, FairSettings, fair_runs, results_of
from tfr_moe.reproduce.mixture_tables import (
    MixtureRow,
    need_hierarchy,
    read_table,
    score_cell,
)
from tfr_moe.reproduce.settings import wanted_rows
from tfr_moe.reproduce.study import Place, Study

NAME = "adv-hsc-moe-table5"
FOLDER = "table5"
JOINT = "joint"


class CategoryTableSettings(FairSettings):
    """The settings of Table V.

    Attributes:
        categories: names of top categories; None for the three with most training lists.
    """

    categories: tuple[str, ...] | None = Field(None, min_length=2)


def chosen_categories(settings: CategoryTableSettings, data: Path) -> list[str]:
    """The categories of the table.

    Raises:
        UserError: for a name that is no category, or data with a single one.
    """
    from tfr_moe.reproduce.category_data import top_sizes

    sizes = top_sizes(data)
    if settings.categories is None:
        if len(sizes) < 2:
            raise UserError(f"--data {data}: has a single top category, nothing to compare")
        return list(sizes)[:3]
    for name in settings.categories:
        if name not in sizes:
            some = ", ".join(list(sizes)[:20])
            raise UserError(f"categories: {name!r} is no top category of {data}; there are: {some}")
    return list(settings.categories)


def write_parts(categories: Sequence[str], data: Path, out: Path) -> dict[str, str]:
    """The data sets: per category its own, and `joint` for all of them."""
    from tfr_moe.reproduce.category_data import write_category_data

    parts = {name: (f"category-{i + 1}", [name]) for i, name in enumerate(categories)}
    parts[JOINT] = (JOINT, list(categories))
    paths = {}
    for name, (folder, members) in parts.items():
        path = out.resolve() / "data" / folder
        write_category_data(data, path, members)
        paths[name] = str(path)
    return paths


def cells_of(
    rows: Sequence[MixtureRow], categories: Sequence[str], paths: Mapping[str, str]
) -> list[Cell]:
    """A cell for each category of a row that is trained on each alone, one for a joint row."""
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


def run(settings: CategoryTableSettings, place: Place) -> Sequence[RenderableType]:
    """The whole table, or what is left of it: data sets, runs, `results.json`, and what to show."""
    from tfr_moe.evaluation.claim_tables import claim_table

    assert place.data is not None
    need_hierarchy(place.data)
    if settings.runs_of is not None:
        raise UserError("runs_of is not for table V: its models learn from data of its own")
    if settings.test_data is not None:
        raise UserError("test_data is not for table V: each category is judged on its own lists")
    table = read_table(Path(settings.configs) / FOLDER)
    rows = wanted_rows(table.rows, settings.rows)
    categories = chosen_categories(settings, place.data)
    paths = write_parts(categories, place.data, place.out)
    runs = fair_runs(settings, cells_of(rows, categories, paths), table.metrics, place)
    metric = table.metrics[0]
    summary, families = _summarize(rows, categories, runs, metric)
    told = {name: [dataclasses.asdict(claim) for claim in of] for name, of in families.items()}
    write_json(place.out / "results.json", {"rows": summary, "claims": told})
    shown: list[RenderableType] = [_shown(summary, categories, settings, metric)]
    for name, family in families.items():
        tested = claim_table(family)
        tested.title = f"{name}, {tested.title}"
        shown.append(tested)
    return shown


def _summarize(
    rows: Sequence[MixtureRow],
    categories: Sequence[str],
    runs: Mapping[str, Sequence[FairRun]],
    metric: str,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Per row and category mean and interval over seeds; per category its claims."""
    from tfr_moe.evaluation.claims import claims
    from tfr_moe.evaluation.result import summarize
    from tfr_moe.evaluation.significance import seed_interval

    summary: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
    families = {}
    for place, category in enumerate(categories):
        found = results_of(runs, category)
        names = {cell: cell.removesuffix(f": {category}") for cell in found}
        results = {names[cell]: of_cell for cell, of_cell in found.items()}
        for row in rows:
            interval = seed_interval([summarize(one)[metric].mean for one in results[row.name]])
            paper = row.paper if len(categories) == len(row.paper or ()) else None
            summary[row.name][category] = {
                "ours": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "paper": None if paper is None else paper[place],
            }
        order = [row.name for row in rows]
        pairs = [(b, a) for i, a in enumerate(order) for b in order[i + 1 :]]
        families[category] = claims(results, pairs, [metric])
    cells = [{"row": row.name, "categories": summary[row.name]} for row in rows]
    return cells, {name: family for name, family in families.items() if family}


def _shown(
    summary: Sequence[Mapping[str, Any]],
    categories: Sequence[str],
    settings: CategoryTableSettings,
    metric: str,
) -> Table:
    table = Table(
        title=f"{NAME}: {metric} by test category, {settings.split} lists, mean over "
        f"{settings.runs} seeds ± 95 %; in brackets the paper's Mobile Phone, Books, Clothing",
        title_justify="left",
    )
    table.add_column("model")
    for category in categories:
        table.add_column(category, justify="right", no_wrap=True)
    for row in summary:
        cells = [score_cell(row["categories"][category]) for category in categories]
        table.add_row(row["row"], *cells)
    return table


STUDY = Study(CategoryTableSettings, run, needs_data=True)
