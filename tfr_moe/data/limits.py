"""What of a frame may be lost: items of long lists, and values on which rows of a list differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.data.columns import read_numbers
from tfr_moe.data.lists import Lists
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema, Scope
from tfr_moe.tables.arrow import column_of

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LIST_SIZE = 200
MAX_LOST = 0.05
Log = Callable[[str], None]


def silent(line: str) -> None:
    """Prints nothing."""


class Limits(NamedTuple):
    """Limits of lists and of what may be lost, see `training_data`; checks and logs losses."""

    max_list_size: int = MAX_LIST_SIZE
    max_lost: float = MAX_LOST
    log: Log = silent

    def check(self, lost: int, of: int, what: str) -> None:
        """Logs a loss; raises `UserError` where it is more than `max_lost`."""
        if not lost:
            return
        if lost > self.max_lost * of:
            allowed = f"max_lost={self.max_lost:g}"
            raise UserError(f"{lost} of {of} {what} ({lost / of:.1%}), more than {allowed} allows")
        self.log(f"warning: {lost} of {of} {what}")


DEFAULTS = Limits()


def cut(
    table: pa.Table, schema: FeatureSchema, parts: Mapping[str, Lists], limits: Limits
) -> dict[str, Lists]:
    """Cuts lists to `max_list_size`; checks and logs how many positives that loses."""
    size = limits.max_list_size
    if size < 1:
        raise UserError(f"max_list_size must be >= 1, got {size}")
    shorter = {}
    for name, lists in parts.items():
        shorter[name], lost = lists.cut(size)
        if len(lost):
            positive = read_numbers(schema.label, column_of(table, schema.label), lowest=0.0) > 0
            limits.log(f"warning: {len(lost)} {name} items are beyond max_list_size={size}")
            what = f"{name} items with a label above 0 are cut by max_list_size={size}"
            limits.check(int(positive[lost].sum()), int(positive[lists.rows].sum()), what)
    return shorter


def of_scope(
    name: str, values: NDArray[Any], scope: Scope, lists: Lists, limits: Limits
) -> NDArray[Any]:
    """The values of the items, or of the lists: those of their first rows.

    Raises:
        UserError: if the rows of too many lists differ in a context feature.
    """
    if scope == "example":
        return values[lists.rows]
    first = values[np.minimum.reduceat(lists.rows, lists.row_splits[:-1])]
    lengths = np.diff(lists.row_splits)
    ordered, expected = values[lists.rows], np.repeat(first, lengths, axis=0)
    # NaN, a missing number, differs from itself.
    different = (ordered != expected) & ((ordered == ordered) | (expected == expected))
    if different.ndim == 2:
        different = different.any(axis=1)
    if different.any():
        list_of_item = np.repeat(np.arange(len(lengths)), lengths)
        items = np.flatnonzero(different)
        row = int(lists.rows[items].min())
        at = int(list_of_item[items[np.argmin(lists.rows[items])]])
        limits.check(
            len(np.unique(list_of_item[items])),
            len(lengths),
            f"lists have several values of the context feature {name!r}; the first is list "
            f"{lists.list_ids[at]!r} at row {row}",
        )
    return first
