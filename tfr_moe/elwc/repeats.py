"""Whether lists hold every item twice, as when a file of the log is read twice."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_LEAST_ITEMS = 4
_SHARE = 0.01  # fewer lists may have items that are equal by chance
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def is_repeated(items: int, distinct: int) -> bool:
    """Whether each item of a list may be there twice. Two equal items of two prove nothing.

    Example:
        >>> is_repeated(6, 3), is_repeated(6, 4), is_repeated(2, 1)
        (True, False, False)
    """
    return items >= _LEAST_ITEMS and 2 * distinct <= items


def repeated_lists(columns: Iterable[NDArray], row_splits: NDArray[np.int64]) -> int:
    """Counts the lists that are `is_repeated`.

    Args:
        columns: the columns of the items, numbers or codes of 32 bits, [items, width].
        row_splits: offset of each list in the items, [lists + 1].

    Example:
        >>> price = np.array([[1], [2], [1], [2], [1], [2], [3], [4]], np.float32)
        >>> repeated_lists([price], np.array([0, 4, 8]))
        1
    """
    sizes = np.diff(row_splits)
    keys = np.zeros(int(sizes.sum()), np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column[: len(keys)]).view(np.uint32)
        for part in bits.T:
            keys = (keys ^ part) * _MULTIPLIER
            keys ^= keys >> np.uint64(29)
    list_of_item = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((keys, list_of_item))
    keys = keys[order]
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (np.diff(list_of_item) > 0)
    distinct = np.bincount(list_of_item, first, len(sizes))
    return int(((sizes >= _LEAST_ITEMS) & (2 * distinct <= sizes)).sum())


def repeats_warning(repeated: int, lists: int) -> str | None:
    """Returns the warning about repeated lists; None for few of them.

    Example:
        >>> repeats_warning(1, 200)
        >>> repeats_warning(150, 200)
        '150 of 200 lists have every item twice, equal in all columns: is the input read twice?'
    """
    if repeated <= _SHARE * lists:
        return None
    return (
        f"{repeated} of {lists} lists have every item twice, equal in all columns: is the input "
        "read twice?"
    )
