"""Splits of a data set parsed once: flat arrays, in memory or in files that are mapped into it.

Context features are `[lists, width]`, example features of all items one after another `[items, width]`, and
`row_splits` says where each list begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, read_json
from tfr_moe.schema import MASK, FeatureSchema

SPLITS = ("train", "validation")
"""What training reads; the test split is never opened."""
_INDEX = "index.json"
_BATCH = 512
_LENGTHS = "lengths"


class ParsedSplit(NamedTuple):
    """One split.

    Attributes:
        context: feature name -> [lists, width].
        example: feature or label name -> [items, width], the items of list i from row_splits[i] up to
            row_splits[i + 1].
        row_splits: int64, [lists + 1].
    """

    context: dict[str, np.ndarray]
    example: dict[str, np.ndarray]
    row_splits: np.ndarray


def column_specs(schema: FeatureSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parsing specs of all columns of the records, of the lists and of the items."""
    context = {**schema.feature_spec("context"), **schema.bookkeeping_spec("context")}
    example = {
        **schema.feature_spec("example"),
        **schema.label_spec(),
        **schema.bookkeeping_spec("example"),
    }
    return context, example


def _chunks(folder: DataFolder, split: str) -> Iterator[dict[str, np.ndarray]]:
    """Flat columns of some lists at a time, and the lengths of these."""
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
    """Parses a split into memory.

    Raises:
        UserError: for a split without lists.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for chunk in _chunks(folder, split):
        for name, values in chunk.items():
            parts.setdefault(name, []).append(values)
    return _as_split(folder.schema, {name: np.concatenate(p) for name, p in parts.items()})


class _Column:
    """A column that grows in a file, as fixed-width values without a header."""

    def __init__(self, path: Path):
        self._path = path
        self._dtype: np.dtype = np.dtype("S1")
        self._shape: tuple[int, ...] | None = None

    def add(self, values: np.ndarray) -> None:
        """Appends rows; a longer text than any before makes the room of every text wider."""
        if values.dtype == object:
            values = values.astype("S")
        if self._shape is None:
            self._dtype, self._shape = values.dtype, (0, *values.shape[1:])
        elif values.dtype.itemsize > self._dtype.itemsize:
            self._widen(values.dtype.itemsize)
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(values.astype(self._dtype)).tobytes())
        self._shape = (self._shape[0] + len(values), *self._shape[1:])

    def _widen(self, size: int) -> None:
        old = self.mapped()
        # Doubling keeps the number of rewritings small.
        self._dtype = np.dtype(f"S{max(size, 2 * self._dtype.itemsize)}")
        wider = self._path.with_suffix(".wider")
        with wider.open("wb") as file:
            for start in range(0, len(old), _BATCH * _BATCH):
                file.write(old[start : start + _BATCH * _BATCH].astype(self._dtype).tobytes())
        wider.replace(self._path)

    def mapped(self) -> np.ndarray:
        """What is there so far."""
        return _mapped(self._path, self._dtype, self._shape or (0,))

    def description(self) -> dict[str, Any]:
        """What is needed to map the file."""
        return {"dtype": self._dtype.str, "shape": list(self._shape or (0,))}


def _mapped(path: Path, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    # A file without bytes can't be mapped.
    if 0 in shape:
        return np.zeros(tuple(shape), dtype)
    return np.memmap(path, dtype, "r", shape=tuple(shape))


def _fingerprint(folder: DataFolder) -> dict[str, Any]:
    """Schema and record files as they are: another build of the data is another cache."""
    files = [Path(name) for split in SPLITS for name in folder.files(split)]
    return {
        "schema": json.loads(folder.schema.to_json()),
        "files": [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files],
    }


def write_parsed(folder: DataFolder, target: Path) -> Path:
    """Parses both splits into files below `target`, unless they are there already.

    Never more than a few hundred lists are in memory.

    Returns:
        `target`, which appears only when it is complete.

    Raises:
        UserError: for a split without lists, or a folder that can't be written.
    """
    index = _fingerprint(folder)
    known = read_json(target / _INDEX)
    if known is not None and known["of"] == index:
        return target
    described: dict[str, Any] = {}
    with complete_folder(target, overwrite=True) as partial:
        for split in SPLITS:
            (partial / split).mkdir()
            columns: dict[str, _Column] = {}
            for chunk in _chunks(folder, split):
                for name, values in chunk.items():
                    if name not in columns:
                        columns[name] = _Column(partial / split / f"{len(columns)}.bin")
                    columns[name].add(values)
            described[split] = [[name, c.description()] for name, c in columns.items()]
        text = json.dumps({"of": index, "splits": described})
        (partial / _INDEX).write_text(text, encoding="utf-8")
    return target


def map_split(parsed: Path, schema: FeatureSchema, split: str) -> ParsedSplit:
    """One split of what `write_parsed` wrote, mapped: read where and when it is used."""
    described = read_json(parsed / _INDEX)["splits"][split]
    columns = {
        name: _mapped(parsed / split / f"{number}.bin", np.dtype(d["dtype"]), d["shape"])
        for number, (name, d) in enumerate(described)
    }
    return _as_split(schema, columns)


def in_memory(split: ParsedSplit) -> ParsedSplit:
    """The same as tensors in memory."""
    with tf.device("CPU"):
        return tf.nest.map_structure(lambda array: tf.constant(np.asarray(array)), split)
