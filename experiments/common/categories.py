"""The categories of the lists of a data set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.schema import PAIR_SEPARATOR


class Categories(NamedTuple):
    """Names [n] of the top categories of lists, and of the sub-categories as `top > sub`."""

    top: NDArray[Any]
    sub: NDArray[Any]


def categories_of(folder: DataFolder, split: str) -> Categories:
    """The categories of all lists of a split, in the order of the files, by the hierarchy."""
    tree = folder.schema.hierarchy
    batches = list(ElwcDatasetBuilder(folder, 1024).build_parsed_dataset(split).as_numpy_iterator())
    top, child = (
        np.array([name.decode() for batch in batches for name in batch[column][:, 0]], object)
        for column in (tree.parent, tree.child)
    )
    return Categories(top, top + PAIR_SEPARATOR + child)
