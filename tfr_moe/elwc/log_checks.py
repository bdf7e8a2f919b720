"""Signs of a broken log: an order of items that reveals relevance, lists with every item twice.

Models do not read the order, but sums over a list in float32 depend on it in their last digits, and
trees split by them. Where the records are not in the order of display, relevance must therefore not
follow from the position in the record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

UNIT = 1 << 20
"""Sums are in integer units of 1 / UNIT, so that they do not depend on the order of the lists."""

ONE_ITEM = "every list has one item: there is nothing to rank; the items of a list share its ID"
_MIN_LISTS = 100
_MIN_DIFFERENCE = 0.02
_MIN_DEVIATIONS = 5.0
_LEAST_ITEMS = 4
_SHARE = 0.01  # fewer lists may have items that are equal by chance
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class OrderSums:
    """Sums over lists of the share of pairs in which the relevant item precedes the other.

    `lists` is the number of lists with a relevant and an irrelevant item, `shares` and `squares`
    are the sums of their shares and of the squares of these, in units.
    """

    lists: int = 0
    shares: int = 0
    squares: int = 0

    def add(self, relevant: NDArray[np.bool_], row_splits: NDArray[np.int64]) -> None:
        """Adds lists, from which items are `relevant`, [items], in the order of the records.

        `row_splits`, [lists + 1], has the offset of each list in them.
        """
        sizes, starts = np.diff(row_splits), row_splits[:-1]
        positions = np.arange(len(relevant)) - np.repeat(starts, sizes)

        def totals(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.diff(np.concatenate([[0], np.cumsum(values)])[row_splits])

        counts, sums = totals(relevant.astype(np.int64)), totals(np.where(relevant, positions, 0))
        pairs = counts * (sizes - counts)
        defined = pairs > 0
        counts, sums, pairs = counts[defined], sums[defined], pairs[defined]
        shares = 1.0 - (sums - counts * (counts - 1) / 2) / pairs
        self.lists += len(shares)
        self.shares += int(np.rint(shares * UNIT).astype(np.int64).sum())
        self.squares += int(np.rint(shares * shares * UNIT).astype(np.int64).sum())

    def warning(self) -> str | None:
        """Returns the warning for data without display positions; None if the order is harmless."""
        if self.lists < _MIN_LISTS:
            return None
        mean = self.shares / UNIT / self.lists
        variance = max(0.0, self.squares / UNIT / self.lists - mean * mean)
        difference = abs(mean - 0.5)
        limit = max(_MIN_DIFFERENCE, _MIN_DEVIATIONS * math.sqrt(variance / self.lists))
        if difference < limit:
            return None
        return (
            f"the order of the items reveals relevance: in {self.lists} lists a relevant item "
            f"precedes an irrelevant one with probability {mean:.3f} instead of 0.5, and the "
            "schema names no display position; shuffle the items of each list, or name the position"
        )


def is_repeated(items: int, distinct: int) -> bool:
    """Whether each item of a list may be there twice. Two equal items of two prove nothing.

    Example:
        >>> is_repeated(6, 3), is_repeated(6, 4), is_repeated(2, 1)
        (True, False, False)
    """
    return items >= _LEAST_ITEMS and 2 * distinct <= items


def repeated_lists(columns: Iterable[NDArray], row_splits: NDArray[np.int64]) -> int:
    """Counts the lists that are `is_repeated`.

    `columns` are those of the items, numbers or codes of 32 bits, [items, width]; `row_splits`,
    [lists + 1], has the offset of each list in them.

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


def log_warnings(longest: int, repeated: int, lists: int, order: OrderSums) -> list[str]:
    """Returns the warnings about training lists, of which `lists` were searched for repeated ones.

    Where the position is known, `order` is empty.

    Example:
        >>> log_warnings(9, 1, 200, OrderSums())
        []
        >>> log_warnings(9, 150, 200, OrderSums())
        ['150 of 200 lists have every item twice, equal in all columns: is the input read twice?']
    """
    warnings = [ONE_ITEM] if longest == 1 else []
    if repeated > _SHARE * lists:
        twice = "lists have every item twice, equal in all columns: is the input read twice?"
        warnings.append(f"{repeated} of {lists} {twice}")
    return warnings + [text for text in [order.warning()] if text]


def check_lost(lost: int, of: int, what: str, max_lost: float, why: str = "") -> None:
    """Raises `UserError` where more of something is lost than `max_lost` allows."""
    if lost > max_lost * of:
        allowed = f"more than max_lost={max_lost:g} allows"
        raise UserError(f"{lost} of {of} {what} ({lost / of:.1%}), {allowed}{why}")
