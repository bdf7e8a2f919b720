"""Limits of drift, from a YAML file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tfr_moe.errors import UserError, validated
from tfr_moe.utils.settings import read_mapping


class ColumnLimits(BaseModel):
    """The largest allowed drift of a column; None for no limit.

    Attributes:
        psi: population stability index. By a rule of thumb of credit scoring, 0.1 to 0.25 is a
            small change, and more a large one.
        mean_shift: difference of the means, in standard deviations of the reference.
        missing: difference of the shares of missing values.
        out_of_vocabulary: increase of the share of IDs outside the reference's vocabulary.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    psi: float | None = Field(0.25, ge=0)
    mean_shift: float | None = Field(0.5, ge=0)
    missing: float | None = Field(0.05, ge=0)
    out_of_vocabulary: float | None = Field(0.2, ge=0)


class DriftLimits(ColumnLimits):
    """Limits of all columns, with exceptions by column.

    Attributes:
        min_lists: top categories with fewer lists in either data set are not compared on their own.
        columns: column -> the limits that differ for it.

    Example:
        >>> limits = DriftLimits(psi=0.3, columns={"item_id": {"psi": None}})
        >>> limits.of("item_id").psi, limits.of("price[1]").psi
        (None, 0.3)
    """

    min_lists: int = Field(300, ge=1)
    columns: dict[str, ColumnLimits] = {}

    @classmethod
    def load(cls, path: str | Path) -> DriftLimits:
        """Reads limits from YAML; a `UserError` names the invalid entry."""
        return validated(cls, read_mapping(Path(path), "limits"), f"limits {path}")

    def of(self, column: str) -> ColumnLimits:
        """The limits of a column; `a` is also that of `a[0]`, `a[1]`, ..."""
        special = self.columns.get(column.partition("[")[0], ColumnLimits())
        return self.model_copy(update=special.model_dump(exclude_unset=True))

    def check_names(self, names: Collection[str]) -> None:
        """Raises a `UserError` for a column with limits that does not exist."""
        for name in self.columns:
            if name not in names:
                raise UserError(f"limits: column {name!r} is unknown; allowed: {', '.join(names)}")
