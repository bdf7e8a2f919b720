"""Commands of a daily schedule: drift, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.errors import EXIT_REJECTED

Limits = Annotated[
    Path | None, typer.Option("--limits", help="limits of drift as YAML; see docs/daily.md")
]


def drift(
    reference: Annotated[
        Path, typer.Option("--reference", help="data set to compare with, such as the live model's")
    ],
    current: Annotated[Path, typer.Option("--current", help="data set of today")],
    limits: Limits = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write the numbers as JSON")
    ] = None,
) -> None:
    """Compare the data of today with a reference.

    Exits with 3 if a limit is exceeded.

    Example: tfr-moe drift --reference data/monday --current data/tuesday
    """
    from tfr_moe.analysis.drift import measure_drift
    from tfr_moe.analysis.drift_limits import DriftLimits
    from tfr_moe.analysis.drift_table import drift_table
    from tfr_moe.evaluation import plain
    from tfr_moe.utils.io import write_json

    rows = measure_drift(reference, current, None if limits is None else DriftLimits.load(limits))
    console = Console()
    console.print(drift_table(rows, console.width))
    if json_file is not None:
        write_json(json_file, plain(rows))
    if any(row.exceeded for row in rows):
        raise typer.Exit(EXIT_REJECTED)
