"""Finds the category tree: pairs of context features of which one determines the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

_CATEGORY_NAME = re.compile(r"categ|cat(_|\d|$)|depart|segment|taxonomy|^(sub|top)(_|$)", re.I)
ITEM = "item."
"""Begins the name of a feature of the items in a hierarchy."""
_AGREEMENT = 0.9
_LISTS_PER_CHILD = 4


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
    """Returns the given hierarchy, or else one of the lists, or else one of their items.

    Args:
        given: child and parent, `item.NAME` for those of the items; None finds them.
        context: categorical context feature -> its value in each list.
        items: categorical item feature -> its value in each row.

    Raises:
        UserError: for a child or parent that is no categorical context feature.
    """
    if given is not None:
        if given.get("child", "").startswith(ITEM):
            return {"from": "majority", **given}, []
        check_hierarchy(given, list(context))
        return dict(given), []
    found = find_hierarchy(context)
    return found if found[0] is not None else item_hierarchy(items)


def check_hierarchy(hierarchy: Mapping[str, str], names: Sequence[str]) -> None:
    """Checks that child and parent are among the categorical context features.

    Raises:
        UserError: naming the role that is not.

    Example:
        >>> check_hierarchy({"child": "sub", "parent": "top"}, ["sub", "query"])
        Traceback (most recent call last):
        tfr_moe.errors.UserError: hierarchy parent 'top': must be a categorical context feature; \
allowed: sub, query
    """
    for role in ("child", "parent"):
        if hierarchy.get(role) not in names:
            raise UserError(
                f"hierarchy {role} {hierarchy.get(role)!r}: must be a categorical context feature; "
                f"allowed: {', '.join(names) or 'none'}"
            )


def find_hierarchy(
    codes: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[Decision]]:
    """Selects the child and parent category.

    A child determines its parent in at least 90 % of the lists; pairs whose names speak of
    categories come first.

    Args:
        codes: categorical context feature -> its value in each list.

    Returns:
        `{"child": ..., "parent": ...}` or None, and the decisions.

    Example:
        >>> sub = np.array([0, 1, 2] * 4)
        >>> find_hierarchy({"sub": sub, "top": sub // 2})[0]
        {'child': 'sub', 'parent': 'top'}
    """
    pairs = [(child, parent) for child in codes for parent in codes if child != parent]
    candidates = [pair for pair in pairs if _determines(codes[pair[0]], codes[pair[1]])]
    if not candidates:
        return None, []
    candidates.sort(key=lambda pair: -sum(bool(_CATEGORY_NAME.search(name)) for name in pair))
    decisions = [
        Decision(child, "hierarchy candidate", f"{child!r} determines {parent!r}")
        for child, parent in candidates
    ]
    child, parent = candidates[0]
    return {"child": child, "parent": parent}, [
        decisions[0]._replace(outcome="hierarchy"),
        *decisions[1:],
    ]


def item_hierarchy(
    codes: Mapping[str, NDArray[np.int32]],
) -> tuple[dict[str, str] | None, list[Decision]]:
    """Selects child and parent among features of the items that are called categories.

    Args:
        codes: categorical item feature -> its value in each row.

    Returns:
        As `find_hierarchy`; the category of a list is that of most of its items.

    Example:
        >>> sub = np.array([0, 1, 2] * 4)
        >>> item_hierarchy({"category_2": sub, "category_1": sub // 2})[0]
        {'child': 'item.category_2', 'parent': 'item.category_1', 'from': 'majority'}
    """
    named = {name: values for name, values in codes.items() if _CATEGORY_NAME.search(name)}
    found, decisions = find_hierarchy(named)
    if found is None:
        return None, []
    return {
        **{role: f"{ITEM}{name}" for role, name in found.items()},
        "from": "majority",
    }, [d._replace(reason=f"{d.reason}; of the items, by majority") for d in decisions]


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
