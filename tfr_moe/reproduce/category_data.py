"""The lists of some top categories as a data set of their own, and how many lists each has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.sizes import read_categories, training_sizes
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, write_json
from tfr_moe.schema import MANIFEST_FILE, SPLITS, shard_file

_LISTS_AT_A_TIME = 4096


def top_sizes(data: Path) -> dict[str, int]:
    """Per top category the number of training lists, the largest first."""
    counted = training_sizes(DataFolder(data))["top"]
    return dict(sorted(counted.items(), key=lambda entry: (-entry[1], entry[0])))


def write_category_data(data: Path, out: Path, categories: Sequence[str]) -> None:
    """Writes a data set of the lists of some top categories; does nothing where it is there.

    Schema, vocabularies and statistics stay those of the whole training split, so that the models that
    are compared read the same inputs.

    Raises:
        UserError: where a split has no list of one of the categories.
    """
    if (out / MANIFEST_FILE).is_file():
        return
    folder = DataFolder(data)
    with complete_folder(out) as target:
        folder.copy_description(target)
        splits = {split: {"lists": _copy(folder, split, target, categories)} for split in SPLITS}
        manifest: dict[str, Any] = {"format": 1}
        if (folder.path / MANIFEST_FILE).is_file():
            manifest = dict(folder.manifest)
        manifest["splits"] = splits
        manifest["categories"] = list(categories)
        write_json(target / MANIFEST_FILE, manifest)


def _copy(folder: DataFolder, split: str, target: Path, categories: Sequence[str]) -> int:
    counted: Counter[str] = Counter()
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(target / shard_file(split, 0, 1)), options) as writer:
        lists = ElwcDatasetBuilder(folder).serialized_lists(split).batch(_LISTS_AT_A_TIME)
        names = read_categories(folder, split, _LISTS_AT_A_TIME)
        for records, found in zip(lists.as_numpy_iterator(), names, strict=True):
            wanted = np.isin(found.top.astype(str), list(categories))
            counted.update(found.top[wanted].tolist())
            for record in records[wanted]:
                writer.write(record)
    for category in categories:
        if not counted[category]:
            raise UserError(
                f"categories: data {folder.path} has no {split} list of {category!r}; name others"
            )
    return counted.total()
