"""Whether the order of the items in the records reveals which of them are relevant.

Models do not read the order, but sums over a list in float32 depend on it in their last digits, and
trees split by them. Where the records are not in the order of display, relevance must therefore not
follow from the position in the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNIT = 1 << 20
"""Sums are in integer units of 1 / UNIT, so that they do not depend on the order of the lists."""

ONE_ITEM = "every list has one item: there is nothing to rank; the items of a list share its ID"
_MIN_LISTS = 100
_MIN_DIFFERENCE = 0.02
_MIN_DEVIATIONS = 5.0


@dataclass
class OrderSums:
    """Sums over lists of the share of pairs in which the relevant item precedes the other.

    Attributes:
        lists: number of lists with a relevant and an irrelevant item.
        shares: sum of their shares, in units.
        squares: sum of the squares of their shares, in units.
    """

    lists: int = 0
    shares: int = 0
    squares: int = 0

    def add(self, relevant: NDArray[np.bool_], row_splits: NDArray[np.int64]) -> None:
        """Adds lists.

        Args:
            relevant: of each item, list after list, in the order of the records, [items].
            row_splits: offset of each list in `relevant`, [lists + 1].
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

    def add_list(self, relevant: Sequence[bool]) -> None:
        """Adds the items of one list, in the order of the record."""
        positions = [position for position, value in enumerate(relevant) if value]
        count = len(positions)
        pairs = count * (len(relevant) - count)
        if not pairs:
            return
        share = 1.0 - (sum(positions) - count * (count - 1) / 2) / pairs
        self.lists += 1
        self.shares += round(share * UNIT)
        self.squares += round(share * share * UNIT)

    def warning(self) -> str | None:
        """Returns the warning for data without display positions; None if the order is harmless.

        Example:
            >>> sums = OrderSums()
            >>> for _ in range(200):
            ...     sums.add_list([True, False, False])
            >>> sums.warning()[:61]
            'the order of the items reveals relevance: in 200 lists a rele'
        """
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
