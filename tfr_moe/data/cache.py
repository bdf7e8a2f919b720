"""Splits that are parsed once, into memory."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.data.builder import ElwcDatasetBuilder, ParsedSplit, column_specs
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
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
    context, example = column_specs(folder.schema)
    parts: dict[str, list[np.ndarray]] = {}
    batches = ElwcDatasetBuilder(folder, _BATCH).build_parsed_dataset(split)
    for batch in batches.as_numpy_iterator():
        mask = batch[MASK]
        flat = {
            **{name: batch[name] for name in context},
            **{name: batch[name][mask] for name in example},
            MASK: mask.sum(axis=1),
        }
        for name, values in flat.items():
            parts.setdefault(name, []).append(values)
    if not parts:
        raise UserError(f"data {folder.path}: split {split!r} has no lists")
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    row_splits = np.concatenate([[0], np.cumsum(columns[MASK])]).astype(np.int64)
    return ParsedSplit(
        {name: columns[name] for name in context},
        {name: columns[name] for name in example},
        row_splits,
    )
