"""One run of a study: trained once, each of its warnings printed once."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console

from tfr_moe.baselines import train_any
from tfr_moe.config import RunConfig
from tfr_moe.utils import read_json

_printed_warnings: set[str] = set()


def train_once(
    data: str | Path, run: Path, config: RunConfig, start: Path | None = None
) -> dict[str, Any]:
    """Trains a run of any model and returns its metrics; a finished run is not trained again.

    A process prints each warning of training once, with the name of the first run that has it.

    Args:
        data: the data set.
        run: folder of the run.
        config: its settings.
        start: the run whose weights it starts from.
    """
    metrics = read_json(run / "metrics.json")
    if metrics is not None:
        return metrics
    tf.keras.backend.clear_session()
    printed = io.StringIO()
    metrics = train_any(data, run, config, Console(file=printed), start=start)
    for line in printed.getvalue().splitlines():
        if line.startswith("warning: ") and line not in _printed_warnings:
            _printed_warnings.add(line)
            print(f"{run.parent.name}/{run.name}: {line}", file=sys.stderr)
    return metrics
