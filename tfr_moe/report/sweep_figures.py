"""The heat map of a sweep, in Plotly: the better a result, the brighter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfr_moe.report.figures import Drawing, heat_map, label, named_axis
from tfr_moe.tuning import formatting
from tfr_moe.tuning.results import RankedTrial, SweepSummary, values_of

MAX_CELLS = 12
"""Largest side of the heat map."""
_BEST = "var(--accent)"


def scale(values: Sequence[float], higher: bool) -> tuple[float, float]:
    """The values of the darkest and the brightest colour, robust to diverged trials.

    Values more than four times as far from the best as the median share the darkest colour.

    Example:
        >>> scale([0.5, 0.86, 0.87, 0.88], higher=True)
        (0.82, 0.88)
    """
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    reach = 4 * abs(best - float(np.median(values)))
    if reach and abs(best - worst) > reach:
        worst = round(best - reach if higher else best + reach, 12)
    return worst, best


def hint(entry: RankedTrial, names: Sequence[str]) -> str:
    """Text for the pointer: trial, rank, result and settings."""
    settings = [f"{formatting.symbol(n)} = {_value(entry, n)}" for n in names]
    lines = [
        f"trial {entry.trial.trial_id}, rank {entry.rank}",
        formatting.format_mean(entry.value, entry.std),
        *settings,
    ]
    return "<br>".join(label(line, 80) for line in lines)


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


def heat_map_of(summary: SweepSummary) -> Drawing | None:
    """Table VIII: a cell for each pair of values, largest first, with mean and deviation.

    If other hyper-parameters vary too, a cell shows the best trial with its pair.
    """
    pair = grid_axes(summary)
    if pair is None:
        return None
    across, down = (list(reversed(values_of(summary, name))) for name in pair)
    cells = _best_by(summary, pair)
    low, high = sorted(scale([entry.value for entry in cells.values()], summary.higher))
    grid = [[cells.get((repr(x), repr(y))) for x in across] for y in down]
    height = 110 + 46 * len(down)
    figure = heat_map(
        [[None if e is None else e.value for e in row] for row in grid],
        [["not run" if e is None else hint(e, summary.varying) for e in row] for row in grid],
        named_axis(
            [formatting.format_value(v) for v in across],
            title=label(formatting.heading(pair[0])),
            side="top",
        ),
        named_axis(
            [formatting.format_value(v) for v in down], title=label(formatting.heading(pair[1]))
        ),
        height,
        colorscale="Viridis",
        reversescale=not summary.higher,
        zmin=low,
        zmax=high,
        text=[[_cell_text(e) for e in row] for row in grid],
        texttemplate="%{text}",
    )
    figure.update_layout(margin={"l": 56, "r": 12, "t": 64, "b": 12})
    for y, row in enumerate(grid):
        for x, entry in enumerate(row):
            if entry is None:
                figure.add_annotation(
                    x=x, y=y, text="–", showarrow=False, font={"color": "var(--muted)"}
                )
            elif entry.rank == 1:
                corners = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
                figure.add_shape(name="best", line={"color": _BEST, "width": 4}, **corners)
    width = 80 + 66 * len(across)
    title = f"Heat map of {summary.objective}"
    return Drawing(figure, title, min_width=width, max_width=2 * width)


def _cell_text(entry: RankedTrial | None) -> str:
    if entry is None:
        return ""
    value = f"<b>{entry.value:.4f}</b>" if entry.rank == 1 else f"{entry.value:.4f}"
    return value if math.isnan(entry.std) else f"{value}<br>± {entry.std:.4f}"
