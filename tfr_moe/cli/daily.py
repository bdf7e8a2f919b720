"""Commands of a daily schedule: check, drift, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfr_moe.cli.options import JsonFile, flag, note, reject_with, stderr, write_numbers
from tfr_moe.errors import EXIT_REJECTED, UserError

LimitsFile = Annotated[Path | None, flag("limits of drift as YAML; see docs/daily.md", "--limits")]


def check(
    path: Annotated[Path, typer.Argument(help="data set, run, or a version of an exported model")],
    requests: Annotated[
        Path | None, flag("request log (PredictionLogs) to replay on the version")
    ] = None,
    run: Annotated[Path | None, flag("with --requests: the run of the version")] = None,
    data: Annotated[Path | None, flag("with --requests: logged lists to compare with")] = None,
) -> None:
    """Verify the files of a data set, run or export.

    Every file is compared with the SHA-256 that was recorded when it was made; in a data set by
    days, the files of all days. With --requests, scores and features of recorded requests are
    compared with the run and its data instead; exits with 3 if they differ.

    Example: tfr-moe check models/shop/7 --requests requests.log --run runs/tuesday
    """
    if requests is not None:
        if run is None:
            raise UserError("--run: is required with --requests")
        _check_requests(path, requests, run, data)
        return
    for option, value in {"--run": run, "--data": data}.items():
        if value is not None:
            raise UserError(f"{option}: needs --requests")
    from tfr_moe.schema.folders import MANIFEST_FILE, days_of

    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    days = {} if (path / MANIFEST_FILE).is_file() else days_of(path)
    for folder in days.values() or [path]:
        _check_folder(folder)


def _check_folder(path: Path) -> None:
    """Prints what a folder has, if its files are as recorded."""
    from tfr_moe.schema import MANIFEST_FILE
    from tfr_moe.utils.digests import MODEL_MANIFEST, ManifestForm, check_files
    from tfr_moe.utils.io import read_json

    if (path / "saved_model.pb").is_file() or (path / MODEL_MANIFEST).is_file():
        kind, manifest = "model", read_json(path / MODEL_MANIFEST, ManifestForm) or {}
    else:
        manifest = read_json(path / MANIFEST_FILE, ManifestForm)
        if manifest is None:
            raise UserError(
                f"{path}: has no {MANIFEST_FILE}: not a data set, run or exported version "
                "(MODELS/NAME/VERSION), or written by tfr_moe 0.1.0"
            )
        kind = "run" if "data" in manifest else "data"
    digests = manifest.get("files")
    if digests is None:
        raise UserError(f"{path}: has no digests to compare with; make the {kind} again")
    with stderr().status(f"reading {path}"):
        if kind == "data":
            from tfr_moe.data import DataFolder

            DataFolder(path)  # finds record files that the manifest lacks
        check_files(path, digests, kind, digests)
    size = sum(digest["bytes"] for digest in digests.values())
    print(f"{path}: {len(digests)} files, {size:,} bytes, as recorded")
    print(f"fingerprint {manifest['fingerprint']}")


def _check_requests(version: Path, requests: Path, run: Path, data: Path | None) -> None:
    """Prints what was compared, differences last."""
    from tfr_moe.serving.export.skew import measure_skew

    rows = measure_skew(version, requests, run, data)
    for row in sorted(rows, key=lambda row: row.different > 0):
        counts = f"{row.different:,} of {row.compared:,} differ"
        print(f"{row.name}: {counts}{f'; {row.example}' if row.example else ''}")
    if any(row.different for row in rows):
        raise typer.Exit(EXIT_REJECTED)


def drift(
    reference: Annotated[Path, flag("data set to compare with, such as that of the live model")],
    current: Annotated[Path, flag("data set of today, or a file of recorded requests")],
    limits: LimitsFile = None,
    json_file: JsonFile = None,
    out: Annotated[Path | None, flag("also write an HTML page")] = None,
) -> None:
    """Compare the data of today with a reference.

    Exits with 3 if a limit is exceeded. Requests are `PredictionLog`s, as the client records them
    and as TensorFlow Serving logs them; they have no labels.

    Example: tfr-moe drift --reference data/monday --current data/tuesday
    """
    from tfr_moe.analysis.drift import RecordedLists, drift_table, measure_drift
    from tfr_moe.analysis.drift_limits import DriftLimits

    allowed = DriftLimits() if limits is None else DriftLimits.load(limits)
    with stderr().status(f"comparing {current} with {reference}"):
        lists: Path | RecordedLists = current
        if current.is_file():
            from tfr_moe.data.folder import DataFolder
            from tfr_moe.serving.export.skew import recorded_batches

            batches = recorded_batches(current, DataFolder(reference))
            lists = RecordedLists(f"requests {current}", batches)
        rows = measure_drift(reference, lists, allowed)
    console = Console()
    console.print(drift_table(rows, console.width))
    write_numbers(json_file, rows)
    if out is not None:
        from tfr_moe.report.drift import render_drift
        from tfr_moe.report.html import write_page

        write_page(render_drift(rows, reference, current, allowed), out)
    if any(row.exceeded for row in rows):
        raise typer.Exit(EXIT_REJECTED)


def publish(
    to: Annotated[Path, flag("folder MODELS/NAME of the served model")],
    run: Annotated[Path | None, flag("a finished run")] = None,
    data: Annotated[Path | None, flag("data set with the newest lists")] = None,
    split: Annotated[str, flag("split on which the versions are compared")] = "test",
    metric: Annotated[str, flag("metric of the comparison; see `tfr-moe metrics`")] = "ndcg_10",
    margin: Annotated[
        float, flag("maximum loss of the metric, with 95 % confidence", min=0)
    ] = 0.002,
    category_margin: Annotated[float, flag("maximum loss in each top category", min=0)] = 0.01,
    max_ratio: Annotated[
        float, flag("maximum size and latency relative to the live version", min=0)
    ] = 1.5,
    reference: Annotated[
        Path | None, flag("data set: also require that --data has not drifted from it")
    ] = None,
    limits: LimitsFile = None,
    rollback: Annotated[
        bool, flag("retire the newest version instead of publishing", "--rollback")
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
        note(f"retired {to}/{retired}; {live} is live")
        return
    if run is None or data is None:
        raise UserError(f"{'--run' if run is None else '--data'}: is required without --rollback")
    if limits is not None and reference is None:
        raise UserError("--limits: requires --reference")
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
    note(f"{outcome} {to}/{decision.version}")
    if not decision.published:
        raise typer.Exit(EXIT_REJECTED)
