"""Tables III and IV of Adv & HSC-MoE, and variants beyond the paper: models tested against references."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.table import Table

from tfr_moe.errors import UserError
from tfr_moe.folders import write_json
from tfr_moe.reproduce.fair_runs import (
    Cell,
    FairRun,
    FairSettings,
    fair_runs,
    judged_data,
    results_of,
)
from tfr_moe.reproduce.settings import load_table, wanted_rows
from tfr_moe.reproduce.study import Place, Study

if TYPE_CHECKING:
    from tfr_moe.evaluation.claims import Claim
    from tfr_moe.evaluation.result import PerListResult

TABLES = {"adv-hsc-moe-table3": "table3", "adv-hsc-moe-table4": "table4"}
VARIANTS = "adv-hsc-moe-variants"
COLUMN = "all"
"""The one column of tests that these tables have."""
REFERENCES = ("dnn", "wide_dnn", "moe")


class VariantSettings(FairSettings):
    """The settings of the variants: they are chosen among, so test lists are not for them."""

    split: str = "validation"


class MixtureRow(BaseModel):
    """A row: what the table calls it, its config's name, and the paper's numbers and p-values.

    Attributes:
        name: what the table calls it.
        config: name of its config; in the paper's tables that of its model.
        train: in Table V, on the data of one category (`own`) or of all (`joint`).
        paper: one for each of the paper's columns.
        against: the row that the paper's p-values are against.
        paper_p: one for each metric.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: str
    train: str | None = None
    paper: tuple[float, ...] | None = None
    against: str | None = None
    paper_p: tuple[str, ...] | None = None


class MixtureTable(BaseModel):
    """A table: title, metrics, configs that the rows after them are tested against, and rows in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    metrics: tuple[str, ...]
    references: tuple[str, ...] = REFERENCES
    rows: tuple[MixtureRow, ...]

    @property
    def is_the_papers(self) -> bool:
        """Whether the paper has numbers for it."""
        return any(row.paper is not None for row in self.rows)


def read_table(folder: Path) -> MixtureTable:
    """The table of a folder of configs.

    Raises:
        UserError: where it is not there or not one.
    """
    return load_table(folder, MixtureTable, "configs/adv_hsc_moe")


def need_hierarchy(data: Path) -> None:
    """Refuses data without categories, which nothing of this paper applies to.

    Raises:
        UserError: naming the data.
    """
    from tfr_moe.data import DataFolder

    if DataFolder(data).schema.hierarchy is None:
        raise UserError(
            f"--data {data}: its schema names no hierarchy, so there are no categories to gate by"
        )


def cells_of(rows: Sequence[MixtureRow], folder: str, data: Path, judged: Path) -> list[Cell]:
    """A cell for each row, trained on one data set and judged on another, or on the same."""
    path, tests = str(data.resolve()), {COLUMN: str(judged.resolve())}
    return [Cell(row.name, f"{folder}/{row.config}.yaml", path, tests) for row in rows]


def pairs_of(
    rows: Sequence[MixtureRow], configs: Sequence[str] = REFERENCES
) -> list[tuple[str, str]]:
    """Each row against the references (DNN, wide DNN and MoE) that stand before it."""
    references = [row.name for row in rows if row.config in configs]
    names = [row.name for row in rows]
    return [
        (name, reference)
        for name in names
        for reference in references
        if names.index(reference) < names.index(name)
    ]


def run(name: str, folder: str, settings: FairSettings, place: Place) -> Sequence[RenderableType]:
    """The whole table, or what is left of it: runs, `results.json`, and what to show."""
    from tfr_moe.evaluation.claim_tables import by_metric, claim_table, difference_table
    from tfr_moe.evaluation.claims import claims

    assert place.data is not None
    need_hierarchy(place.data)
    table = read_table(Path(settings.configs) / folder)
    rows = wanted_rows(table.rows, settings.rows)
    judged = judged_data(settings, place.data)
    runs = fair_runs(settings, cells_of(rows, folder, place.data, judged), table.metrics, place)
    results = results_of(runs, COLUMN)
    found = claims(results, pairs_of(rows, table.references), table.metrics)
    summary = summarize(rows, runs, results, table.metrics)
    write_json(
        place.out / "results.json",
        {"rows": summary, "claims": [dataclasses.asdict(claim) for claim in found]},
    )
    shown = _scores(name, table, summary, settings)
    table_of = claim_table if table.is_the_papers else difference_table
    tested = [table_of(family) for family in by_metric(found).values()]
    for one in tested[:-1]:
        one.caption = None  # the same under each
    beside = _p_values(rows, table.metrics, found)
    return [shown, *tested, *([beside] if beside.row_count else [])]


def summarize(
    rows: Sequence[MixtureRow],
    runs: Mapping[str, Sequence[FairRun]],
    results: Mapping[str, Sequence[PerListResult]],
    metrics: Sequence[str],
) -> list[dict[str, Any]]:
    """Per row its learning rate, size, and per metric mean, t interval over seeds, and the paper's."""
    from tfr_moe.evaluation.result import summarize as over_lists
    from tfr_moe.evaluation.significance import seed_interval

    found = []
    for row in rows:
        cells = {}
        for place, metric in enumerate(metrics):
            values = [over_lists(result)[metric].mean for result in results[row.name]]
            interval = seed_interval(values)
            cells[metric] = {
                "ours": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "runs": values,
                "paper": None if row.paper is None else row.paper[place],
            }
        first = runs[row.name][0]
        found.append(
            {
                "row": row.name,
                "learning_rate": first.learning_rate,
                "parameters": first.parameters,
                "metrics": cells,
            }
        )
    return found


def score_cell(cell: Mapping[str, Any]) -> str:
    """Our mean with the reach of its interval, and the paper's number in brackets."""
    text = f"{cell['ours']:.4f}"
    if cell["low"] == cell["low"]:
        text += f" ±{cell['high'] - cell['ours']:.4f}"
    return text if cell["paper"] is None else f"{text} ({cell['paper']:.4f})"


def _scores(
    name: str,
    table: MixtureTable,
    summary: Sequence[Mapping[str, Any]],
    settings: FairSettings,
) -> Table:
    title = f"{name}: {table.title}; {settings.split} lists, mean over {settings.runs} seeds ± 95 %"
    if table.is_the_papers:
        title += ", the paper's in brackets"
    shown = Table(title=title, title_justify="left")
    shown.add_column("model")
    for metric in table.metrics:
        shown.add_column(metric, justify="right", no_wrap=True)
    shown.add_column("learning rate", justify="right")
    shown.add_column("parameters", justify="right")
    for row in summary:
        cells = [score_cell(row["metrics"][metric]) for metric in table.metrics]
        rate = "-" if row["learning_rate"] is None else f"{row['learning_rate']:g}"
        shown.add_row(row["row"], *cells, rate, f"{row['parameters']:,}")
    return shown


def _p_values(rows: Sequence[MixtureRow], metrics: Sequence[str], found: Sequence[Claim]) -> Table:
    """The paper's p-values beside ours over seeds and lists."""
    from tfr_moe.evaluation.claim_tables import p_text

    shown = Table(
        title="p-values after Holm: over seeds (over seeds and lists), the paper's last",
        title_justify="left",
    )
    shown.add_column("model")
    shown.add_column("against")
    for metric in metrics:
        shown.add_column(metric, justify="right", no_wrap=True)
    claimed = {(claim.metric, claim.model, claim.reference): claim for claim in found}
    for row in rows:
        if row.against is None or (metrics[0], row.name, row.against) not in claimed:
            continue
        cells = []
        for place, metric in enumerate(metrics):
            claim = claimed[metric, row.name, row.against]
            paper = "" if row.paper_p is None else f"; {row.paper_p[place]}"
            cells.append(f"{p_text(claim.holm_seeds)} ({p_text(claim.holm_both)}){paper}")
        shown.add_row(row.name, row.against, *cells)
    return shown


STUDIES = {
    name: Study(FairSettings, functools.partial(run, name, folder), needs_data=True)
    for name, folder in TABLES.items()
}
STUDIES[VARIANTS] = Study(
    VariantSettings, functools.partial(run, VARIANTS, "variants"), needs_data=True
)
