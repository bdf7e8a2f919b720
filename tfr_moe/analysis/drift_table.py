"""The table of a drift report for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tfr_moe.analysis.drift import ALL, DriftRow
from tfr_moe.utils.console import Column, fitted_table


def _share(value: float | None, before: float | None) -> str:
    return "-" if value is None or before is None else f"{value:.1%} ({before:.1%})"


def drift_table(rows: Sequence[DriftRow], width: int | None = None) -> Table:
    """All columns over all lists, and of the top categories those above a limit.

    Args:
        rows: of `measure_drift`.
        width: columns of the terminal; None shows all.
    """
    shown = [row for row in rows if row.category == ALL or row.exceeded]
    categories = {row.category for row in rows} - {ALL}
    lists = f"{rows[0].current_lists:,} lists, reference {rows[0].reference_lists:,}"
    return fitted_table(
        [
            Column("column", [row.column for row in shown], numeric=False),
            Column("category", [row.category or "all" for row in shown], numeric=False),
            Column("above limit", [", ".join(row.exceeded) for row in shown], numeric=False),
            Column("psi", [f"{row.psi:.3f}" for row in shown]),
            Column(
                "mean shift",
                ["-" if r.mean_shift is None else f"{r.mean_shift:+.2f}" for r in shown],
            ),
            Column("missing", [_share(r.missing, r.reference_missing) for r in shown]),
            Column(
                "unknown IDs",
                [_share(r.out_of_vocabulary, r.reference_out_of_vocabulary) for r in shown],
            ),
        ],
        always=3,
        width=width,
        caption=f"{lists}; {len(categories)} top categories compared on their own",
    )
