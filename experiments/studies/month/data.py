"""The daily logs as data sets: each day is built, checked for drift, and joined to its window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from experiments.studies.month.log import (
    Catalogue,
    build_catalogue,
    day_log,
    day_name,
    schema_of_log,
)
from experiments.studies.month.settings import Folders, MonthSettings, of_day
from tfr_moe.analysis import DriftLimits, measure_drift
from tfr_moe.beam import BuildOptions, build
from tfr_moe.data import join_days
from tfr_moe.utils import atomic_directory, read_json, write_json

# New sub-categories and items are what this shop is about; their share has its own limit.
LIMITS: dict[str, Any] = {"columns": {"sub_category": {"psi": None}, "item_id": {"psi": None}}}


def drift_limits() -> DriftLimits:
    """The limits of drift."""
    return DriftLimits.model_validate(LIMITS)


def make_days(settings: MonthSettings, folders: Folders) -> Iterator[tuple[int, list[str]]]:
    """Builds what is missing; yields each daily log with the columns that have drifted.

    A day that has drifted from the window before is not accepted: it is in no window.
    """
    catalogue = build_catalogue(settings.log())
    for day in range(settings.window):
        _build(settings, folders, catalogue, day, folders.data)
    _join(folders.data, folders.window(settings.first), settings, settings.first)
    reference = settings.first
    for day in settings.scored:
        broken = day == settings.broken_day
        drifted = _drifted(settings, folders, catalogue, day, reference)
        if not drifted:
            _accept(settings, folders, day)
            reference = day
        if broken:
            _build(settings, folders, catalogue, day, folders.corrected)
            _join_broken(settings, folders)
        yield day, drifted


def _drifted(
    settings: MonthSettings, folders: Folders, catalogue: Catalogue, day: int, reference: int
) -> list[str]:
    """The columns of a day that have drifted from the window that ends on the reference day."""
    path = folders.out / "drift" / f"{day_name(day)}.json"
    drifted: list[str] | None = read_json(path, list)
    if drifted is None:
        _build(settings, folders, catalogue, day, folders.incoming, day == settings.broken_day)
        built = of_day(folders.incoming, day)
        rows = measure_drift(folders.window(reference), built, drift_limits())
        drifted = list(dict.fromkeys(row.column for row in rows if row.exceeded))
        path.parent.mkdir(exist_ok=True)
        write_json(path, drifted)
    return drifted


def _accept(settings: MonthSettings, folders: Folders, day: int) -> None:
    target = of_day(folders.data, day)
    if not target.is_dir():
        of_day(folders.incoming, day).rename(target)
    _join(folders.data, folders.window(day), settings, day)


def _build(
    settings: MonthSettings,
    folders: Folders,
    catalogue: Catalogue,
    day: int,
    root: Path,
    broken: bool = False,
) -> None:
    """Builds the data set of a day, unless there is one."""
    if of_day(root, day).is_dir():
        return
    logs = folders.out / "logs"
    logs.mkdir(exist_ok=True)
    frame = day_log(settings.log(), catalogue, day, broken)
    frame.drop(columns="probability").to_csv(logs / f"{day_name(day)}.csv", index=False)
    (logs / "schema.yaml").write_text(yaml.safe_dump(schema_of_log()), encoding="utf-8")
    options: dict[str, Any] = {
        "append": day_name(day),
        "num_shards": 1,
        "validation_fraction": 0.1,
        "test_fraction": 0.5,
    }
    log = logs / f"{day_name(day)}.csv"
    build(BuildOptions("search-logs", str(log), logs / "schema.yaml", root, **options))


def _join(root: Path, window: Path, settings: MonthSettings, day: int) -> None:
    if not window.is_dir():
        join_days(root, window, f"{settings.window}d", day_name(day))


def _join_broken(settings: MonthSettings, folders: Folders) -> None:
    """Makes the window with the broken day, on which training without drift would be."""
    root, last = folders.broken / "data", settings.broken_day
    if not root.is_dir():
        with atomic_directory(root) as partial:
            for day in range(last - settings.window + 1, last + 1):
                paths = (of_day(root, day) for root in (folders.data, folders.incoming))
                path = next(path for path in paths if path.is_dir())
                shutil.copytree(path, of_day(partial, day))
    _join(root, folders.broken / "window", settings, last)
