"""The answers of a sweep, written below its folder: page, table, best configuration, HParams logs."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from tfr_moe.folders import read_json

from . import tables
from .best import BEST_FILE, RESULTS_FILE, best_config, write_best
from .summary import summarize_sweep

REPORT_FILE = "report.html"
TABLE_FILE = "results.csv"
JSON_FILE = "results.json"


def write_report(sweep: str | Path) -> Path:
    """Writes all answers of a sweep as far as it is.

    Below the sweep's folder: `report.html`, `results.csv`, `results.json`, `best.yaml` (once a trial has
    a result) and `tensorboard/`. What was there before is replaced, each file in one step.

    Returns:
        The page.

    Raises:
        UserError: if there is no such sweep.
    """
    # Only here, so that the terminal's table needs neither TensorFlow nor Matplotlib.
    from .hparams import write_hparams
    from .page import render

    summary = summarize_sweep(sweep)
    best = None
    if summary.best is not None:
        best = best_config(summary).model_dump(mode="json")
        write_best(summary)
    retrained = read_json(summary.path / RESULTS_FILE)
    _write(summary.path / TABLE_FILE, tables.to_csv(summary))
    _write(summary.path / JSON_FILE, tables.to_json(summary))
    write_hparams(summary)
    page = summary.path / REPORT_FILE
    _write(page, render(summary, best, retrained))
    return page


def print_table(sweep: str | Path, console: Console | None = None) -> None:
    """Prints the trials of a sweep, best first, with failures and what the seeds' noise is.

    Raises:
        UserError: if there is no such sweep.
    """
    tables.print_summary(summarize_sweep(sweep), console or Console())


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


__all__ = ["BEST_FILE", "JSON_FILE", "REPORT_FILE", "TABLE_FILE", "print_table", "write_report"]
