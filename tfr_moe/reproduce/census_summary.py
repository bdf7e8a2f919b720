"""The Census-Income study's tables: best and mean over runs beside the paper's, and a plot of all runs.

`best` is the run with the highest validation AUC on the main task, and the numbers are its AUC on the
test rows: the test set chooses nothing, so that a best run can stand below the mean. Intervals are 95 % t
intervals over runs; they leave out the chance of the split and of the tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from scipy import stats

from tfr_moe.census_income import GROUPS
from tfr_moe.evaluation.significance import seed_interval
from tfr_moe.reproduce.census_paper import PAPER, Row
from tfr_moe.reproduce.plots import COLOURS, MARKS, drawn

REFERENCE = "mmoe"


def row_of(runs: Sequence[dict[str, Any]]) -> Row:
    """The four numbers of a table's row.

    Args:
        runs: one model's runs on one group, with `validation` and `test` AUC of both tasks.

    Example:
        >>> row_of([
        ...     {"validation": [0.7, 0.9], "test": [0.6, 0.8]},
        ...     {"validation": [0.6, 0.9], "test": [0.8, 0.9]},
        ... ])
        Row(main_best=0.6, main_mean=0.7, other_with_best=0.8, other_mean=0.85)
    """
    best = max(runs, key=lambda run: run["validation"][0])["test"]
    means = np.mean([run["test"] for run in runs], axis=0).round(12)
    return Row(best[0], float(means[0]), best[1], float(means[1]))


def difference(a: Sequence[float], b: Sequence[float]) -> dict[str, float]:
    """Mean of a minus mean of b with Welch's 95 % interval and p-value; NaN below two runs of each.

    Example:
        >>> found = difference([0.8, 0.9], [0.7, 0.8])
        >>> round(found["difference"], 6), round(found["low"], 4), round(found["high"], 4)
        (0.1, -0.2042, 0.4042)
    """
    found = {"difference": float(np.mean(a) - np.mean(b))}
    if len(a) < 2 or len(b) < 2 or np.ptp(a) + np.ptp(b) < 1e-12:
        return {**found, "low": float("nan"), "high": float("nan"), "p_value": float("nan")}
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(0.95)
    return {
        **found,
        "low": float(interval.low),
        "high": float(interval.high),
        "p_value": float(test.pvalue),
    }


def summarize(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything of the tables, JSON-serializable: group -> model -> numbers.

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
            cell[f"{REFERENCE}_minus_this_{task}"] = difference(others, values)
    return cell


def tables(summary: dict[str, Any]) -> list[Table]:
    """The paper's Tables 1 and 2 with ours beside, and the differences from MMoE."""
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
        found = [cell.get(f"{REFERENCE}_minus_this_{task}") for task in GROUPS[int(group)]]
        if None not in found:
            table.add_row(model, *(_signed(difference) for difference in found))
    return table


def _signed(found: dict[str, float]) -> str:
    text = f"{found['difference']:+.4f}"
    return text if np.isnan(found["low"]) else f"{text} [{found['low']:+.4f}, {found['high']:+.4f}]"


def draw(out: Path, group: int, runs: Sequence[dict[str, Any]]) -> None:
    """Every run's test AUC on both tasks, with the mean and its interval."""
    models = list(dict.fromkeys(run["model"] for run in runs))
    with drawn(out, f"group_{group}", panels=2, width=4.6, height=3.6) as panels:
        for task, axes in enumerate(panels):
            for index, model in enumerate(models):
                values = [run["test"][task] for run in runs if run["model"] == model]
                found = seed_interval(values)
                axes.plot(
                    values,
                    [index] * len(values),
                    MARKS[index],
                    color=COLOURS[index],
                    alpha=0.5,
                    markersize=5,
                )
                reach = 0.0 if np.isnan(found.high) else found.high - found.mean
                axes.errorbar(
                    found.mean, index + 0.3, xerr=reach, fmt="|", color="black", capsize=3
                )
            axes.set_yticks(range(len(models)), models)
            axes.set_ylim(len(models) - 0.4, -0.6)
            axes.set_xlabel(f"test AUC: {GROUPS[group][task]}")
        panels[0].set_title("every run, and mean with 95 % interval", loc="left", fontsize=9)
