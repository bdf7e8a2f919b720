"""The page of a hyper-parameter sweep, and the sentences on it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tfr_moe.config import make_config
from tfr_moe.report import html
from tfr_moe.report.files import write_page
from tfr_moe.report.formats import command, duration
from tfr_moe.report.sweep_figures import grid_axes, heat_map_of
from tfr_moe.tuning import formatting, leaderboard
from tfr_moe.tuning.leaderboard import write_results
from tfr_moe.tuning.results import SweepSummary

REPORT_FILE = "report.html"
MAX_ROWS = 500
_IN_HEADLINE = 3  # settings at most
_SECTIONS = {
    "failed": "Failed trials",
    "map": "Heat map",
    "values": "By value",
    "trials": "All trials",
    "settings": "Settings",
    "glossary": "Words",
}


def write_sweep_report(sweep: str | Path, export: Mapping[str, Path] | None = None) -> Path:
    """Writes the page and all results of a sweep, finished or not, to its folder.

    See `tfr_moe.tuning.leaderboard.write_results` for the other files, and `html.render` for
    `export`. Existing files are replaced.

    Returns:
        The page.

    Raises:
        UserError: if there is no such sweep.
    """
    summary = write_results(sweep)
    page = summary.path / REPORT_FILE
    write_page(render_sweep(summary, export), page)
    return page


def render_sweep(summary: SweepSummary, export: Mapping[str, Path] | None = None) -> str:
    """Renders the page."""
    about = {
        "data": summary.settings.get("data"),
        "space": _name(summary.settings.get("space")),
        "search": _name(summary.settings.get("algorithm")),
    }
    drawn = heat_map_of(summary)
    marginals = leaderboard.marginals(summary) if len(summary.varying) > 1 else {}
    shown = {
        "failed": summary.failed,
        "map": drawn,
        "values": marginals,
        "trials": summary.entries,
    }
    return html.render(
        "sweep.html",
        export,
        sweep=sys.modules[__name__],
        summary=summary,
        name=summary.path.resolve().name,
        about={key: value for key, value in about.items() if value},
        headings=[formatting.heading(key) for key in summary.varying],
        noise=leaderboard.noise_line(summary),
        map=drawn,
        marginals=marginals,
        sections=[(id, text) for id, text in _SECTIONS.items() if shown.get(id, True)],
        settings=_changed_settings(summary),
        max_rows=MAX_ROWS,
        formatting=formatting,
    )


def headline(summary: SweepSummary) -> str:
    """What won, and whether it is sure."""
    if summary.best is None:
        return "No result yet"
    settings = formatting.format_settings(summary.best.trial.hyperparameters, summary.varying)
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
    value = formatting.format_mean(best.value, best.std)
    lead = f", {summary.entries[1].gap:.4f} from the second" if len(summary.entries) > 1 else ""
    return f"Trial {best.trial.trial_id} has a {summary.objective} of {value}{lead}."


def cost(summary: SweepSummary) -> str:
    """Trials and training time."""
    trials = [entry.trial for entry in summary.entries]
    seconds = sum(seed.seconds for trial in trials for seed in trial.seeds)
    return f"{duration(seconds)} of training: {leaderboard.count_line(summary)}."


def next_command(summary: SweepSummary) -> str:
    """The command that trains the best settings with a new seed."""
    data, config = summary.settings.get("data", "DATA"), summary.path / "best.yaml"
    words = ("--data", data, "--config", config, "--set", "seed=11", "--out", "RUN")
    return command("train", *words)


def about_map(summary: SweepSummary) -> str:
    """What the heat map shows, and of what."""
    others = [name for name in summary.varying if name not in (grid_axes(summary) or ())]
    cut = f" A cell is the best over {', '.join(others)}." if others else ""
    values = f"Results differ by {summary.entries[-1].gap:.4f} at most: "
    level = "; ≈ marks trials that are level with it" if summary.noise else ""
    return f"{values}the stronger the colour, the better; the best is framed{level}.{cut}"


def about_values(summary: SweepSummary, marginals: Mapping[str, Any]) -> str:
    """The hyper-parameter whose values differ most in their means."""
    spans = {
        name: max(mean for _, mean, _ in rows) - min(mean for _, mean, _ in rows)
        for name, rows in marginals.items()
    }
    most = max(spans, key=lambda name: spans[name])
    sentence = f"{formatting.heading(most)} matters most: its means span {spans[most]:.4f}"
    if summary.noise is None:
        return f"{sentence}."
    return f"{sentence}; one seed of a trial has a standard deviation of {summary.noise.std:.4f}."


def about_trials(summary: SweepSummary) -> str:
    """The range of results."""
    best, last = summary.entries[0], summary.entries[-1]
    return f"From {best.value:.4f} (trial {best.trial.trial_id}) to {last.value:.4f}."


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("function") or ", ".join(value))
    return "" if value is None else str(value)


def _changed_settings(summary: SweepSummary) -> str:
    """The settings of the sweep as YAML, without those of `base` that have their default."""
    settings, defaults = dict(summary.settings), make_config({}).model_dump(mode="json")
    base = settings.get("base") or {}
    settings["base"] = {k: v for k, v in base.items() if k not in defaults or defaults[k] != v}
    return yaml.safe_dump(
        settings, sort_keys=False, allow_unicode=True, default_flow_style=None, width=90
    )
