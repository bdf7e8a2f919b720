"""Accounts of every row: files of rejects, counts, and the manifest of a data set."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from tfr_moe.beam.rows import Reject
from tfr_moe.beam.sorted_groups import UseGroups
from tfr_moe.beam.sources.registry import Input
from tfr_moe.elwc.order import ONE_ITEM, OrderSums
from tfr_moe.elwc.repeats import repeats_warning
from tfr_moe.errors import UserError
from tfr_moe.schema import SPLITS, shard_file
from tfr_moe.utils.io import read_json, write_json

if TYPE_CHECKING:
    from tfr_moe.beam.build import BuildOptions

Counts = dict[tuple[Any, ...], int]
_COUNTS_FILE = "counts.json"
FORMAT = 1
_PACKAGES = ("tfr_moe", "apache-beam", "tensorflow-serving-api", "numpy")


class WriteRejects(beam.PTransform):
    """`Reject`s -> a file for each input file with rejects, one JSON object a line.

    Args:
        files: names of all input files.
        folder: where to write.
    """

    def __init__(self, files: Sequence[str], folder: str):
        super().__init__()
        self._write = partial(_write_rejects, files=files, folder=folder)

    def expand(self, rejects: beam.PCollection) -> beam.PCollection:
        """Writes the files in the order of their lines."""
        return (
            rejects
            | "KeyByFile" >> beam.Map(lambda reject: (reject[0], reject))
            | UseGroups(self._write, itemgetter(1, 2))
        )


def _write_rejects(index: int, found: Iterable[Reject], files: Sequence[str], folder: str) -> str:
    path = Path(folder, f"rejects-{index:05d}-of-{len(files):05d}.jsonl")
    with open(path, "w", encoding="utf-8", newline="\n", errors="backslashreplace") as out:
        for file, line, reason, row in found:
            reject = {"file": files[file], "line": line, "reason": reason, "row": row}
            out.write(json.dumps(reject, default=str) + "\n")
    return str(path)


class WriteCounts(beam.PTransform):
    """Collections of (key, number) -> the sums as a file, to be read by `take_counts`."""

    def __init__(self, folder: str):
        super().__init__()
        self._write = partial(write_json, Path(folder, _COUNTS_FILE))

    def expand(self, counts: Iterable[beam.PCollection]) -> beam.PCollection:
        """Sums and writes."""
        return (
            counts
            | "AllCounts" >> beam.Flatten()
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "ListCounts" >> beam.combiners.ToList()
            | "Write" >> beam.Map(self._write)
        )


def take_counts(folder: Path) -> Counts:
    """Reads and removes the file of `WriteCounts`."""
    path = folder / _COUNTS_FILE
    counts = {tuple(key): number for key, number in read_json(path, list)}
    path.unlink()
    return counts


def manifest(
    options: BuildOptions,
    split: str,
    source_input: Input,
    shards: dict[str, int],
    counts: Counts,
    bounds: dict[str, Any] | None,
) -> dict[str, Any]:
    """Returns the manifest as JSON values.

    Raises:
        AssertionError: unless rows read = written + rejected + cut, and likewise for every kind of
            thing that the source counted.
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
        "inputs": source_input.files,
        "notes": dict(source_input.notes),
        "split": {"by": split, "bounds": bounds},
        "splits": splits,
        "source_counts": source_counts,
        "noted": _named(counts, "noted"),
        "rows": rows,
        "rejects": rejects,
        "cut": cut,
        "cut_positives": counts.get(("cut_positives",), 0),
        "context_conflicts": counts.get(("context_conflicts",), 0),
        "conflicting_features": _named(counts, "conflict"),
        "ids_with_line_breaks": counts.get(("ids_with_line_breaks",), 0),
        "list_length": _lengths(_named(counts, "length")),
        "max_list_size": options.max_list_size,
        "warnings": _warnings(options, split, splits, counts),
    }


def _named(counts: Counts, kind: str) -> dict[Any, int]:
    found = {key[1]: count for key, count in counts.items() if key[0] == kind}
    return dict(sorted(found.items()))


def _source_counts(counts: Counts) -> dict[str, dict[str, int]]:
    """Returns thing -> outcome -> number, as counted by the source."""
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


def _warnings(options: BuildOptions, by: str, splits: dict[str, Any], counts: Counts) -> list[str]:
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    remedy = ": the lists have too few different times; split by hash" if by == "time" else ""
    found = [
        f"the {name} split is empty{remedy}"
        for name, fraction in fractions.items()
        if fraction and not splits[name]["lists"] and options.like is None
    ]
    conflicts = counts.get(("context_conflicts",), 0)
    if conflicts:
        features = _listed(_named(counts, "conflict"))
        found.append(
            f"{conflicts} lists have rows with different context ({features}); the first row wins"
        )
    if set(_named(counts, "length")) == {1}:
        found.append(ONE_ITEM)
    lists = sum(split["lists"] for split in splits.values())
    repeats = repeats_warning(counts.get(("repeated_lists",), 0), lists)
    leak = OrderSums(**_named(counts, "order")).warning()
    return [*found, *filter(None, (repeats, leak))]


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


def check_lost(found: dict[str, Any], limit: float, folder: Path) -> None:
    """Checks a manifest for the share that is lost.

    Args:
        found: the manifest.
        limit: the largest allowed share.
        folder: has the rejects.

    Raises:
        UserError: where more of the rows are rejected, of the lists have rows with different
            context, or of the positives are cut.
    """
    rows, splits = found["rows"], found["splits"].values()
    reject = first_reject(folder)
    first = f"; the first is {reject['file']}, line {reject['line']}" if reject else ""
    positives = found["cut_positives"] + sum(split["positives"] for split in splits)
    for lost, of, what, why in (
        (rows["rejected"], rows["read"], "rows are rejected", _listed(found["rejects"]) + first),
        (
            found["context_conflicts"],
            sum(split["lists"] for split in splits),
            "lists have rows with different context",
            _listed(found["conflicting_features"]),
        ),
        (
            found["cut_positives"],
            positives,
            "positives are cut",
            f"max_list_size is {found['max_list_size']}",
        ),
    ):
        if lost > limit * of:
            raise UserError(
                f"{lost} of {of} {what} ({lost / of:.1%}), more than max_lost={limit:g} allows: "
                f"{why}"
            )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
