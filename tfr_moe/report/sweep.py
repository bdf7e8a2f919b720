"""The page of a hyper-parameter sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tfr_moe.config import make_config
from tfr_moe.report import html, sweep_figures
from tfr_moe.tuning import formatting, leaderboard
from tfr_moe.tuning.leaderboard import write_results
from tfr_moe.tuning.results import SweepSummary

REPORT_FILE = "report.html"
MAX_ROWS = 500


def write_sweep_report(sweep: str | Path) -> Path:
    """Writes the page and all results of a sweep, finished or not, to its folder.

    See `tfr_moe.tuning.leaderboard.write_results` for the other files. Existing files are replaced.

    Returns:
        The page.

    Raises:
        UserError: if there is no such sweep.
    """
    summary = write_results(sweep)
    page = summary.path / REPORT_FILE
    html.write_page(render_sweep(summary), page)
    return page


def render_sweep(summary: SweepSummary) -> str:
    """Renders the page."""
    about = {
        "data": summary.settings.get("data"),
        "space": _name(summary.settings.get("space")),
        "search": _name(summary.settings.get("algorithm")),
    }
    seconds = sum(seed.seconds for entry in summary.entries for seed in entry.trial.seeds)
    return html.render(
        "sweep.html",
        summary=summary,
        name=summary.path.resolve().name,
        about={key: value for key, value in about.items() if value},
        symbols=[formatting.symbol(key) for key in summary.varying],
        headings=[formatting.heading(key) for key in summary.varying],
        seconds=seconds,
        noise=leaderboard.noise_line(summary),
        marginals=leaderboard.marginals(summary) if len(summary.varying) > 1 else {},
        settings=_changed_settings(summary),
        max_rows=MAX_ROWS,
        figures=sweep_figures,
        formatting=formatting,
    )


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("preset") or value.get("function") or ", ".join(value))
    return "" if value is None else str(value)


def _changed_settings(summary: SweepSummary) -> str:
    """The settings of the sweep as YAML, without those of `base` that have their default."""
    settings, defaults = dict(summary.settings), make_config({}).model_dump(mode="json")
    base = settings.get("base") or {}
    settings["base"] = {k: v for k, v in base.items() if k not in defaults or defaults[k] != v}
    return yaml.safe_dump(
        settings, sort_keys=False, allow_unicode=True, default_flow_style=None, width=90
    )
