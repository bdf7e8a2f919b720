"""Splits that are parsed once, into memory or memory-mapped files, and batches from them.

Context features are `[lists, width]`, example features of all items, list after list,
`[items, width]`; `row_splits` has the offset of each list.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder, column_specs
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema, Scope
from tfr_moe.utils.digests import ManifestForm, check_files, write_manifest
from tfr_moe.utils.io import atomic_directory, read_json

SPLITS = ("train", "validation")
"""The splits that training reads; the test split is never opened."""
_INDEX = "index.json"
_BATCH = 512
_LENGTHS = "lengths"
CACHE_FOLDER = "parsed"


class Dictionary(NamedTuple):
    """A dictionary-encoded column of IDs: `codes`, int32 [rows, width], index `words`, as bytes."""

    codes: np.ndarray
    words: np.ndarray


class ParsedSplit(NamedTuple):
    """A parsed split. Columns are arrays or, for IDs of data frames, a `Dictionary`.

    Attributes:
        context: feature name -> [lists, width].
        example: feature or label name -> [items, width]; list i has the items from row_splits[i] to
            row_splits[i + 1] - 1.
        row_splits: int64, [lists + 1].
    """

    context: dict[str, Any]
    example: dict[str, Any]
    row_splits: np.ndarray

    def columns(self, scope: Scope) -> dict[str, Any]:
        """The columns of a scope."""
        return self.context if scope == "context" else self.example


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


def cached_builder(
    folder: DataFolder, kind: Literal["none", "memory", "disk"]
) -> Callable[..., ElwcDatasetBuilder]:
    """Returns `ElwcDatasetBuilder`, or one from parsed splits: those in memory, or by `kind`.

    `memory` parses all records now, for this run; `disk` parses them once for all runs, into
    `parsed/` below the data set, and memory-maps the files.
    """
    if folder.splits:
        return functools.partial(CachedDatasetBuilder, folder.splits)
    if kind == "none":
        return ElwcDatasetBuilder
    if kind == "memory":
        splits = {split: in_memory(parse_split(folder, split)) for split in SPLITS}
    else:
        parsed = write_parsed(folder, folder.path / CACHE_FOLDER)
        splits = {split: map_split(parsed, folder.schema, split) for split in SPLITS}
    return functools.partial(CachedDatasetBuilder, splits)


def dataset_builder(folder: DataFolder, *args: Any, **kwargs: Any) -> ElwcDatasetBuilder:
    """Makes the builder of a data set; takes the arguments of `ElwcDatasetBuilder`."""
    return cached_builder(folder, "none")(folder, *args, **kwargs)


class CachedDatasetBuilder(ElwcDatasetBuilder):
    """Builds the data sets of `ElwcDatasetBuilder` from parsed training and validation splits.

    The splits are tensors (`in_memory`) or arrays, which may be memory-mapped. Training lists are
    shuffled over the whole split in each epoch. Other splits are read from the records.
    """

    def __init__(
        self, splits: Mapping[str, ParsedSplit], folder: DataFolder, *args: Any, **kwargs: Any
    ):
        super().__init__(folder, *args, **kwargs)
        self._splits = splits
        context, example = column_specs(folder.schema)
        self._padding = {name: spec.default_value for name, spec in example.items()}
        self._types = {name: spec.dtype for name, spec in (context | example).items()}

    def _read(
        self,
        split: str,
        list_size: int | None = None,
        shuffle: bool = False,
        shuffle_seed: int | None = None,
        num_epochs: int | None = 1,
        **kwargs: Any,
    ) -> tf.data.Dataset:
        if split not in self._splits:
            return super()._read(
                split,
                list_size,
                shuffle=shuffle,
                shuffle_seed=shuffle_seed,
                num_epochs=num_epochs,
                **kwargs,
            )
        parsed = self._splits[split]
        count = int(parsed.row_splits.shape[0]) - 1
        numbers = tf.data.Dataset.range(count)
        if shuffle:
            numbers = numbers.shuffle(count, seed=shuffle_seed, reshuffle_each_iteration=True)
        if num_epochs is None:
            numbers = numbers.repeat()
        batches = numbers.batch(self.batch_size)

        def gather(lists: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._batch(parsed, lists, list_size)

        return batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _batch(
        self, parsed: ParsedSplit, lists: tf.Tensor, list_size: int | None
    ) -> dict[str, tf.Tensor]:
        """The lists with the given indices, padded to the longest or to `list_size`."""
        starts = self._rows("", parsed.row_splits, lists)
        lengths = self._rows("", parsed.row_splits, lists + 1) - starts
        width = tf.reduce_max(lengths) if list_size is None else tf.constant(list_size, tf.int64)
        position = tf.range(width)
        mask = position < lengths[:, None]
        rows = tf.where(mask, starts[:, None] + position, 0)
        batch = {name: self._rows(name, values, lists) for name, values in parsed.context.items()}
        for name, values in parsed.example.items():
            padding = tf.constant(self._padding[name], self._types[name])
            batch[name] = tf.where(mask[:, :, None], self._rows(name, values, rows), padding)
        batch[MASK] = mask
        return batch

    def _rows(self, name: str, values: Any, rows: tf.Tensor) -> tf.Tensor:
        """Rows of a column that is a tensor, a dictionary or a memory-mapped array."""
        if isinstance(values, Dictionary):
            return tf.gather(values.words, self._rows("", values.codes, rows))
        if tf.is_tensor(values):
            return tf.gather(values, rows)
        dtype = self._types.get(name, tf.int64)
        read = tf.numpy_function(lambda r: np.asarray(values[r]), [rows], dtype, stateful=False)
        return tf.ensure_shape(read, [*rows.shape, *values.shape[1:]])
