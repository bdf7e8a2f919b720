"""Fig. 4 of Adv & HSC-MoE: the gain over DNN in buckets of categories of similar training size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from experiments.adv_hsc_moe.category_data import training_sizes
from experiments.adv_hsc_moe.model_tables import (
    COLUMN,
    ModelTable,
    ModelTableSettings,
    cells_of,
    need_hierarchy,
)
from experiments.common.categories import categories_of
from experiments.common.study import Study, StudyContext
from experiments.common.tables import interval_cell, load_table, select_rows
from experiments.common.tuned_runs import evaluation_data, results_of, tuned_runs
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult, compare
from tfr_moe.report import Line, chart, write_figure
from tfr_moe.utils import write_json

NAME = "adv-hsc-moe-fig4"
BASELINE = "DNN"
METRIC = "session_auc"
LEVELS = {"top": "top categories", "sub": "sub-categories"}


class GainSettings(ModelTableSettings):
    """Settings of Fig. 4.

    Attributes:
        table: folder of the table whose rows are compared.
        level: whether buckets consist of `top` categories or of `sub`-categories.
        buckets: number of buckets with about equally many categories.
        edges: numbers of training lists at which buckets begin, instead of `buckets`.
    """

    table: str = "table3"
    level: Literal["top", "sub"] = "top"
    buckets: int = Field(5, ge=1)
    edges: tuple[int, ...] | None = Field(None, min_length=1)


def bucketed(
    categories: np.ndarray, training_sizes: Mapping[str, int], num_buckets: int | Sequence[int]
) -> np.ndarray:
    """The bucket of each list: categories of similar size, in runs of (nearly) equal numbers.

    A bucket is named by its number, smallest categories first, and its range of sizes:
    `1: 20 to 340`.

    Args:
        categories: [n] names.
        training_sizes: per category its number of training lists; 0 for one that is not there.
        num_buckets: from 1 to the number of categories, or the sizes at which buckets begin (empty
            buckets are left out).
    """
    names, groups = np.unique(categories, return_inverse=True)
    sizes = np.array([training_sizes.get(str(name), 0) for name in names])
    bucket_names = np.empty(len(names), dtype=object)
    order = np.argsort(sizes, kind="stable")
    if isinstance(num_buckets, int):
        parts = np.array_split(order, num_buckets)
    else:
        parts = np.split(order, np.searchsorted(sizes[order], sorted(num_buckets)))
    for number, members in enumerate(filter(len, parts), start=1):
        low, high = sizes[members].min(), sizes[members].max()
        bucket_names[members] = f"{number}: {low} to {high}"
    return bucket_names[groups.reshape(-1)].astype(str)


def gains(
    results: Mapping[str, Sequence[PerListResult]],
    sizes: Mapping[str, int],
    buckets: int | Sequence[int],
    metric: str = METRIC,
) -> list[dict[str, Any]]:
    """Returns per bucket the gain of each model over `BASELINE`, smallest categories first.

    Args:
        results: per model the results of its runs, with categories.
        sizes: per category its number of training lists.
        buckets: number of buckets, or the sizes at which buckets begin.
        metric: the metric to compare.

    Returns:
        Per bucket `name`, `smallest` (number of training lists of its smallest category),
        `categories`, `training_lists`, `evaluated` (number of lists on which the metric is defined)
        and `gains`: model -> `difference`, `low`, `high` over seeds and lists.

    Raises:
        UserError: if the baseline has no run, or the results no categories.
    """
    if BASELINE not in results:
        raise UserError(f"rows: gains are over {BASELINE}, which must be among them")
    first = results[BASELINE][0]
    if first.categories is None:
        raise UserError("the runs' lists have no categories")
    categories = first.categories.astype(str)
    if isinstance(buckets, int):
        buckets = min(buckets, len(np.unique(categories)))
    bucket_of = bucketed(categories, sizes, buckets)
    names = sorted(set(bucket_of), key=lambda name: int(name.partition(":")[0]))
    rows = []
    for name in names:
        members = [str(category) for category in np.unique(categories[bucket_of == name])]
        selected = {
            model: [_selected(run, members) for run in runs] for model, runs in results.items()
        }
        evaluated = int(np.isfinite(selected[BASELINE][0].metric(metric)).sum())
        rows.append(
            {
                "name": f"{name} lists",
                "smallest": min(sizes.get(member, 0) for member in members),
                "categories": sorted(members, key=lambda member: (sizes.get(member, 0), member)),
                "training_lists": sum(sizes.get(member, 0) for member in members),
                "evaluated": evaluated,
                "gains": _gains(selected, metric) if evaluated else {},
            }
        )
    return rows


def _selected(result: PerListResult, categories: Sequence[str]) -> PerListResult:
    """The result of the lists of some categories."""
    index = np.isin(result.categories.astype(str), categories)
    return PerListResult(
        list_ids=result.list_ids[index],
        values={name: values[index] for name, values in result.values.items()},
        nothing_relevant={name: flags[index] for name, flags in result.nothing_relevant.items()},
        num_items=result.num_items[index],
        num_relevant=result.num_relevant[index],
        categories=result.categories[index],
    )


def _gains(
    results: Mapping[str, Sequence[PerListResult]], metric: str
) -> dict[str, dict[str, float]]:
    gaps = {
        model: compare(runs, results[BASELINE], metric)
        for model, runs in results.items()
        if model != BASELINE
    }
    return {
        model: {"difference": gap.difference, "low": gap.low, "high": gap.high}
        for model, gap in gaps.items()
    }


def run(settings: GainSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Trains what is missing (see `runs_of`), writes `results.json` and the figure."""
    data = context.need_data()
    need_hierarchy(data)
    table = load_table(Path(settings.configs) / settings.table, ModelTable)
    rows = select_rows(table.rows, settings.rows)
    evaluate_on = evaluation_data(settings, data)
    cells = cells_of(rows, settings.table, data, evaluate_on)
    results = results_of(tuned_runs(settings, cells, table.metrics, context), COLUMN)
    if settings.level == "sub":
        # The categories of runs are top categories.
        subs = categories_of(DataFolder(evaluate_on), settings.split).sub
        results = {
            model: [dataclasses.replace(result, categories=subs) for result in runs]
            for model, runs in results.items()
        }
    sizes = training_sizes(data, settings.level)
    buckets = gains(results, sizes, settings.edges or settings.buckets)
    write_json(context.out / "results.json", {"metric": METRIC, "buckets": buckets})
    _draw(context.out, buckets, settings.level)
    return [gain_table(buckets, settings)]


def _draw(out: Path, buckets: Sequence[Mapping[str, Any]], level: str) -> None:
    """Gains of each model in percentage points, and beside them the lists of each bucket."""
    models = list(dict.fromkeys(model for bucket in buckets for model in bucket["gains"]))
    ticks = [(index, f"{bucket['smallest']:,}+") for index, bucket in enumerate(buckets)]
    ends = (-0.5, len(buckets) - 0.5)
    lines = []
    for index, model in enumerate(models):
        drawn = [(i, b["gains"][model]) for i, b in enumerate(buckets) if model in b["gains"]]
        across = [i + 0.06 * (index - len(models) / 2) for i, _ in drawn]
        gains = ([100 * gain[key] for _, gain in drawn] for key in ("difference", "low", "high"))
        lines.append(Line(model, across, *gains))
    x_title = f"training lists of a {'sub-category' if level == 'sub' else 'top category'}"
    y_title = f"AUC minus {BASELINE}, percentage points"
    gained = chart(
        lines,
        f"gain over {BASELINE} by size",
        x_title,
        y_title,
        x_ticks=ticks,
        rule=[(-math.inf, 0.0), (math.inf, 0.0)],
        include=(ends, (0.0,)),
    )
    lists = [bucket["training_lists"] for bucket in buckets]
    counted = chart(
        [Line("", range(len(lists)), lists)],
        "training lists by size",
        x_title,
        "training lists",
        x_ticks=ticks,
        include=(ends, (0.0,)),
    )
    write_figure([gained, counted], out / "figure_4_gain_by_size.svg")


def gain_table(buckets: Sequence[Mapping[str, Any]], settings: GainSettings) -> Table:
    """Returns a line for each bucket and model: a column for each model would be too wide."""
    table = Table(
        title=f"{NAME}: {METRIC} minus {BASELINE} [95 % over {settings.runs} seeds and lists] by "
        f"size of {LEVELS[settings.level]}; in the paper all gains are above 0 and fall with size",
        title_justify="left",
    )
    table.add_column("training lists", no_wrap=True)
    table.add_column("categories", justify="right")
    table.add_column("evaluated", justify="right")
    table.add_column("model")
    table.add_column("gain", justify="right", no_wrap=True)
    for bucket in buckets:
        cells = [bucket["name"], str(len(bucket["categories"])), f"{bucket['evaluated']:,}"]
        for model, gain in bucket["gains"].items():
            table.add_row(*cells, model, interval_cell(*gain.values()))
            cells = ["", "", ""]
        table.add_section()
    return table


STUDIES = {NAME: Study(GainSettings, run, needs_data=True)}
