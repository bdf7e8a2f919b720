"""The publish gate: a candidate is exported aside, checked, and renamed into its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.analysis.drift import measure_drift
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.config.tasks import Task
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import plain
from tfr_moe.metrics.naming import check_positions
from tfr_moe.metrics.per_list import resolve
from tfr_moe.training import load_run
from tfr_moe.utils.console import make_log
from tfr_moe.utils.failures import file_errors
from tfr_moe.utils.io import make_folder, working_directory, write_json

from ..export.export import export_run, spread_by_size
from ..model_store import ServedModel
from ..versions import EXTRA, versions_of
from .checks import (
    Check,
    evaluate_served,
    golden_check,
    latency_check,
    quality_checks,
    size_check,
)

DECISION_FILE = "decision.json"
DECISIONS = "decisions"
RETIRED = "retired"
_SAMPLE_LISTS = 1000


@dataclass(frozen=True)
class Decision:
    """Whether a candidate was published, and why.

    Attributes:
        published: whether all checks passed.
        version: number of the version.
        live: number of the version that it was compared with; None for the first one.
        run: folder of the run.
        data: folder and fingerprint of the data set.
        created: time of the decision, ISO 8601.
        checks: the checks, in order.
    """

    published: bool
    version: int
    live: int | None
    run: str
    data: dict[str, str]
    created: str
    checks: list[Check]


def publish(
    run: str | Path,
    to: str | Path,
    data: str | Path,
    *,
    split: str = "test",
    metric: str = "ndcg_10",
    margin: float = 0.002,
    category_margin: float = 0.01,
    max_ratio: float = 1.5,
    reference: str | Path | None = None,
    limits: DriftLimits | None = None,
    console: Console | None = None,
) -> Decision:
    """Publishes a run as the next version of a model, if it passes all checks.

    The candidate is exported to a hidden folder beside `to`, which TensorFlow Serving does not see,
    and renamed to `to/<version>` after the last check. A process that is killed at any point leaves
    the served folder as it was, or with the complete new version; the next call removes what it
    left. The decision is written to `to/decisions/<time>-<version>.json`, and into
    `assets.extra/decision.json` of a published version.

    Args:
        run: a finished run.
        to: `MODELS/NAME`, which is served.
        data: data set with the newest lists.
        split: the split that the versions are compared on.
        metric: metric of the comparison, of each task of the run.
        margin: see `quality_checks`.
        category_margin: see `quality_checks`.
        max_ratio: the largest size and latency in relation to the live version.
        reference: data set from which the drift of `data` must be below its limits; None for no
            check.
        limits: of drift.
        console: receives progress; None for stderr.

    Raises:
        UserError: for a run, data or folder that do not fit, or if another process publishes.
    """
    console = console or Console(stderr=True)
    to, folder = Path(to), DataFolder(data)
    loaded = load_run(run)
    resolve(metric)
    check_positions([metric], folder.schema.position)
    folder.check_lists(split)
    name = to.resolve().name
    checks: list[Check] = []
    log = make_log(console)

    def add(check: Check) -> None:
        checks.append(check)
        log(f"{'passed' if check.passed else 'FAILED'}  {check.name}: {check.text}")

    make_folder(to.parent, f"publish {to}")
    with file_errors(f"publish {to}"), working_directory(to.resolve()) as aside:
        versions = versions_of(to) if to.is_dir() else []
        live = versions[-1] if versions else None
        version = 1 + max([0, *versions, *_retired(to)])
        if reference is not None:
            add(_drift_check(reference, folder, limits))
        candidate = export_run(run, aside / name, data, version, console)
        _check_candidate(
            candidate,
            None if live is None else to / str(live),
            folder,
            split,
            (loaded.tasks, metric, margin, category_margin, max_ratio),
            add,
        )
        decision = Decision(
            all(check.passed for check in checks),
            version,
            live,
            str(Path(run).resolve()),
            {"path": str(folder.path.resolve()), "fingerprint": folder.fingerprint},
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
            checks,
        )
        make_folder(to / DECISIONS, f"publish {to}")
        if decision.published:
            write_json(candidate / EXTRA / DECISION_FILE, plain(decision))
            os.rename(candidate, to / str(version))
        time = decision.created.replace(":", "").replace("+0000", "Z")
        write_json(to / DECISIONS / f"{time}-{version}.json", plain(decision))
    return decision


def _check_candidate(
    candidate: Path,
    live: Path | None,
    data: DataFolder,
    split: str,
    settings: tuple[tuple[Task, ...], str, float, float, float],
    add: Callable[[Check], None],
) -> None:
    tasks, metric, margin, category_margin, max_ratio = settings
    served = ServedModel(candidate.parent.name, candidate)
    add(golden_check(served, candidate, live))
    if live is None:
        return
    add(size_check(candidate, live, max_ratio))
    of_live = ServedModel(live.parent.name, live)
    records = ElwcDatasetBuilder(data).serialized_lists(split)
    lists = [record.numpy() for record in islice(iter(records), _SAMPLE_LISTS)]
    add(latency_check(served, of_live, spread_by_size(lists), max_ratio))
    labels = [task.name for task in tasks] or [data.schema.label]
    results = [evaluate_served(m, data, split, labels, metric) for m in (served, of_live)]
    for label in labels:
        name = f"{label}_{metric}"
        for check in quality_checks(results[0], results[1], name, margin, category_margin):
            add(check)


def _drift_check(reference: str | Path, data: DataFolder, limits: DriftLimits | None) -> Check:
    above = [row for row in measure_drift(reference, data, limits) if row.exceeded]
    names = list(dict.fromkeys(row.column for row in above))
    text = f"above the limits: {', '.join(names)}" if above else "below the limits"
    return Check("drift", not above, text, {"rows": [plain(row) for row in above]})


def _retired(to: Path) -> list[int]:
    return versions_of(to / RETIRED) if (to / RETIRED).is_dir() else []


def roll_back(to: str | Path) -> tuple[int, int]:
    """Retires the newest version, so that TensorFlow Serving loads the one before it.

    The server serves the highest number that it finds. Renaming `to/<version>` to
    `to/retired/<version>` takes it away in one step; the server loads the previous version before
    it unloads this one. The number is not used again.

    Returns:
        The retired version, and the one that is live now.

    Raises:
        UserError: if there are not two versions, or another process publishes.
    """
    to = Path(to)
    versions: list[Any] = versions_of(to) if to.is_dir() else []
    if len(versions) < 2:
        has = f"version {versions[0]} only" if versions else "no version"
        raise UserError(f"publish {to}: there is no version to go back to, it has {has}")
    with working_directory(to.resolve()):
        make_folder(to / RETIRED, f"publish {to}")
        os.rename(to / str(versions[-1]), to / RETIRED / str(versions[-1]))
    return versions[-1], versions[-2]
