"""A report as one HTML file: no network, light and dark, on a phone and on paper."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import tfr_moe
from tfr_moe import webpage
from tfr_moe.errors import UserError
from tfr_moe.reporting import sections
from tfr_moe.reporting.content import Report
from tfr_moe.reporting.figures import Figures, library
from tfr_moe.reporting.run_sections import run_section

_SCRIPT = Path(__file__).with_name("page.js")


def render(report: Report) -> str:
    """The page, with all scripts in it: some 5 MB, most of them Plotly's."""
    drawn = Figures()
    parts = [
        sections.head(report),
        sections.headline_section(report, drawn),
        sections.sizes_section(report, drawn),
        sections.category_section(report),
        sections.data_section(report.data),
        *(run_section(run, i, drawn, i == 0) for i, run in enumerate(report.runs)),
        _made_by(report),
        "<noscript><p>The figures need JavaScript; tables and numbers don't.</p></noscript>",
    ]
    scripts = [
        f"<script>{library()}</script>",
        drawn.script(),
        f"<script>{_SCRIPT.read_text(encoding='utf-8')}</script>",
    ]
    return webpage.page(", ".join(run.name for run in report.runs), parts, scripts)


def _made_by(report: Report) -> str:
    return (
        f"<h2>Made by</h2>\n<p>tfr_moe {tfr_moe.__version__}, {escape(report.made)}</p>\n"
        f"<pre>{escape(report.command)}</pre>"
    )


def write(report: Report, out: Path) -> None:
    """Writes the page; under its name only when it is complete.

    Raises:
        UserError: if the file cannot be written.
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        partial.write_text(render(report), encoding="utf-8")
        os.replace(partial, out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"--out {out}: cannot be written ({error.strerror})") from error
