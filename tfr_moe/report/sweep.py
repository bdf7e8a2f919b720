"""The page of a hyper-parameter sweep: its sentences and its heat map."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tfr_moe.config import make_config
from tfr_moe.report import html
from tfr_moe.report.figures import Cell, HeatMap, label
from tfr_moe.report.html import write_page
from tfr_moe.tuning import results
from tfr_moe.tuning.results import SweepSummary, settings_text, symbol
from tfr_moe.utils.formats import command, duration, setting

REPORT_FILE = "report.html"
MAX_ROWS = 500
MAX_CELLS = 12
"""Largest side of the heat map."""
_IN_HEADLINE = 3  # settings at most
_SECTIONS = {
    "failed": "Failed trials",
    "map": "Heat map",
    "trials": "All trials",
    "settings": "Settings",
    "glossary": "Words",
}


def write_sweep_report(sweep: str | Path, svg: Path | None = None) -> Path:
    """Writes the page and all results of a sweep, finished or not, to its folder; returns the page.

    Existing files are replaced. See `tfr_moe.tuning.results.write_results` for the other files, and
    `html.render` for `svg`.
    """
    summary = results.write_results(sweep)
    page = summary.path / REPORT_FILE
    write_page(render_sweep(summary, svg), page)
    return page


def render_sweep(summary: SweepSummary, svg: Path | None = None) -> str:
    """Renders the page."""
    about = {
        "data": summary.settings.get("data"),
        "space": ", ".join(summary.settings.get("space") or ()),
        "search": summary.settings.get("algorithm"),
    }
    drawn = heat_map_of(summary)
    contents = {
        "failed": summary.failed,
        "map": drawn,
        "trials": summary.entries,
    }
    return html.render(
        "sweep.html",
        svg,
        sweep=sys.modules[__name__],
        summary=summary,
        name=summary.path.resolve().name,
        about={key: value for key, value in about.items() if value},
        headings=[heading(key) for key in summary.varying],
        noise=results.noise_line(summary),
        map=drawn,
        sections=[(id, text) for id, text in _SECTIONS.items() if contents.get(id, True)],
        settings=_changed_settings(summary),
        max_rows=MAX_ROWS,
        results=results,
        setting=setting,
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
    return f"{best} leads, {tied} others are level" if tied else f"{best} wins"


def sentence(summary: SweepSummary) -> str:
    """The best result and its lead; empty without results."""
    if summary.best is None:
        return ""
    best = summary.best
    lead = f", {summary.entries[1].gap:.4f} from the second" if len(summary.entries) > 1 else ""
    return f"Trial {best.trial.trial_id} has a {summary.objective} of {best.text}{lead}."


def cost(summary: SweepSummary) -> str:
    """Trials and training time."""
    trials = [entry.trial for entry in summary.entries]
    seconds = sum(seed.seconds for trial in trials for seed in trial.seeds)
    return f"{duration(seconds)} of training: {results.count_line(summary)}."


def next_command(summary: SweepSummary) -> str:
    """The command that trains the best settings with a new seed."""
    data, config = summary.settings.get("data", "DATA"), summary.path / "best.yaml"
    words = ("--data", data, "--config", config, "--set", "seed=11", "--out", "RUN")
    return command("train", *words)


def heading(name: str) -> str:
    """The name of a hyper-parameter with its symbol, if it has one."""
    return name if symbol(name) == name else f"{name} ({symbol(name)})"


def about_map(summary: SweepSummary) -> str:
    """What the heat map shows, and of what."""
    others = [name for name in summary.varying if name not in (grid_axes(summary) or ())]
    cut = f" A cell is the best over {', '.join(others)}." if others else ""
    values = f"Results differ by {summary.entries[-1].gap:.4f} at most: "
    level = "; ≈ marks trials that are level with it" if summary.noise else ""
    return f"{values}the stronger the colour, the better; the best is framed{level}.{cut}"


def about_trials(summary: SweepSummary) -> str:
    """The range of results."""
    best, last = summary.entries[0], summary.entries[-1]
    return f"From {best.value:.4f} (trial {best.trial.trial_id}) to {last.value:.4f}."


def scale(
    values: Sequence[float], higher: bool, least_difference: float = 0.0
) -> tuple[float, float]:
    """The values of the palest and the strongest colour, robust to diverged trials.

    Values more than four times as far from the best as the median share the palest colour. A
    difference within seed noise is less than half of the scale.
    """
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    reach = 4 * abs(best - float(np.median(values)))
    if reach and abs(best - worst) > reach:
        worst = round(best - reach if higher else best + reach, 12)
    span = max(abs(best - worst), 2 * least_difference)
    return round(best - span if higher else best + span, 12), best


def grid_axes(summary: SweepSummary) -> tuple[str, str] | None:
    """The hyper-parameters of the heat map, across and down; None without such a pair.

    The lambdas if both vary, else the only two that vary, if both are numbers with few values.
    """
    names = summary.varying
    pair = ("hsc_weight", "adversarial_weight")
    if not set(pair) <= set(names):
        if len(names) != 2:
            return None
        pair = (names[0], names[1])
    for name in pair:
        values = values_of(summary, name)
        if not _numeric(values) or not 2 <= len(values) <= MAX_CELLS:
            return None
    return pair


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def values_of(summary: SweepSummary, name: str) -> list[Any]:
    """The values of a hyper-parameter in trials with a result: numbers sorted, then others."""
    by_id = sorted((entry.trial for entry in summary.entries), key=lambda trial: trial.trial_id)
    values = (trial.hyperparameters.get(name) for trial in by_id)
    return sorted({repr(value): value for value in values}.values(), key=_sort_key)


def _sort_key(value: Any) -> tuple[int, float]:
    """Sorts None first, then numbers by size, then other values in their order."""
    if value is None:
        return (0, 0.0)
    return (1, float(value)) if isinstance(value, int | float) else (2, 0.0)


def heat_map_of(summary: SweepSummary) -> HeatMap | None:
    """Table VIII: a cell for each pair of values, largest first, with mean and deviation.

    If other hyper-parameters vary too, a cell shows the best trial with its pair.
    """
    pair = grid_axes(summary)
    if pair is None or summary.best is None:
        return None
    across, down = (list(reversed(values_of(summary, name))) for name in pair)
    cells = {
        tuple(repr(entry.trial.hyperparameters.get(name)) for name in pair): entry
        for entry in reversed(summary.entries)  # the best one of a cell is last
    }
    seeds = len(summary.best.trial.seeds)
    least = summary.noise.least_difference(seeds, seeds) if summary.noise and seeds else 0.0
    low, high = scale([entry.value for entry in cells.values()], summary.higher, least)

    def cell(x: Any, y: Any) -> Cell:
        entry = cells.get((repr(x), repr(y)))
        if entry is None:
            return Cell("–", hint="not run")
        share = (entry.value - low) / (high - low) if high != low else 1.0
        level = "≈ " if entry.tied and entry.rank > 1 else ""
        settings = settings_text(entry.trial.hyperparameters, summary.varying)
        hint = f"trial {entry.trial.trial_id}, rank {entry.rank}, {entry.text}, {settings}"
        kind = "best" if entry.rank == 1 else ""
        return Cell(level + entry.text, max(share, 0.0), hint, kind)

    x_name, y_name = map(heading, pair)
    return HeatMap(
        caption=f"{summary.objective} by {label(x_name)} and {label(y_name)}",
        columns=[(setting(x), "") for x in across],
        rows=[setting(y) for y in down],
        cells=[[cell(x, y) for x in across] for y in down],
        corner=f"{label(y_name)} ↓ {label(x_name)} →",
    )


def _changed_settings(summary: SweepSummary) -> str:
    """The settings of the sweep as YAML, without those of `base` that have their default."""
    settings, defaults = dict(summary.settings), make_config({}).model_dump(mode="json")
    base = settings.get("base") or {}
    settings["base"] = {k: v for k, v in base.items() if k not in defaults or defaults[k] != v}
    return yaml.safe_dump(
        settings, sort_keys=False, allow_unicode=True, default_flow_style=None, width=90
    )
