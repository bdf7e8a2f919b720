"""The page of a hyper-parameter sweep: its sentences and its heat map."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tfr_moe.report import html
from tfr_moe.report.figures import Cell, HeatMap, label
from tfr_moe.report.html import write_page
from tfr_moe.tuning import results
from tfr_moe.tuning.results import SweepSummary, settings_text, symbol
from tfr_moe.tuning.sweep_folder import locked
from tfr_moe.utils.formats import duration, setting

REPORT_FILE = "report.html"
MAX_CELLS = 12
"""Largest side of the heat map."""
_IN_HEADLINE = 3  # settings at most
_LAMBDAS = ("hsc_weight", "adversarial_weight")


def write_sweep_report(sweep: str | Path, svg: Path | None = None) -> Path:
    """Writes the page and the results of a sweep, finished or not, to its folder; returns the page.

    See `tfr_moe.tuning.results.write_results` for the other files, and `html.render` for `svg`.
    """
    summary = results.write_results(sweep)
    page = summary.path / REPORT_FILE
    with locked(summary.path):
        write_page(render_sweep(summary, svg), page)
    return page


def render_sweep(summary: SweepSummary, svg: Path | None = None) -> str:
    """Renders the page."""
    config = summary.config
    about = {"data": config.data, "space": ", ".join(config.space), "search": config.algorithm}
    return html.render(
        "sweep.html",
        svg,
        sweep=sys.modules[__name__],
        summary=summary,
        name=summary.path.resolve().name,
        about={key: value for key, value in about.items() if value},
        headings=[heading(key) for key in summary.varying],
    )


def headline(summary: SweepSummary) -> str:
    """What won, and whether it is sure."""
    if summary.best is None:
        return "No result yet"
    settings = settings_text(summary.best.trial.hyperparameters, summary.varying)
    short = 1 <= len(summary.varying) <= _IN_HEADLINE
    best = settings if short else f"Trial {summary.best.trial.trial_id}"
    if len(summary.entries) == 1:
        return f"Only {best} has a result"
    if summary.noise is None:
        return f"{best} leads, by one seed a trial"
    tied = sum(bool(entry.tied) for entry in summary.entries) - 1
    return f"{best} leads, level with {tied} of the others" if tied else f"{best} wins"


def sentence(summary: SweepSummary) -> str:
    """The best result and its lead; empty without results."""
    if summary.best is None:
        return ""
    best = summary.best
    lead = f", {summary.entries[1].gap:.4f} from the second" if len(summary.entries) > 1 else ""
    return f"Trial {best.trial.trial_id} has a {summary.config.objective} of {best.text}{lead}."


def cost(summary: SweepSummary) -> str:
    """Trials and training time."""
    trials = [entry.trial for entry in summary.entries]
    seconds = sum(seed.seconds for trial in trials for seed in trial.seeds)
    return f"{duration(seconds)} of training: {results.count_line(summary)}."


def heading(name: str) -> str:
    """The name of a hyper-parameter with its symbol, if it has one."""
    return name if symbol(name) == name else f"{name} ({symbol(name)})"


def grid_axes(summary: SweepSummary) -> dict[str, list[float]]:
    """The hyper-parameters of the heat map, across and down, and their values, largest first.

    The lambdas, or the only two that vary, if they are numbers with few values; else empty.
    """
    names = _LAMBDAS if set(_LAMBDAS) <= set(summary.varying) else summary.varying
    axes = {}
    for name in names:
        values = [entry.trial.hyperparameters.get(name) for entry in summary.entries]
        if all(type(value) in (int, float) for value in values):
            axes[name] = sorted(set(values), reverse=True)
    few = all(2 <= len(values) <= MAX_CELLS for values in axes.values())
    return axes if len(names) == len(axes) == 2 and few else {}


def heat_map_of(summary: SweepSummary) -> HeatMap | None:
    """Table VIII: a cell for each pair of values, largest first, coloured by its rank.

    If other hyper-parameters vary too, a cell shows the best trial with its pair.
    """
    axes = grid_axes(summary)
    if summary.best is None or not axes:
        return None
    across, down = axes.values()
    cells = {
        tuple(entry.trial.hyperparameters.get(name) for name in axes): entry
        for entry in reversed(summary.entries)  # the best one of a cell is last
    }

    def cell(x: Any, y: Any) -> Cell:
        entry = cells.get((x, y))
        if entry is None:
            return Cell("–", hint="not run")
        share = 1 - (entry.rank - 1) / len(summary.entries)
        level = "≈ " if entry.tied and entry.rank > 1 else ""
        settings = settings_text(entry.trial.hyperparameters, summary.varying)
        hint = f"trial {entry.trial.trial_id}, rank {entry.rank}, {entry.text}, {settings}"
        kind = "best" if entry.rank == 1 else ""
        return Cell(level + entry.text, share, hint, kind)

    x_name, y_name = map(heading, axes)
    others = ", ".join(name for name in summary.varying if name not in axes)
    best = f"; a cell is the best over {others}" if others else ""
    return HeatMap(
        caption=f"{summary.config.objective} by {label(x_name)} and {label(y_name)}{best}",
        columns=[(setting(x), "") for x in across],
        rows=[setting(y) for y in down],
        cells=[[cell(x, y) for x in across] for y in down],
        corner=f"{label(y_name)} ↓ {label(x_name)} →",
    )
