"""Data sets of the lists of some top categories, for Table V."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.common.categories import categories_of
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.schema import MANIFEST_FILE, SPLITS, shard_file, write_manifest
from tfr_moe.utils import atomic_directory


def training_sizes(data: Path, level: str) -> Counter[str]:
    """Returns the number of training lists of each category of a level, `top` or `sub`."""
    return Counter(getattr(categories_of(DataFolder(data), "train"), level).tolist())


def top_sizes(data: Path) -> dict[str, int]:
    """Returns the number of training lists of each top category, largest first."""
    sizes = training_sizes(data, "top")
    return dict(sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0])))


def write_category_data(data: Path, out: Path, categories: Sequence[str]) -> None:
    """Writes a data set of the lists of some top categories, unless it exists.

    Schema, vocabularies and statistics stay those of the whole training split, so that all models
    in a comparison read the same inputs.

    Raises:
        UserError: if a split has no list of one of the categories.
    """
    if (out / MANIFEST_FILE).is_file():
        return
    folder = DataFolder(data)
    with atomic_directory(out) as target:
        folder.copy_description(target)
        splits = {split: {"lists": _copy(folder, split, target, categories)} for split in SPLITS}
        manifest: dict[str, Any] = {"format": 1}
        if (folder.path / MANIFEST_FILE).is_file():
            manifest = dict(folder.manifest)
        manifest["splits"] = splits
        manifest["categories"] = list(categories)
        write_manifest(target, manifest)


def _copy(folder: DataFolder, split: str, target: Path, categories: Sequence[str]) -> int:
    """Copies the lists of the categories and returns their number."""
    tops = categories_of(folder, split).top.astype(str)
    missing = [category for category in categories if category not in tops]
    if missing:
        raise UserError(
            f"categories: data {folder.path} has no {split} list of {missing[0]!r}; name others"
        )
    selected = np.isin(tops, list(categories))
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(target / shard_file(split, 0, 1)), options) as writer:
        lists = ElwcDatasetBuilder(folder).serialized_lists(split)
        for record, is_selected in zip(lists.as_numpy_iterator(), selected, strict=True):
            if is_selected:
                writer.write(record)
    return int(selected.sum())
