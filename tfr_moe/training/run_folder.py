"""The folder of a run: its files, and what they must agree with."""

from __future__ import annotations

import contextlib
import glob
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, PositiveInt

from tfr_moe import __version__
from tfr_moe.config import RunConfig, load_config
from tfr_moe.config.tasks import Task
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import LostWorkersError, UserError
from tfr_moe.schema import (
    MANIFEST_FILE,
    SCHEMA_FILE,
    FeatureSchema,
    QueryCategories,
    query_categories,
    write_manifest,
)
from tfr_moe.utils.digests import ManifestForm, check_recorded, digest_files, writer_of
from tfr_moe.utils.io import atomic_directory, make_folder, read_json, write_json

CONFIG_FILE = "config.yaml"
METRICS_FILE = "metrics.json"
HISTORY_FILE = "history.json"


def config_of(run: Path) -> Path:
    """The file with the configuration of a run; a UserError if there is no run in the folder."""
    path = run / CONFIG_FILE
    if not path.is_file():
        raise UserError(f"run {run}: no such run ({CONFIG_FILE} is missing){_below(run)}")
    return path


def stored_config(run: Path) -> RunConfig:
    """The configuration of a run; an error names the version that wrote it, if it is another."""
    path = config_of(run)
    try:
        return load_config(path)
    except UserError as error:
        # Version 0.1.0 wrote no manifest.
        manifest = _read_manifest(run)
        writer = writer_of(manifest) if manifest else "0.1.0"
        if writer == __version__:
            raise
        raise UserError(
            f"run {run}: was written by tfr_moe {writer}, and tfr_moe {__version__} cannot load "
            f"it ({error})"
        ) from error


def _below(folder: Path) -> str:
    """The end of a message that names up to five runs in a folder of runs."""
    patterns = ("*", "*/*", "*/*/*")
    runs = sorted(str(path.parent) for p in patterns for path in folder.glob(f"{p}/{CONFIG_FILE}"))
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"; runs in it: {', '.join(runs[:5])}{more}" if runs else ""


class _Data(BaseModel):
    path: str
    fingerprint: str


class _RunManifest(ManifestForm):
    data: _Data | None = None
    start: _Data | None = None


def check_not_finished(run: Path) -> None:
    """Raises a UserError if the folder holds a finished run."""
    if (run / METRICS_FILE).is_file():
        raise UserError(f"run {run}: is finished; choose another folder or remove it")


def check_same_settings(run: Path, config: RunConfig) -> None:
    """Raises a UserError that names the first setting with which a run was not started."""
    before = stored_config(run).model_dump()
    now = config.model_dump()
    for key in now | before:
        if before.get(key) != now.get(key):
            raise UserError(
                f"run {run}: was started with {key}={before.get(key)!r}, not {now.get(key)!r}; "
                "resume it with the same settings or choose another folder"
            )


def check_same_data(run: Path, folder: DataFolder, start: str | Path | None = None) -> None:
    """Raises a UserError unless a run was started on that data, by content, and those weights."""
    manifest = _read_manifest(run)
    source, now = (part.get("start") or {} for part in (manifest, _origins(folder, start)))
    if source.get("fingerprint") != now.get("fingerprint"):
        before, given = (part.get("path", "random weights") for part in (source, now))
        raise UserError(
            f"run {run}: was started from {before}, not from {given}; choose another folder"
        )
    before = manifest.get("data")
    if before is not None and before["fingerprint"] != folder.fingerprint:
        raise UserError(
            f"run {run}: was started on other data ({before['path']}, fingerprint "
            f"{before['fingerprint']}; {folder.path} now has {folder.fingerprint}); "
            "choose another folder or remove it"
        )


def _read_manifest(run: Path) -> dict[str, Any]:
    return read_json(run / MANIFEST_FILE, _RunManifest) or {}


def _origins(folder: DataFolder, start: str | Path | None = None) -> dict[str, dict[str, str]]:
    """What a run is made from, by content: `data`, and the run that it starts from as `start`."""
    origins = {"data": {"path": str(folder.path.resolve()), "fingerprint": folder.fingerprint}}
    if start is not None:
        fingerprint = _read_manifest(Path(start)).get("fingerprint") or ""
        origins["start"] = {"path": str(Path(start).resolve()), "fingerprint": fingerprint}
    return origins


@contextlib.contextmanager
def prepared(
    run: Path, folder: DataFolder, config: RunConfig, start: str | Path | None = None
) -> Iterator[None]:
    """Makes the folder of a run, or checks that the run can be resumed.

    If the block rejects the configuration or the data before there is anything to resume, a folder
    made here is removed, so that the corrected command can have the same name.
    """
    check_not_finished(run)
    if glob.escape(str(run)) != str(run):
        raise UserError(f"run {run}: the path contains *, ? or [, which TensorFlow cannot read")
    existed = run.is_dir()
    make_folder(run, f"run {run}")
    new = not (run / CONFIG_FILE).is_file()
    if not new:
        check_same_settings(run, config)
        check_same_data(run, folder, start)
    elif any(run.iterdir()):
        raise UserError(f"run {run}: the folder is not empty and is not a run")
    try:
        # A process that is killed leaves no folder, or one that the same command resumes.
        with atomic_directory(run) if new else contextlib.nullcontext(run) as target:
            folder.copy_description(target)
            write_manifest(target, _origins(folder, start))
            config.save(target / CONFIG_FILE)
        yield
    except LostWorkersError:
        raise  # the others of a cluster resume in this folder
    except Exception:
        if new and not (run / HISTORY_FILE).is_file():
            shutil.rmtree(run, ignore_errors=True)
            if existed:
                run.mkdir()
        raise


def finish(run: Path, folder: DataFolder, result: Mapping[str, Any], files: Iterable[Path]) -> None:
    """Writes `metrics.json`, which makes a run finished, and the digests of the model's files."""
    names = [str(file.relative_to(run)) for file in files]
    start = _read_manifest(run).get("start")
    origins = {**_origins(folder), **({"start": start} if start else {})}
    write_manifest(run, origins, [CONFIG_FILE, *names])
    write_metrics(run, result)


def write_metrics(run: Path, result: Mapping[str, Any]) -> None:
    """Writes `metrics.json`, after its digest into the manifest."""
    pending = run / f".{METRICS_FILE}.new"
    write_json(pending, result)
    manifest = read_json(run / MANIFEST_FILE)
    manifest["files"][METRICS_FILE] = digest_files(run, [pending.name])[pending.name]
    write_json(run / MANIFEST_FILE, manifest)
    pending.replace(run / METRICS_FILE)


class _Metrics(BaseModel):
    best_epoch: PositiveInt
    best: dict[str, float]


def read_metrics(run: Path) -> dict[str, Any]:
    """The content of `metrics.json`; a UserError if the run is not finished."""
    result = read_json(run / METRICS_FILE, _Metrics)
    if result is None:
        raise UserError(
            f"run {run}: is not finished; re-run the same training command to resume it"
        )
    return result


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its folder, configuration, the schema of its data, and `metrics.json`."""

    path: Path
    config: RunConfig
    schema: FeatureSchema
    metrics: dict[str, Any]

    @property
    def categories(self) -> QueryCategories:
        """The categories of queries; empty where the schema needs none."""
        return query_categories(self.path, self.schema)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the run; empty if its model has a single score."""
        return self.config.tasks_over(self.schema)

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of `tasks`."""
        return tuple(task.name for task in self.tasks)


def finished_run(path: str | Path) -> FinishedRun:
    """Reads a run without its model; a UserError if there is no finished run in the folder."""
    path = Path(path)
    config = stored_config(path)
    metrics = read_metrics(path)
    check_recorded(path, MANIFEST_FILE, "run")
    schema = FeatureSchema.load(path / SCHEMA_FILE)
    return FinishedRun(path, config, schema, metrics)
