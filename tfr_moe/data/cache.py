"""Splits that are parsed once, into memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Literal

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder, ParsedSplit, column_specs
from tfr_moe.data.folder import DataFolder
from tfr_moe.schema import MASK

SPLITS = ("train", "validation")
"""The splits that training reads; the test split is never opened."""
_BATCH = 512


def cached(folder: DataFolder, kind: Literal["none", "memory"]) -> DataFolder:
    """The data set with parsed splits for training; unchanged for `none`, or if it has some."""
    if folder.splits or kind == "none":
        return folder
    return folder.with_splits({split: in_memory(_parse(folder, split)) for split in SPLITS})


def in_memory(split: ParsedSplit) -> ParsedSplit:
    """Converts the arrays of a split to tensors in memory."""
    with tf.device("CPU"):
        return tf.nest.map_structure(lambda array: tf.constant(np.asarray(array)), split)


def _parse(folder: DataFolder, split: str) -> ParsedSplit:
    """Parses a split; a UserError if it has no lists."""
    folder.check_lists(split)
    batches = ElwcDatasetBuilder(folder, _BATCH).build_parsed_dataset(split)
    return collected(batches, *column_specs(folder.schema))


def collected(
    batches: tf.data.Dataset, context: Collection[str], example: Collection[str]
) -> ParsedSplit:
    """Columns of one or more batches of `build_parsed_dataset`, without the padding."""
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for batch in batches.as_numpy_iterator():
        mask = batch[MASK]
        parts[MASK].append(mask.sum(axis=1))
        for name in context:
            parts[name].append(batch[name])
        for name in example:
            parts[name].append(batch[name][mask])
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    return ParsedSplit(
        {name: columns[name] for name in context},
        {name: columns[name] for name in example},
        np.concatenate([[0], np.cumsum(columns[MASK])]).astype(np.int64),
    )
