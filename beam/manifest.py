"""The manifest of a data set: what went in, what came out, and what did not."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

from tfr_moe.schema import SPLITS, shard_file

from .options import BuildOptions
from .sources import Input

Counts = Mapping[tuple[Any, ...], int]
FORMAT = 1
_PACKAGES = ("tfr_moe", "apache-beam", "tensorflow-serving-api", "numpy")


def manifest(
    options: BuildOptions,
    split: str,
    given: Input,
    shards: dict[str, int],
    counts: Counts,
    bounds: dict[str, Any] | None,
) -> dict[str, Any]:
    """The manifest as JSON values.

    Raises:
        AssertionError: if rows were lost on the way: read = written + rejected + cut; so for what the
            source made them of.
    """
    rejects, cut = _named(counts, "rejects"), _named(counts, "cut")
    rows = {
        "read": counts.get(("rows", "read"), 0),
        "written": sum(_named(counts, "items").values()),
        "rejected": sum(rejects.values()),
        "cut": sum(cut.values()),
    }
    if rows["read"] != rows["written"] + rows["rejected"] + rows["cut"]:
        raise AssertionError(f"rows were lost: {rows}")
    source_counts = _source_counts(counts)
    splits = {name: _split(name, counts, shards) for name in SPLITS}
    return {
        "format": FORMAT,
        "source": options.source,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seed": options.seed,
        "options": options.as_json(),
        "versions": _versions(),
        "inputs": given.files,
        "notes": dict(given.notes),
        "split": {"by": split, "bounds": bounds},
        "splits": splits,
        "source_counts": source_counts,
        "noted": _named(counts, "noted"),
        "rows": rows,
        "rejects": rejects,
        "cut": cut,
        "context_conflicts": counts.get(("context_conflicts",), 0),
        "ids_with_line_breaks": counts.get(("ids_with_line_breaks",), 0),
        "list_length": _lengths(_named(counts, "length")),
        "max_list_size": options.max_list_size,
        "warnings": _warnings(options, splits, counts),
    }


def _named(counts: Counts, kind: str) -> dict[Any, int]:
    found = {key[1]: count for key, count in counts.items() if key[0] == kind}
    return dict(sorted(found.items()))


def _source_counts(counts: Counts) -> dict[str, dict[str, int]]:
    """Thing -> outcome -> number, of what a source counted before there were rows."""
    found: dict[str, dict[str, int]] = {}
    for key, count in sorted((key, n) for key, n in counts.items() if key[0] == "source"):
        found.setdefault(key[1], {})[key[2]] = count
    for thing, outcomes in found.items():
        if outcomes.get("read", 0) != sum(n for name, n in outcomes.items() if name != "read"):
            raise AssertionError(f"{thing} were lost: {outcomes}")
    return found


def _split(name: str, counts: Counts, shards: dict[str, int]) -> dict[str, Any]:
    numbers = {kind: counts.get((kind, name), 0) for kind in ("lists", "items", "positives")}
    return {**numbers, "files": [shard_file(name, i, shards[name]) for i in range(shards[name])]}


def _lengths(counts: dict[int, int]) -> dict[str, float]:
    lists = sum(counts.values())
    if not lists:
        return {}
    items = sum(length * count for length, count in counts.items())
    return {"min": min(counts), "mean": items / lists, "max": max(counts)}


def _warnings(options: BuildOptions, splits: dict[str, Any], counts: Counts) -> list[str]:
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    found = [
        f"the {name} split is empty"
        for name, fraction in fractions.items()
        if fraction and not splits[name]["lists"]
    ]
    conflicts = counts.get(("context_conflicts",), 0)
    if conflicts:
        found.append(f"{conflicts} lists have rows with different context; the first row's is kept")
    return found


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
