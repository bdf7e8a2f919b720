"""Which rows of a table form one list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.tables.relations import Decision


class RowLists(NamedTuple):
    """Rows ordered by list: row numbers, and whether a row continues the list of the row before."""

    rows: NDArray[np.int64]
    continues: NDArray[np.bool_]

    @classmethod
    def of(cls, codes: NDArray[np.int32]) -> RowLists:
        """Returns the lists of rows by the code of their list."""
        rows = np.argsort(codes, kind="stable")
        ordered = codes[rows]
        return cls(rows, np.concatenate([[False], ordered[1:] == ordered[:-1]]))

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """Row number of the first row of each list."""
        return self.rows[~self.continues]

    @property
    def number(self) -> int:
        """Number of lists."""
        return len(self.rows) - int(self.continues.sum())

    @property
    def single_rows(self) -> float:
        """Share of the lists that have one row."""
        continued = np.concatenate([self.continues[1:], [False]])
        return float((~self.continues & ~continued).sum() / self.number)

    def several_values(self, values: NDArray[Any]) -> int:
        """Returns the number of lists whose rows have several values."""
        ordered = values[self.rows]
        changes = self.continues[1:] & (ordered[1:] != ordered[:-1])
        differing = np.zeros(self.number, bool)
        differing[np.cumsum(~self.continues)[1:][changes] - 1] = True
        return int(differing.sum())

    def counts_up(self, values: NDArray[np.float64]) -> bool:
        """Whether each list has the numbers from 1 to its length, by their first two moments."""
        starts = np.flatnonzero(~self.continues)
        lengths = np.diff(np.append(starts, len(self.rows))).astype(np.float64)
        ordered = values[self.rows]
        if not np.array_equal(np.maximum.reduceat(ordered, starts), lengths):
            return False
        if (ordered < 1).any() or (ordered % 1 != 0).any():
            return False
        sums, squares = np.add.reduceat(ordered, starts), np.add.reduceat(ordered**2, starts)
        return np.array_equal(sums, lengths * (lengths + 1) / 2) and np.array_equal(
            squares, lengths * (lengths + 1) * (2 * lengths + 1) / 6
        )


def role_decision(
    name: str, role: str, lists: RowLists, unlisted: int, relevant: Mapping[str, NDArray[np.bool_]]
) -> Decision:
    """Returns the decision on a column that has a role, with what is wrong with it.

    `unlisted` is the number of rows without a list ID; `relevant` says for each label which rows
    are above 0.
    """
    reasons = []
    if role == "list_id" and unlisted:
        reasons.append(f"{unlisted} rows have no value; they belong to no list and are left out")
    if role == "list_id" and lists.single_rows > 0.5:
        share = f"{lists.single_rows:.0%} of its lists have one row"
        reasons.append(f"{share}; is it the ID of an item?")
    if role == "label" and not relevant[name].any():
        reasons.append("is never above 0: there is nothing to learn from")
    return Decision(name, role, "; ".join(reasons) or "as given", bool(reasons))
