"""Tables 1 and 2 of the Census-Income study: best run and mean beside the paper's, and a plot.

The best run is the one with the highest validation AUC on the main task; its numbers are AUC on the
test rows. The test set selects nothing, so the best run can be below the mean. Intervals are 95 % t
intervals over runs; they leave out the variance of the split and of the tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from experiments.common.tables import interval_cell, welch_difference
from experiments.mmoe.census_income import GROUPS
from tfr_moe.evaluation import seed_interval
from tfr_moe.report import Line, chart, write_figure

REFERENCE = "mmoe"


class CensusRow(NamedTuple):
    """One row of the paper's Tables 1 and 2: AUC on the two tasks of a group.

    Attributes:
        main_best: the main task in its best run.
        main_mean: the main task, mean over runs.
        other_with_best: the other task in the main task's best run.
        other_mean: the other task, mean over runs.
    """

    main_best: float
    main_mean: float
    other_with_best: float
    other_mean: float


PAPER: dict[int, dict[str, CensusRow]] = {
    1: {
        "single_task": CensusRow(0.9398, 0.9337, 0.9933, 0.9922),
        "shared_bottom": CensusRow(0.9361, 0.9295, 0.9915, 0.9921),
        "l2_constrained": CensusRow(0.9389, 0.9359, 0.9922, 0.9918),
        "cross_stitch": CensusRow(0.9406, 0.9361, 0.9917, 0.9922),
        "tensor_factorization": CensusRow(0.7460, 0.6765, 0.8175, 0.8412),
        "omoe": CensusRow(0.9387, 0.9319, 0.9928, 0.9923),
        "mmoe": CensusRow(0.9410, 0.9359, 0.9926, 0.9927),
    },
    2: {
        "single_task": CensusRow(0.8843, 0.8792, 0.9933, 0.9922),
        "shared_bottom": CensusRow(0.8836, 0.8813, 0.9927, 0.9917),
        "l2_constrained": CensusRow(0.8855, 0.8823, 0.9923, 0.9918),
        "cross_stitch": CensusRow(0.8855, 0.8819, 0.9919, 0.9921),
        "tensor_factorization": CensusRow(0.7367, 0.7256, 0.7453, 0.7497),
        "omoe": CensusRow(0.8852, 0.8813, 0.9915, 0.9912),
        "mmoe": CensusRow(0.8860, 0.8826, 0.9932, 0.9924),
    },
}
"""The paper's numbers: group -> model -> row. Trained on 199,523 rows, the training half."""


def row_of(runs: Sequence[dict[str, Any]]) -> CensusRow:
    """Returns the four numbers of a table's row.

    Args:
        runs: one model's runs on one group, with `validation` and `test` AUC of both tasks.

    Example:
        >>> row_of([
        ...     {"validation": [0.7, 0.9], "test": [0.6, 0.8]},
        ...     {"validation": [0.6, 0.9], "test": [0.8, 0.9]},
        ... ])
        CensusRow(main_best=0.6, main_mean=0.7, other_with_best=0.8, other_mean=0.85)
    """
    best = max(runs, key=lambda run: run["validation"][0])["test"]
    means = np.mean([run["test"] for run in runs], axis=0).round(12)
    return CensusRow(best[0], float(means[0]), best[1], float(means[1]))


def summarize(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns all numbers of the tables, JSON-serializable: group -> model -> numbers.

    Args:
        runs: mappings with `group`, `model`, `validation`, `test`, `parameters` and `chosen`.
    """
    summary: dict[str, Any] = {}
    for group in sorted({run["group"] for run in runs}):
        of_group = [run for run in runs if run["group"] == group]
        models = list(dict.fromkeys(run["model"] for run in of_group))
        by_model = {m: [run for run in of_group if run["model"] == m] for m in models}
        summary[str(group)] = {
            model: _cell(group, model, of_model, by_model.get(REFERENCE))
            for model, of_model in by_model.items()
        }
    return summary


def _cell(
    group: int,
    model: str,
    runs: Sequence[dict[str, Any]],
    reference: Sequence[dict[str, Any]] | None,
) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "ours": row_of(runs)._asdict(),
        "paper": PAPER[group][model]._asdict(),
        "runs": len(runs),
        "parameters": runs[0]["parameters"],
        "chosen": runs[0]["chosen"],
    }
    for index, task in enumerate(GROUPS[group]):
        values = [run["test"][index] for run in runs]
        cell[f"interval_{task}"] = asdict(seed_interval(values))
        if reference and model != REFERENCE:
            others = [run["test"][index] for run in reference]
            cell[f"{REFERENCE}_minus_this_{task}"] = welch_difference(others, values)
    return cell


def tables(summary: dict[str, Any]) -> list[Table]:
    """Returns the paper's Tables 1 and 2 beside ours, and the differences from MMoE."""
    return [
        table
        for group, cells in summary.items()
        for table in (_scores(group, cells), _differences(group, cells))
    ]


def _scores(group: str, cells: dict[str, Any]) -> Table:
    main, other = GROUPS[int(group)]
    runs = next(iter(cells.values()))["runs"]
    table = Table(
        title=f"Table {group}: test AUC, {runs} runs of each model; the paper's in brackets",
        title_justify="left",
    )
    table.add_column("model")
    for name in (f"{main}: best", "mean", f"{other}: with best {main}", "mean", "parameters"):
        table.add_column(name, justify="right")
    for model, cell in cells.items():
        pairs = zip(cell["ours"].values(), cell["paper"].values(), strict=True)
        table.add_row(
            model,
            *(f"{ours:.4f} ({paper:.4f})" for ours, paper in pairs),
            f"{cell['parameters']:,}",
        )
    return table


def _differences(group: str, cells: dict[str, Any]) -> Table:
    table = Table(title=f"group {group}: {REFERENCE} minus the model [95 %]", title_justify="left")
    table.add_column("model")
    for task in GROUPS[int(group)]:
        table.add_column(task, justify="right")
    for model, cell in cells.items():
        gaps = [cell.get(f"{REFERENCE}_minus_this_{task}") for task in GROUPS[int(group)]]
        if None not in gaps:
            texts = (interval_cell(gap["difference"], gap["low"], gap["high"]) for gap in gaps)
            table.add_row(model, *texts)
    return table


def draw(out: Path, group: int, runs: Sequence[dict[str, Any]]) -> None:
    """Draws every run's test AUC on both tasks, with the mean and its interval."""
    models = list(dict.fromkeys(run["model"] for run in runs))
    panels = []
    for task, name in enumerate(GROUPS[group]):
        lines = []
        for row, model in enumerate(reversed(models)):
            values = [run["test"][task] for run in runs if run["model"] == model]
            interval = seed_interval(values)
            ends = (
                [interval.mean]
                if np.isnan(interval.high)
                else [interval.low, interval.mean, interval.high]
            )
            lines += [
                Line("", values, [row] * len(values), kind="points", colour=row),
                Line("", ends, [row + 0.3] * len(ends), colour=row),
            ]
        panels.append(
            chart(
                lines,
                f"test AUC of every run of {name}, with the mean and its interval",
                f"test AUC: {name}",
                "",
                title="" if task else "every run, and mean with 95 % interval",
                y_ticks=list(enumerate(reversed(models))),
                include=((), (-0.5, len(models) - 0.5)),
            )
        )
    write_figure(panels, out / f"group_{group}.svg")
