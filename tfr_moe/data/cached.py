"""Training and validation batches from splits that were parsed once, in memory or on disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.data.parsed import (
    SPLITS,
    ParsedSplit,
    column_specs,
    in_memory,
    map_split,
    parse_split,
    write_parsed,
)
from tfr_moe.schema import MASK

CACHE_FOLDER = "parsed"


def cached_builder(
    folder: DataFolder, kind: Literal["none", "memory", "disk"]
) -> Callable[..., ElwcDatasetBuilder]:
    """What makes a builder from the arguments of `ElwcDatasetBuilder`, over records parsed now or later.

    Args:
        folder: the data set.
        kind: `none` parses batch by batch, as they are read; `memory` parses all now, for this run; `disk`
            once for all runs, into `parsed/` below the data set, and maps the files: what does not
            fit into memory is read again.

    Raises:
        UserError: for a split without lists, or a data set that can't be written to.
    """
    if kind == "none":
        return ElwcDatasetBuilder
    if kind == "memory":
        splits = {split: in_memory(parse_split(folder, split)) for split in SPLITS}
    else:
        parsed = write_parsed(folder, folder.path / CACHE_FOLDER)
        splits = {split: map_split(parsed, folder.schema, split) for split in SPLITS}
    return functools.partial(CachedDatasetBuilder, splits)


class CachedDatasetBuilder(ElwcDatasetBuilder):
    """Serves the training and validation splits from parsed arrays, in the batches of its base class.

    Training lists are shuffled over the whole split, anew in each epoch. Other splits, and what
    `build_evaluation_dataset` reads, come from the records.

    Args:
        splits: parsed splits: of tensors (`in_memory`), or of arrays that may be mapped files.
        folder: the data set.
        batch_size: lists per batch.
        list_size: items per list in training; None keeps all.
        shuffle_buffer_size: not used: the whole split is shuffled.
        repeat: whether the training data repeats for ever.
        seed: seed of the shuffle.
        tasks: see `ElwcDatasetBuilder`.
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
        """The lists of those numbers, padded to the longest or to `list_size`."""
        starts = self._rows("", parsed.row_splits, lists)
        lengths = self._rows("", parsed.row_splits, lists + 1) - starts
        width = tf.reduce_max(lengths) if list_size is None else tf.constant(list_size, tf.int64)
        place = tf.range(width)
        mask = place < lengths[:, None]
        rows = tf.where(mask, starts[:, None] + place, 0)
        batch = {name: self._rows(name, values, lists) for name, values in parsed.context.items()}
        for name, values in parsed.example.items():
            padding = tf.constant(self._padding[name], self._types[name])
            batch[name] = tf.where(mask[:, :, None], self._rows(name, values, rows), padding)
        batch[MASK] = mask
        return batch

    def _rows(self, name: str, values: Any, rows: tf.Tensor) -> tf.Tensor:
        """Rows of a column: of a tensor, or read where the column is a file."""
        if tf.is_tensor(values):
            return tf.gather(values, rows)
        dtype = self._types.get(name, tf.int64)
        found = tf.numpy_function(lambda r: np.asarray(values[r]), [rows], dtype, stateful=False)
        return tf.ensure_shape(found, [*rows.shape, *values.shape[1:]])
