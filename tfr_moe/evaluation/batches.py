"""ListBatch: scored lists as numpy arrays, what every metric of the evaluation is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
MAX_GRADE = 1000.0  # 2^y - 1 leaves float64 at 1024


@dataclass(frozen=True)
class ListBatch:
    """Some lists with their scores: B lists of up to L items.

    Attributes:
        scores: [B, L], the model's scores; whatever stands at padded places is never read.
        labels: [B, L], graded relevance >= 0; never read at padded places.
        mask: [B, L] bool, True where there is an item. Padding may stand anywhere.
        list_ids: [B] strings.
        positions: [B, L], the place (1 is first) at which the item was shown, or None where the
            schema has no position.
        categories: [B] strings, the top category, or None where the schema has no hierarchy.

    Example:
        >>> batch = ListBatch(
        ...     scores=np.array([[0.3, 0.9]]),
        ...     labels=np.array([[0.0, 1.0]]),
        ...     mask=np.array([[True, True]]),
        ...     list_ids=np.array(["q1"]),
        ... )
        >>> batch.check()
    """

    scores: Array
    labels: Array
    mask: Bools
    list_ids: Array
    positions: Array | None = None
    categories: Array | None = None

    def check(self) -> None:
        """Refuses what can't be judged.

        Raises:
            UserError: shapes that don't agree, a score that is not a number, a label that is not
                a grade from 0 to 1000. The message names the list.
        """
        shape = self.scores.shape
        for name in ("labels", "mask", "positions"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise UserError(
                    f"{name} have shape {array.shape}, scores {shape}: must be the same"
                )
        for name in ("list_ids", "categories"):
            array = getattr(self, name)
            if array is not None and array.shape != shape[:1]:
                raise UserError(f"{name} have shape {array.shape}: must be {shape[:1]}")
        self._refuse("score", self.scores, np.isnan(self.scores), "must be a number")
        graded = (self.labels >= 0) & (self.labels <= MAX_GRADE)
        self._refuse("label", self.labels, ~graded, f"must be from 0 to {MAX_GRADE:.0f}")

    def _refuse(self, what: str, values: Array, bad: Bools, rule: str) -> None:
        found = np.argwhere(bad & self.mask)
        if len(found):
            row, item = found[0]
            raise UserError(
                f"list {str(self.list_ids[row])!r}, item {item + 1}: "
                f"{what} {values[row, item]} {rule}"
            )
