"""The training and validation splits of a data set, parsed once for all trials of a sweep.

The first process parses the records and writes flat NumPy arrays below the sweep: context features
`[lists, width]`, example features of all items one after another `[items, width]`, and where each list
begins. Every process maps these files into memory; batches are gathered from them. The test split is
never opened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder
from tfr_moe.schema import MASK, FeatureSchema

SPLITS = ("train", "validation")
_INDEX = "index.json"
_BATCH = 512


class ParsedSplit(NamedTuple):
    """One split in memory.

    Attributes:
        context: feature name -> [lists, width].
        example: feature or label name -> [items, width], the items of list i from row_splits[i] up to
            row_splits[i + 1].
        row_splits: int64, [lists + 1].
    """

    context: dict[str, tf.Tensor]
    example: dict[str, tf.Tensor]
    row_splits: tf.Tensor


def _specs(schema: FeatureSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    """All columns of the records by scope, as the builder reads them."""
    context = {**schema.feature_spec("context"), **schema.bookkeeping_spec("context")}
    example = {
        **schema.feature_spec("example"),
        **schema.label_spec(),
        **schema.bookkeeping_spec("example"),
    }
    return context, example


def _parse(builder: ElwcDatasetBuilder, split: str, target: Path) -> None:
    context, example = _specs(builder.schema)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*context, *example)}
    lengths: list[np.ndarray] = []
    for batch in builder.build_parsed_dataset(split).as_numpy_iterator():
        mask = batch[MASK]
        lengths.append(mask.sum(axis=1))
        for name in context:
            parts[name].append(batch[name])
        for name in example:
            parts[name].append(batch[name][mask])
    if not lengths:
        raise UserError(f"data {builder.folder.path}: split {split!r} has no lists")
    target.mkdir()
    for name, arrays in parts.items():
        values = np.concatenate(arrays)
        # Object arrays of bytes become fixed-width ones, which can be mapped.
        np.save(target / f"{name}.npy", values.astype("S") if values.dtype == object else values)
    row_splits = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    np.save(target / "row_splits.npy", row_splits)


def _fingerprint(folder: DataFolder) -> dict[str, Any]:
    """Schema and record files as they are: another build of the data is another cache."""
    files = [Path(name) for split in SPLITS for name in folder.files(split)]
    return {
        "schema": json.loads(folder.schema.to_json()),
        "files": [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files],
    }


def write_cache(folder: DataFolder, target: Path) -> Path:
    """Parses both splits into `target`, unless they are there already.

    Returns:
        `target`, which appears only when it is complete.
    """
    index = _fingerprint(folder)
    if (target / _INDEX).is_file() and json.loads((target / _INDEX).read_text()) == index:
        return target
    builder = ElwcDatasetBuilder(folder, _BATCH)
    with complete_folder(target, overwrite=True) as partial:
        for split in SPLITS:
            _parse(builder, split, partial / split)
        (partial / _INDEX).write_text(json.dumps(index), encoding="utf-8")
    return target


def load_split(cache: Path, schema: FeatureSchema, split: str) -> ParsedSplit:
    """One split of a cache as tensors."""

    def load(name: str) -> tf.Tensor:
        array = np.load(cache / split / f"{name}.npy", mmap_mode="r")
        with tf.device("CPU"):
            return tf.constant(np.asarray(array))

    context, example = _specs(schema)
    return ParsedSplit(
        {name: load(name) for name in context},
        {name: load(name) for name in example},
        load("row_splits"),
    )


class CachedDatasetBuilder(ElwcDatasetBuilder):
    """Serves the training and validation splits from memory, in the batches of its base class.

    Training lists are shuffled over the whole split, anew in each epoch.

    Args:
        splits: both splits, parsed.
        folder: the data set.
        batch_size: lists per batch.
        list_size: items per list in training; None keeps all.
        shuffle_buffer_size: not used: the whole split is shuffled.
        repeat: whether the training data repeats for ever.
        seed: seed of the shuffle.
    """

    def __init__(
        self, splits: dict[str, ParsedSplit], folder: DataFolder, *args: Any, **kwargs: Any
    ):
        super().__init__(folder, *args, **kwargs)
        self._splits = splits
        context, example = _specs(folder.schema)
        self._padding = {name: spec.default_value for name, spec in example.items()}
        self._names = (tuple(context), tuple(example))

    def _read(
        self,
        split: str,
        list_size: int | None = None,
        shuffle: bool = False,
        shuffle_seed: int | None = None,
        num_epochs: int | None = 1,
        **kwargs: Any,
    ) -> tf.data.Dataset:
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
        starts = tf.gather(parsed.row_splits, lists)
        lengths = tf.gather(parsed.row_splits, lists + 1) - starts
        width = tf.reduce_max(lengths) if list_size is None else tf.constant(list_size, tf.int64)
        place = tf.range(width)
        mask = place < lengths[:, None]
        rows = tf.where(mask, starts[:, None] + place, 0)
        batch = {name: tf.gather(values, lists) for name, values in parsed.context.items()}
        for name, values in parsed.example.items():
            padding = tf.constant(self._padding[name], values.dtype)
            batch[name] = tf.where(mask[:, :, None], tf.gather(values, rows), padding)
        batch[MASK] = mask
        return batch
