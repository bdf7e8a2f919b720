"""Splits that are parsed once, into memory or memory-mapped files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder, ParsedSplit, column_specs
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.utils.digests import ManifestForm, check_files, write_manifest
from tfr_moe.utils.io import atomic_directory, read_json

SPLITS = ("train", "validation")
"""The splits that training reads; the test split is never opened."""
_INDEX = "index.json"
_BATCH = 512
_LENGTHS = "lengths"
CACHE_FOLDER = "parsed"


def _chunks(folder: DataFolder, split: str) -> Iterator[dict[str, np.ndarray]]:
    """Yields flat columns of a batch of lists, with the lengths of the lists."""
    context, example = column_specs(folder.schema)
    batches = ElwcDatasetBuilder(folder, _BATCH).build_parsed_dataset(split)
    empty = True
    for batch in batches.as_numpy_iterator():
        empty = False
        mask = batch[MASK]
        yield {
            **{name: batch[name] for name in context},
            **{name: batch[name][mask] for name in example},
            _LENGTHS: mask.sum(axis=1),
        }
    if empty:
        raise UserError(f"data {folder.path}: split {split!r} has no lists")


def _as_split(schema: FeatureSchema, columns: Mapping[str, np.ndarray]) -> ParsedSplit:
    context, example = column_specs(schema)
    return ParsedSplit(
        {name: columns[name] for name in context},
        {name: columns[name] for name in example},
        np.concatenate([[0], np.cumsum(columns[_LENGTHS])]).astype(np.int64),
    )


def parse_split(folder: DataFolder, split: str) -> ParsedSplit:
    """Parses a split into memory; a UserError if it has no lists."""
    parts: dict[str, list[np.ndarray]] = {}
    for chunk in _chunks(folder, split):
        for name, values in chunk.items():
            parts.setdefault(name, []).append(values)
    return _as_split(folder.schema, {name: np.concatenate(p) for name, p in parts.items()})


def _write_split(folder: DataFolder, split: str, target: Path) -> None:
    """Writes each column of a split to a file `<number>.npy`."""
    target.mkdir()
    parts: dict[str, list[tuple[np.dtype, tuple[int, ...]]]] = {}
    for chunk in _chunks(folder, split):
        for number, (name, values) in enumerate(chunk.items()):
            values = values.astype("S") if values.dtype == object else values
            with (target / f"{number}.parts").open("ab") as file:
                np.save(file, values)
            parts.setdefault(name, []).append((values.dtype, values.shape))
    for number, described in enumerate(parts.values()):
        # The longest ID of all parts decides the width of the stored strings.
        dtype = np.result_type(*{dtype for dtype, _ in described})
        shape = sum(shape[0] for _, shape in described), *described[0][1][1:]
        column = np.lib.format.open_memmap(target / f"{number}.npy", "w+", dtype, shape)
        start = 0
        with (target / f"{number}.parts").open("rb") as file:
            for _, (rows, *_) in described:
                column[start : start + rows] = np.load(file)
                start += rows
        column.flush()
        (target / f"{number}.parts").unlink()


def write_parsed(folder: DataFolder, target: Path) -> Path:
    """Parses both splits into files below `target`, unless they exist; returns `target`.

    At most a few hundred lists are in memory. `target` appears only when complete. Files that have
    been changed are written again.
    """
    if _is_current(target, folder.fingerprint):
        return target
    with atomic_directory(target, overwrite=_INDEX) as partial:
        for split in SPLITS:
            _write_split(folder, split, partial / split)
        names = [str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file()]
        write_manifest(partial / _INDEX, {"of": folder.fingerprint}, names)
    return target


def _is_current(parsed: Path, source: str) -> bool:
    """Whether the files are those of `write_parsed` of this source, with all their contents."""
    try:
        index = read_json(parsed / _INDEX, ManifestForm) or {}
        check_files(parsed, index["files"], "cache", index["files"])
    except (KeyError, UserError):  # of an earlier version, or broken: it is written again
        return False
    return index.get("of") == source


def map_split(parsed: Path, schema: FeatureSchema, split: str) -> ParsedSplit:
    """Memory-maps a split of the files of `write_parsed`."""
    context, example = column_specs(schema)
    names = enumerate((*context, *example, _LENGTHS))
    files = {name: parsed / split / f"{number}.npy" for number, name in names}
    return _as_split(schema, {name: np.load(path, mmap_mode="r") for name, path in files.items()})


def in_memory(split: ParsedSplit) -> ParsedSplit:
    """Converts the arrays of a split to tensors in memory."""
    with tf.device("CPU"):
        return tf.nest.map_structure(lambda array: tf.constant(np.asarray(array)), split)


def cached(folder: DataFolder, kind: Literal["none", "memory", "disk"]) -> DataFolder:
    """The data set with parsed splits for training; unchanged for `none`, or if it has some.

    `memory` parses all records now, for this run; `disk` parses them once for all runs, into
    `parsed/` below the data set, and memory-maps the files.
    """
    if folder.splits or kind == "none":
        return folder
    if kind == "memory":
        return folder.with_splits({s: in_memory(parse_split(folder, s)) for s in SPLITS})
    parsed = write_parsed(folder, folder.path / CACHE_FOLDER)
    return folder.with_splits({s: map_split(parsed, folder.schema, s) for s in SPLITS})
