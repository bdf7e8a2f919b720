"""The publish gate: a candidate is exported aside, checked, and renamed into its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.analysis.drift import measure_drift
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.config import load_config
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import plain
from tfr_moe.metrics.naming import check_columns
from tfr_moe.metrics.per_list import resolve
from tfr_moe.training.run_folder import config_of
from tfr_moe.utils.console import make_log
from tfr_moe.utils.failures import file_errors
from tfr_moe.utils.io import make_folder, read_json, working_directory, write_json

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
    tasks = load_config(config_of(Path(run))).tasks_over(folder.schema)
    labels = [task.name for task in tasks] or [folder.schema.label]
    resolve(metric)
    check_columns([metric], folder.schema.position, folder.schema.weight)
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
        if live is not None and (of_live := read_json(to / str(live) / EXTRA / DECISION_FILE)):
            _record(to, of_live)  # a process was killed between renaming and recording
        version = 1 + max([0, *versions, *_retired(to)])
        if reference is not None:
            add(_drift_check(reference, folder, limits))
        candidate = export_run(run, aside / name, data, version, console)
        served = ServedModel(name, candidate)
        add(golden_check(served, candidate, None if live is None else to / str(live)))
        if live is not None:
            add(size_check(candidate, to / str(live), max_ratio))
            both = served, ServedModel(name, to / str(live))
            add(latency_check(*both, _spread_lists(folder, split), max_ratio))
            now, before = (evaluate_served(m, folder, split, labels, metric) for m in both)
            for label in labels:
                of_label = f"{label}_{metric}"
                for check in quality_checks(now, before, of_label, margin, category_margin):
                    add(check)
        decision = Decision(
            all(check.passed for check in checks),
            version,
            live,
            str(Path(run).resolve()),
            {"path": str(folder.path.resolve()), "fingerprint": folder.fingerprint},
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
            checks,
        )
        make_folder(to, f"publish {to}")
        if decision.published:
            write_json(candidate / EXTRA / DECISION_FILE, plain(decision))
            os.rename(candidate, to / str(version))
        _record(to, plain(decision))
    return decision


def _record(to: Path, decision: Mapping[str, Any]) -> None:
    """Writes a decision to `to/decisions`, unless it is there."""
    time = decision["created"].replace(":", "").replace("+0000", "Z")
    path = to / DECISIONS / f"{time}-{decision['version']}.json"
    make_folder(path.parent, f"publish {to}")
    if not path.is_file():
        write_json(path, decision)


def _spread_lists(folder: DataFolder, split: str) -> list[bytes]:
    """Records of all sizes among the first ones."""
    records = ElwcDatasetBuilder(folder).serialized_lists(split)
    return spread_by_size([record.numpy() for record in islice(iter(records), _SAMPLE_LISTS)])


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
