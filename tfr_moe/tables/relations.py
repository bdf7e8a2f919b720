"""Relations of ID columns: one determines another, as a sub-category its parent, or repeats it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

_CATEGORY_NAME = re.compile(r"categ|cat(_|\d|$)|depart|segment|taxonomy|^(sub|top)(_|$)", re.I)
ITEM = "item."
"""Begins the name of a feature of the items in a hierarchy."""
_AGREEMENT = 0.9
_LISTS_PER_CHILD = 4
_MIN_IDS = 100


class Decision(NamedTuple):
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
) -> tuple[dict[str, str] | None, list[Decision]]:
    """Returns the given hierarchy, or else one of the lists, or else one of their items."""
    if given is not None:
        if given.get("child", "").startswith(ITEM):
            return {"from": "majority", **given}, []
        for role in ("child", "parent"):
            if given.get(role) not in context:
                raise UserError(
                    f"hierarchy {role} {given.get(role)!r}: must be a categorical context feature; "
                    f"allowed: {', '.join(context) or 'none'}"
                )
        return dict(given), []
    found = find_hierarchy(context)
    return found if found[0] is not None else item_hierarchy(items)


def find_hierarchy(
    codes: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[Decision]]:
    """Selects child and parent category, by the codes of columns, and returns the decisions.

    A child determines its parent in at least 90 % of the rows; pairs whose names speak of
    categories come first.
    """
    pairs = [(child, parent) for child in codes for parent in codes if child != parent]
    candidates = [pair for pair in pairs if _determines(codes[pair[0]], codes[pair[1]])]
    if not candidates:
        return None, []
    candidates.sort(key=lambda pair: -sum(bool(_CATEGORY_NAME.search(name)) for name in pair))
    first, *others = [
        Decision(child, "hierarchy candidate", f"{child!r} determines {parent!r}")
        for child, parent in candidates
    ]
    child, parent = candidates[0]
    return {"child": child, "parent": parent}, [first._replace(outcome="hierarchy"), *others]


def item_hierarchy(
    codes: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[Decision]]:
    """As `find_hierarchy`, among features of the items that are called categories."""
    named = {name: values for name, values in codes.items() if _CATEGORY_NAME.search(name)}
    tree, decisions = find_hierarchy(named)
    if tree is None:
        return None, []
    tree = {role: f"{ITEM}{name}" for role, name in tree.items()}
    reasons = [d._replace(reason=f"{d.reason}; of the items, by majority") for d in decisions]
    return {**tree, "from": "majority"}, reasons


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
