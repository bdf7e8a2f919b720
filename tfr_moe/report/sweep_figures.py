"""The heat map of a sweep: the better a result, the stronger the colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfr_moe.report.figures import Cell, HeatMap, label
from tfr_moe.tuning import formatting
from tfr_moe.tuning.results import RankedTrial, SweepSummary, values_of

MAX_CELLS = 12
"""Largest side of the heat map."""


def scale(
    values: Sequence[float], higher: bool, least_difference: float = 0.0
) -> tuple[float, float]:
    """The values of the palest and the strongest colour, robust to diverged trials.

    Values more than four times as far from the best as the median share the palest colour. A
    difference within seed noise is less than half of the scale.

    Example:
        >>> scale([0.5, 0.86, 0.87, 0.88], higher=True)
        (0.82, 0.88)
    """
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    reach = 4 * abs(best - float(np.median(values)))
    if reach and abs(best - worst) > reach:
        worst = round(best - reach if higher else best + reach, 12)
    span = max(abs(best - worst), 2 * least_difference)
    return round(best - span if higher else best + span, 12), best


def hint(entry: RankedTrial, names: Sequence[str]) -> str:
    """Text for the pointer: trial, rank, result and settings."""
    settings = [f"{formatting.symbol(n)} = {_value(entry, n)}" for n in names]
    lines = [
        f"trial {entry.trial.trial_id}, rank {entry.rank}",
        formatting.format_mean(entry.value, entry.std),
        *settings,
    ]
    return ", ".join(lines)


def _value(entry: RankedTrial, name: str) -> str:
    return formatting.format_value(entry.trial.hyperparameters.get(name))


def grid_axes(summary: SweepSummary) -> tuple[str, str] | None:
    """The hyper-parameters of the heat map, across and down; None without such a pair.

    The lambdas if both vary, else the only two that vary, if both are numbers with few values.
    """
    names = summary.varying
    pair = ("hsc_weight", "adversarial_weight")
    if not set(pair) <= set(names):
        if len(names) != 2:
            return None
        pair = (names[0], names[1])
    for name in pair:
        values = values_of(summary, name)
        if not _numeric(values) or not 2 <= len(values) <= MAX_CELLS:
            return None
    return pair


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _best_by(summary: SweepSummary, names: Sequence[str]) -> dict[tuple[str, ...], RankedTrial]:
    """The best trial for each combination of values of the named hyper-parameters."""
    cells: dict[tuple[str, ...], RankedTrial] = {}
    for entry in summary.entries:  # best first
        key = tuple(repr(entry.trial.hyperparameters.get(name)) for name in names)
        cells.setdefault(key, entry)
    return cells


def heat_map_of(summary: SweepSummary) -> HeatMap | None:
    """Table VIII: a cell for each pair of values, largest first, with mean and deviation.

    If other hyper-parameters vary too, a cell shows the best trial with its pair.
    """
    pair = grid_axes(summary)
    if pair is None or summary.best is None:
        return None
    across, down = (list(reversed(values_of(summary, name))) for name in pair)
    cells = _best_by(summary, pair)
    seeds = len(summary.best.trial.seeds)
    least = summary.noise.least_difference(seeds, seeds) if summary.noise and seeds else 0.0
    low, high = scale([entry.value for entry in cells.values()], summary.higher, least)

    def cell(x: Any, y: Any) -> Cell:
        entry = cells.get((repr(x), repr(y)))
        if entry is None:
            return Cell("–", hint="not run")
        share = (entry.value - low) / (high - low) if high != low else 1.0
        level = "≈ " if entry.tied and entry.rank > 1 else ""
        text = level + formatting.format_mean(entry.value, entry.std)
        kind = "best" if entry.rank == 1 else ""
        return Cell(text, max(share, 0.0), hint(entry, summary.varying), kind)

    x_name, y_name = map(formatting.heading, pair)
    return HeatMap(
        caption=f"{summary.objective} by {label(x_name)} and {label(y_name)}",
        columns=[(formatting.format_value(x), "") for x in across],
        rows=[formatting.format_value(y) for y in down],
        cells=[[cell(x, y) for x in across] for y in down],
        corner=f"{label(y_name)} ↓ {label(x_name)} →",
    )
