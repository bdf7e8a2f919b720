"""Accounts of every row: files of rejects, counts, and the manifest of a data set."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from tfr_moe.beam.rows import Reject
from tfr_moe.beam.sorted_groups import use_groups
from tfr_moe.beam.sources.registry import Input
from tfr_moe.elwc.log_checks import OrderSums, check_lost, log_warnings
from tfr_moe.schema import SPLITS, shard_file
from tfr_moe.utils.io import plain, read_json, write_json

if TYPE_CHECKING:
    from tfr_moe.beam.build import BuildOptions

Counts = Counter[tuple[Any, ...]]
_COUNTS_FILE = "counts.json"
_PACKAGES = ("tfr_moe", "apache-beam", "tensorflow-serving-api", "numpy")


@beam.ptransform_fn
def write_rejects(
    rejects: beam.PCollection, files: Sequence[str], folder: Path
) -> beam.PCollection:
    """Writes `Reject`s to a file for each input file that has some, one JSON object a line."""

    def write(index: int, entries: Iterable[Reject]) -> None:
        path = folder / f"rejects-{index:05d}-of-{len(files):05d}.jsonl"
        with open(path, "w", encoding="utf-8", newline="\n", errors="backslashreplace") as out:
            for file, line, reason, row in entries:
                reject = {"file": files[file], "line": line, "reason": reason, "row": row}
                out.write(json.dumps(reject, default=str) + "\n")

    keyed = rejects | "KeyByFile" >> beam.Map(lambda reject: (reject[0], reject))
    return keyed | use_groups(write, itemgetter(1, 2))


@beam.ptransform_fn
def write_counts(counts: Iterable[beam.PCollection], folder: Path) -> beam.PCollection:
    """Adds up collections of (key, number) and writes the sums, to be read by `take_counts`."""
    return (
        counts
        | "AllCounts" >> beam.Flatten()
        | "SumCounts" >> beam.CombinePerKey(sum)
        # An empty list for want of counts would take four more transforms.
        | "ListCounts" >> beam.combiners.ToList().without_defaults()
        | "Write" >> beam.Map(partial(write_json, folder / _COUNTS_FILE))
    )


def take_counts(folder: Path) -> Counts:
    """Reads and removes the file of `write_counts`, which writes none where nothing was counted."""
    path = folder / _COUNTS_FILE
    counts = Counter({tuple(key): number for key, number in read_json(path, list) or []})
    path.unlink(missing_ok=True)
    return counts


def manifest(
    options: BuildOptions,
    split: str,
    source_input: Input,
    shards: dict[str, int],
    counts: Counts,
    bounds: dict[str, Any] | None,
) -> dict[str, Any]:
    """Returns the manifest as JSON values; an AssertionError where something counted was lost."""
    splits = {name: _split(name, counts, shards) for name in SPLITS}
    packages = {name: metadata.version(name) for name in _PACKAGES}
    return {
        "source": options.source,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seed": options.seed,
        "options": plain(options),
        "versions": {"python": platform.python_version(), **packages},
        "inputs": source_input.files,
        "notes": dict(source_input.notes),
        "split": {"by": split, "bounds": bounds},
        "splits": splits,
        "source_counts": _source_counts(counts),
        "noted": named(counts, "noted"),
        "rows": rows_of(counts),
        "rejects": named(counts, "rejects"),
        "cut": named(counts, "cut"),
        "cut_positives": counts["cut_positives",],
        "context_conflicts": counts["context_conflicts",],
        "conflicting_features": named(counts, "conflict"),
        "ids_with_line_breaks": counts["ids_with_line_breaks",],
        "list_length": _lengths(named(counts, "length")),
        "max_list_size": options.max_list_size,
        "warnings": _warnings(options, split, splits, counts),
    }


def named(counts: Counts, kind: str) -> dict[Any, int]:
    """Returns the numbers of one kind by name, in order of the names."""
    return dict(sorted((key[1], count) for key, count in counts.items() if key[0] == kind))


def rows_of(counts: Counts) -> dict[str, int]:
    """Returns the numbers of rows; an AssertionError unless read = written + rejected + cut."""
    kinds = {"written": "items", "rejected": "rejects", "cut": "cut"}
    parts = {name: sum(named(counts, kind).values()) for name, kind in kinds.items()}
    rows = {"read": counts["rows", "read"], **parts}
    if rows["read"] != sum(parts.values()):
        raise AssertionError(f"rows were lost: {rows}")
    return rows


def _source_counts(counts: Counts) -> dict[str, dict[str, int]]:
    """Returns thing -> outcome -> number, as counted by the source."""
    outcomes_of: dict[str, dict[str, int]] = {}
    for key, count in sorted((key, n) for key, n in counts.items() if key[0] == "source"):
        outcomes_of.setdefault(key[1], {})[key[2]] = count
    for thing, outcomes in outcomes_of.items():
        if outcomes.get("read", 0) != sum(n for name, n in outcomes.items() if name != "read"):
            raise AssertionError(f"{thing} were lost: {outcomes}")
    return outcomes_of


def _split(name: str, counts: Counts, shards: dict[str, int]) -> dict[str, Any]:
    numbers = {kind: counts[kind, name] for kind in ("lists", "items", "positives")}
    return {**numbers, "files": [shard_file(name, i, shards[name]) for i in range(shards[name])]}


def _lengths(counts: dict[int, int]) -> dict[str, float]:
    lists = sum(counts.values())
    if not lists:
        return {}
    items = sum(length * count for length, count in counts.items())
    return {"min": min(counts), "mean": items / lists, "max": max(counts)}


def _warnings(options: BuildOptions, by: str, splits: dict[str, Any], counts: Counts) -> list[str]:
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    remedy = ": the lists have too few different times; split by hash" if by == "time" else ""
    warnings = [
        f"the {name} split is empty{remedy}"
        for name, fraction in fractions.items()
        if fraction and not splits[name]["lists"] and options.like is None
    ]
    if conflicts := counts["context_conflicts",]:
        features = _listed(named(counts, "conflict"))
        warnings.append(
            f"{conflicts} lists have rows with different context ({features}); the first row wins"
        )
    if not any(split["positives"] for split in splits.values()):
        warnings.append("no item has a label above 0: there is nothing to learn from")
    lists = sum(split["lists"] for split in splits.values())
    order = OrderSums(**named(counts, "order"))
    longest = max(named(counts, "length"), default=0)
    return warnings + log_warnings(longest, counts["repeated_lists",], lists, order)


def _listed(numbers: dict[str, int]) -> str:
    """Formats names with their numbers, the largest first."""
    ordered = sorted(numbers, key=lambda name: -numbers[name])
    return ", ".join(f"{numbers[name]} {name}" for name in ordered)


def first_reject(folder: Path) -> dict[str, Any] | None:
    """Returns the first rejected row of the first file with rejects."""
    for path in sorted(folder.glob("rejects-*.jsonl")):
        with open(path, encoding="utf-8") as file:
            return json.loads(next(file))
    return None


def check_losses(manifest: dict[str, Any], limit: float, folder: Path) -> None:
    """Raises `UserError` where a manifest has a larger share of losses than `limit`.

    Losses are rejected rows, lists whose rows have different context, and positives that are cut.
    """
    rows, splits = manifest["rows"], manifest["splits"].values()
    reject = first_reject(folder)
    first = f"; the first is {reject['file']}, line {reject['line']}" if reject else ""
    lists, written = (sum(split[kind] for split in splits) for kind in ("lists", "positives"))
    conflicts, cut = manifest["context_conflicts"], manifest["cut_positives"]
    features = _listed(manifest["conflicting_features"])
    for lost, of, what, why in (
        (rows["rejected"], rows["read"], "rows are rejected", _listed(manifest["rejects"]) + first),
        (conflicts, lists, "lists have rows with different context", features),
        (cut, cut + written, "positives are cut", f"max_list_size is {manifest['max_list_size']}"),
    ):
        check_lost(lost, of, what, limit, f": {why}")
