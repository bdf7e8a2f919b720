"""Joins days to a data set, without reading their records."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tfr_moe.elwc.statistics import from_json, merge_scopes, statistics_of
from tfr_moe.elwc.vocabularies import merged_counts, vocabulary_of, write_vocabulary
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.schema.folders import (
    MANIFEST_FILE,
    MOMENTS_FILE,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    check_same_schema,
    counts_file,
    days_of,
    days_of_window,
    shard_file,
    shard_files,
    vocabulary_file,
    write_manifest,
)
from tfr_moe.utils.digests import check_files
from tfr_moe.utils.io import atomic_directory, check_inputs_outside, read_json, write_json

_SUMS = ("rows", "rejects", "cut", "noted")


def join_days(
    data: str | Path,
    out: str | Path,
    window: str,
    until: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Joins days to the data set that one build of their lists would make; returns its manifest.

    A list has the split that it has in its day. The record files are hard links to those of the
    days, or copies where the file system has no links. Vocabularies are made of the counts of all
    IDs, and statistics of the moments, of the training lists of all days.

    Args:
        data: data set by days, of `build` with `append`.
        out: data-set folder to create.
        window: number of calendar days, such as `30d`.
        until: the last day; by default the newest one.
        overwrite: replace `out` if it exists.

    Raises:
        UserError: for an invalid option, days of different schemas, or a day that is not as it was
            built or is replaced at the same time.
    """
    all_days = days_of(data)
    if not all_days:
        raise UserError(f"data {data}: has no days; build one first")
    days = days_of_window(all_days, window, until)
    schema = FeatureSchema.load(max(days.items())[1] / SCHEMA_FILE)
    check_same_schema(days, schema, max(days))
    manifests = {day: _checked_manifest(path) for day, path in days.items()}
    check_inputs_outside(out, days.values())
    with atomic_directory(out, MANIFEST_FILE if overwrite else None) as folder:
        files = {split: _link_shards(list(days.values()), folder, split) for split in SPLITS}
        _merge_tables(list(days.values()), schema, folder)
        for day, path in days.items():
            if read_json(path / MANIFEST_FILE) != manifests[day]:
                raise UserError(f"day {path}: was replaced in the meantime; join the days again")
        schema.save(folder / SCHEMA_FILE)
        return write_manifest(folder, _manifest(manifests, files))


def _checked_manifest(day: Path) -> dict[str, Any]:
    """Returns the manifest of a day, whose files but the records are compared with it."""
    manifest = read_json(day / MANIFEST_FILE) or {}
    digests = manifest.get("files") or {}
    if MOMENTS_FILE not in digests:
        raise UserError(f"day {day}: has no {MOMENTS_FILE}; build it as a day")
    check_files(day, digests, "day", set(digests) - set(shard_files(day)))
    return manifest


def _link_shards(days: list[Path], folder: Path, split: str) -> list[str]:
    """Links the record files of all days, numbered anew; returns their names."""
    sources = [day / name for day in days for name in shard_files(day, split)]
    names = [shard_file(split, number, len(sources)) for number in range(len(sources))]
    for source, name in zip(sources, names, strict=True):
        try:
            os.link(source, folder / name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, folder / name)
    return names


def _merge_tables(days: list[Path], schema: FeatureSchema, folder: Path) -> None:
    """Writes vocabularies and statistics of the training lists of all days."""
    for feature in schema.features:
        if feature.has_vocabulary:
            counts = merged_counts(day / counts_file(feature.name) for day in days)
            words = vocabulary_of(feature, counts)
            write_vocabulary(folder / vocabulary_file(feature.name), words)
    moments = ([from_json(one) for one in read_json(day / MOMENTS_FILE, list)] for day in days)
    write_json(folder / STATISTICS_FILE, statistics_of(schema, merge_scopes(moments)))


def _manifest(days: dict[str, dict[str, Any]], files: dict[str, list[str]]) -> dict[str, Any]:
    """Returns the manifest: sums over the days, and what the newest one has."""
    newest = days[max(days)]
    splits = {
        split: {**_sum([day["splits"][split] for day in days.values()]), "files": names}
        for split, names in files.items()
    }
    return {
        **{name: newest[name] for name in ("format", "source", "versions")},
        "notes": {name: note for day in days.values() for name, note in day["notes"].items()},
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "days": {day: manifest["fingerprint"] for day, manifest in days.items()},
        "split": {"by": newest["split"]["by"], "bounds": None},
        "splits": splits,
        **{name: _sum([day[name] for day in days.values()]) for name in _SUMS},
        "warnings": [f"{day}: {text}" for day in days for text in days[day]["warnings"]],
    }


def _sum(numbers: list[dict[str, Any]]) -> dict[str, int]:
    """Adds the numbers of the same name."""
    names = dict.fromkeys(n for one in numbers for n, value in one.items() if type(value) is int)
    return {name: sum(one.get(name, 0) for one in numbers) for name in names}
