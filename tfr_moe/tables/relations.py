"""Which rows form one list, and relations of columns: one determines or repeats another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_CATEGORY_NAME = re.compile(r"categ|cat(_|\d|$)|depart|segment|taxonomy|^(sub|top)(_|$)", re.I)
ITEM = "item."
"""Begins the name of a feature of the items in a hierarchy."""
_AGREEMENT = 0.9
_LISTS_PER_CHILD = 4
_MIN_IDS = 100


class ColumnDecision(NamedTuple):
    """What became of a column.

    Attributes:
        column: its name.
        outcome: `list_id`, `label`, `context numeric`, `example categorical`, `ignored`, ...
        reason: why, in one line.
        warning: whether someone should look at it.
    """

    column: str
    outcome: str
    reason: str
    warning: bool = False


def choose_hierarchy(
    given: Mapping[str, str] | None,
    context: Mapping[str, NDArray[np.int32]],
    items: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[ColumnDecision]]:
    """Returns the given hierarchy, or else one of the lists, or else one of their items."""
    if given is not None:
        of_items = given.get("child", "").startswith(ITEM)
        return {**({"from": "majority"} if of_items else {}), **given}, []
    tree, decisions = find_hierarchy(context)
    if tree is not None:
        return tree, decisions
    named = {name: codes for name, codes in items.items() if _CATEGORY_NAME.search(name)}
    tree, decisions = find_hierarchy(named)
    if tree is not None:
        tree = {role: f"{ITEM}{name}" for role, name in tree.items()} | {"from": "majority"}
    return tree, [d._replace(reason=f"{d.reason}; of the items, by majority") for d in decisions]


def find_hierarchy(
    codes: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[ColumnDecision]]:
    """Selects child and parent category, by the codes of columns, and returns the decisions.

    A child determines its parent in at least 90 % of the rows. Pairs whose names speak of
    categories come first, then those with the fewest children, since queries and sessions may
    determine a category too.
    """
    pairs = [(child, parent) for child in codes for parent in codes if child != parent]
    candidates = [pair for pair in pairs if _determines(codes[pair[0]], codes[pair[1]])]
    if not candidates:
        return None, []
    speaking = {name: bool(_CATEGORY_NAME.search(name)) for name in codes}
    count = {name: len(np.unique(of_column)) for name, of_column in codes.items()}
    candidates.sort(key=lambda pair: (-sum(speaking[name] for name in pair), count[pair[0]]))
    first, *others = [
        ColumnDecision(child, "hierarchy candidate", f"{child!r} determines {parent!r}")
        for child, parent in candidates
    ]
    child, parent = candidates[0]
    return {"child": child, "parent": parent}, [first._replace(outcome="hierarchy"), *others]


def _determines(children: NDArray[np.int32], parents: NDArray[np.int32]) -> bool:
    num_children, num_parents = len(np.unique(children)), len(np.unique(parents))
    enough = _LISTS_PER_CHILD * num_children <= len(children)
    if not 2 <= num_parents < num_children or not enough:
        return False
    width = int(parents.max()) + 1
    pairs, counts = np.unique(children.astype(np.int64) * width + parents, return_counts=True)
    most = np.zeros(int(children.max()) + 1, np.int64)
    np.maximum.at(most, pairs // width, counts)
    return bool(most.sum() >= _AGREEMENT * len(children))


def repeated_ids(columns: Mapping[str, NDArray[np.int32]], names: Iterable[str]) -> dict[str, str]:
    """Returns the columns that repeat another one, nearly one-to-one, with the other's name.

    Columns of 100 IDs or fewer, such as categories, are never among them. Of two columns the one
    that comes first in `names` is preferred.
    """
    distinct = {name: len(np.unique(codes)) for name, codes in columns.items()}
    retained: list[str] = []
    repeated: dict[str, str] = {}
    for name in (name for name in names if distinct.get(name, 0) > _MIN_IDS):
        same = (other for other in retained if _one_to_one(columns, distinct, name, other))
        other = next(same, None)
        if other is None:
            retained.append(name)
        else:
            repeated[name] = other
    return repeated


def _one_to_one(
    columns: Mapping[str, NDArray[np.int32]], distinct: Mapping[str, int], name: str, other: str
) -> bool:
    fewer, more = sorted((distinct[name], distinct[other]))
    if fewer < _AGREEMENT * more:
        return False
    # Codes are below 2^31, so a pair fits 64 bits.
    pairs = columns[name].astype(np.int64) << 32 | columns[other]
    return fewer >= _AGREEMENT * len(np.unique(pairs))


class RowLists(NamedTuple):
    """Row numbers, list after list, and the offset of each list in them, [lists + 1]."""

    rows: NDArray[np.int64]
    row_splits: NDArray[np.int64]

    @classmethod
    def of(cls, codes: NDArray[np.int32]) -> RowLists:
        """Returns the lists of rows by the code of their list."""
        rows = np.argsort(codes, kind="stable")
        return cls(rows, np.append(np.flatnonzero(np.diff(codes[rows], prepend=-1)), len(rows)))

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """Row number of the first row of each list."""
        return self.rows[self.row_splits[:-1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of each list."""
        return np.diff(self.row_splits)

    def several_values(self, values: NDArray[Any]) -> int:
        """Returns the number of lists whose rows have several values."""
        different = values[self.rows] != np.repeat(values[self.first_rows], self.sizes)
        return int(np.logical_or.reduceat(different, self.row_splits[:-1]).sum())

    def counts_up(self, values: NDArray[np.float64]) -> bool:
        """Whether each list has the numbers from 1 to its length."""
        starts, sizes, ordered = self.row_splits[:-1], self.sizes, values[self.rows]
        if not np.array_equal(np.maximum.reduceat(ordered, starts), sizes):
            return False
        lists = np.repeat(np.arange(len(sizes)), sizes)
        counted = np.arange(1, len(ordered) + 1) - np.repeat(starts, sizes)
        return np.array_equal(ordered[np.lexsort((ordered, lists))], counted)


def role_decision(
    name: str, role: str, lists: RowLists, unlisted: int, relevant: Mapping[str, NDArray[np.bool_]]
) -> ColumnDecision:
    """Returns the decision on a column that has a role, with what is wrong with it."""
    reasons = []
    if role == "list_id" and unlisted:
        reasons.append(f"{unlisted} rows have no value; they belong to no list and are left out")
    single = (lists.sizes == 1).mean()
    if role == "list_id" and single > 0.5:
        reasons.append(f"{single:.0%} of its lists have one row; is it the ID of an item?")
    if role == "label" and not relevant[name].any():
        reasons.append("is never above 0: there is nothing to learn from")
    return ColumnDecision(name, role, "; ".join(reasons) or "as given", bool(reasons))
