"""Commands of a daily schedule: drift, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.cli.options import reject_with, stderr
from tfr_moe.errors import EXIT_REJECTED, UserError

Limits = Annotated[
    Path | None, typer.Option("--limits", help="limits of drift as YAML; see docs/daily.md")
]


def drift(
    reference: Annotated[
        Path, typer.Option("--reference", help="data set to compare with, such as the live model's")
    ],
    current: Annotated[
        Path, typer.Option("--current", help="data set of today, or a file of recorded requests")
    ],
    limits: Limits = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write the numbers as JSON")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="also write an HTML page")] = None,
) -> None:
    """Compare the data of today with a reference.

    Exits with 3 if a limit is exceeded. Requests are `PredictionLog`s, as the client records them
    and as TensorFlow Serving logs them; they have no labels.

    Example: tfr-moe drift --reference data/monday --current data/tuesday
    """
    from tfr_moe.analysis.drift import RecordedLists, measure_drift
    from tfr_moe.analysis.drift_limits import DriftLimits
    from tfr_moe.analysis.drift_table import drift_table
    from tfr_moe.evaluation import plain
    from tfr_moe.utils.io import write_json

    allowed = DriftLimits() if limits is None else DriftLimits.load(limits)
    if current.is_file():
        from tfr_moe.data.folder import DataFolder
        from tfr_moe.serving.export.recorded import recorded_batches

        folder = DataFolder(reference)
        name = f"requests {current}"
        recorded = RecordedLists(name, recorded_batches(current, folder))
        rows = measure_drift(folder, recorded, allowed)
    else:
        rows = measure_drift(reference, current, allowed)
    console = Console()
    console.print(drift_table(rows, console.width))
    if json_file is not None:
        write_json(json_file, plain(rows))
    if out is not None:
        from tfr_moe.report.drift import render_drift
        from tfr_moe.report.files import write_page

        write_page(render_drift(rows, reference, current, allowed), out)
    if any(row.exceeded for row in rows):
        raise typer.Exit(EXIT_REJECTED)


def publish(
    to: Annotated[Path, typer.Option("--to", help="MODELS/NAME, which is served")],
    run: Annotated[Path | None, typer.Option("--run", help="a finished run")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="data set with the newest lists")
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="split that the versions are compared on")
    ] = "test",
    metric: Annotated[
        str, typer.Option("--metric", help="metric of the comparison; see `tfr-moe metrics`")
    ] = "ndcg_10",
    margin: Annotated[
        float,
        typer.Option("--margin", help="how much worse it may be, with 95 % confidence", min=0),
    ] = 0.002,
    category_margin: Annotated[
        float, typer.Option("--category-margin", help="the same in each top category", min=0)
    ] = 0.01,
    max_ratio: Annotated[
        float,
        typer.Option("--max-ratio", help="largest size and latency, in those of the live one"),
    ] = 1.5,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="also require that --data has not drifted")
    ] = None,
    limits: Limits = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="retire the newest version instead")
    ] = False,
) -> None:
    """Publish a run if it is not worse than the live version.

    Exits with 3 if it is not published.

    Example: tfr-moe publish --run runs/tuesday --to models/shop --data data/tuesday
    """
    if rollback:
        reject_with("--rollback", {"--run": run, "--data": data, "--reference": reference})
        from tfr_moe.serving.publish import roll_back

        retired, live = roll_back(to)
        stderr().print(f"retired {to}/{retired}; {live} is live", soft_wrap=True, highlight=False)
        return
    if run is None or data is None:
        raise UserError(f"{'--run' if run is None else '--data'}: is required without --rollback")
    if limits is not None and reference is None:
        raise UserError("--limits: needs --reference, from which drift is measured")
    from tfr_moe.analysis.drift_limits import DriftLimits
    from tfr_moe.serving.publish import publish as publish_run

    decision = publish_run(
        run,
        to,
        data,
        split=split,
        metric=metric,
        margin=margin,
        category_margin=category_margin,
        max_ratio=max_ratio,
        reference=reference,
        limits=None if limits is None else DriftLimits.load(limits),
        console=stderr(),
    )
    outcome = "published" if decision.published else "not published:"
    stderr().print(f"{outcome} {to}/{decision.version}", soft_wrap=True, highlight=False)
    if not decision.published:
        raise typer.Exit(EXIT_REJECTED)
