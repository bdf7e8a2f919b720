"""The pictures of a sweep: the heat map of Table VIII and the bars of Fig. 6, for whatever varied.

Each function takes a `Summary` and gives an `<svg>` element, or None where the sweep has nothing for it.
Colours of values are viridis, brighter is better, which reads on light, dark and grey paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from . import svg, words
from .summary import Entry, Summary, seed_values, values_of

MOST_CELLS = 12  # a side of the heat map
MOST_BARS = 40
_LONGEST_NAME = 32
WIDTH = 440  # of bars and curves, in CSS pixels; a phone shows them only little smaller
_COLOURS = matplotlib.colormaps["viridis"]


class Scale(NamedTuple):
    """Where values stand between the dullest and the brightest colour.

    Attributes:
        low: value of the darkest colour; worse ones share it.
        high: value of the brightest.
    """

    low: float
    high: float

    def share(self, value: float) -> float:
        """0 for the worst to 1 for the best."""
        if self.low == self.high:
            return 1.0
        return float(np.clip((value - self.low) / (self.high - self.low), 0.0, 1.0))

    def colour(self, value: float) -> str:
        """The colour as hex."""
        return to_hex(_COLOURS(self.share(value)))


def scale(values: Sequence[float], higher: bool) -> Scale:
    """A scale from the worst to the best value that one wild trial does not use up.

    What is more than four times as far from the best as the median is shares the darkest colour.

    Example:
        >>> scale([0.5, 0.86, 0.87, 0.88], higher=True).low
        0.82
    """
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    middle = float(np.median(values))
    reach = 4 * abs(best - middle)
    if reach and abs(best - worst) > reach:
        worst = round(best - reach if higher else best + reach, 12)
    return Scale(worst, best)


def grid_axes(summary: Summary) -> tuple[str, str] | None:
    """The two hyper-parameters of the heat map, across and down; None where there are none.

    The lambdas where both vary, else the only two that vary, if both are numbers of few values.
    """
    names = summary.varying
    pair = ("hsc_weight", "adversarial_weight")
    if not set(pair) <= set(names):
        if len(names) != 2:
            return None
        pair = (names[0], names[1])
    for name in pair:
        values = values_of(summary, name)
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        if not numbers or not 2 <= len(values) <= MOST_CELLS:
            return None
    return pair


def best_of_cells(summary: Summary, names: Sequence[str]) -> dict[tuple[str, ...], Entry]:
    """The best trial for each combination of values of the named hyper-parameters."""
    cells: dict[tuple[str, ...], Entry] = {}
    for entry in summary.entries:  # best first
        cells.setdefault(_cell(entry, names), entry)
    return cells


def _cell(entry: Entry, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(entry.trial.hyperparameters.get(name)) for name in names)


def _hint(entry: Entry, names: Sequence[str]) -> str:
    return (
        f"trial {entry.trial.trial_id}, number {entry.rank}: "
        f"{words.measured(entry.value, entry.std)} "
        f"({words.settings(entry.trial.hyperparameters, names)})"
    )


def heat_map(summary: Summary) -> str | None:
    """Table VIII: a cell for each pair of values, largest first as there, with number and deviation.

    Where other hyper-parameters vary too, a cell shows the best trial with its pair.
    """
    pair = grid_axes(summary)
    if pair is None:
        return None
    across, down = (list(reversed(values_of(summary, name))) for name in pair)
    cells = best_of_cells(summary, pair)
    colours = scale([entry.value for entry in cells.values()], summary.higher)
    deviations = any(not math.isnan(entry.std) for entry in cells.values())
    with matplotlib.rc_context(svg.style()):
        figure = svg.new_figure(78 + 66 * len(across), 82 + (46 if deviations else 36) * len(down))
        axes = figure.subplots()
        hints = {}
        for row, y in enumerate(down):
            for column, x in enumerate(across):
                entry = cells.get((repr(x), repr(y)))
                gid = f"cell-{row}-{column}"
                _draw_cell(axes, column, row, entry, colours, gid)
                if entry is not None:
                    hints[gid] = _hint(entry, summary.varying)
        axes.set_xlim(0, len(across))
        axes.set_ylim(len(down), 0)
        axes.set_xticks([i + 0.5 for i in range(len(across))], [words.shown(v) for v in across])
        axes.set_yticks([i + 0.5 for i in range(len(down))], [words.shown(v) for v in down])
        axes.set_xlabel(words.heading(pair[0]), labelpad=8)
        axes.set_ylabel(words.heading(pair[1]), labelpad=6)
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        return svg.to_svg(figure, "heat", f"Heat map of {summary.objective}", hints)


def _draw_cell(
    axes: Any, column: int, row: int, entry: Entry | None, colours: Scale, gid: str
) -> None:
    best = entry is not None and entry.rank == 1
    axes.add_patch(
        matplotlib.patches.Rectangle(
            (column + 0.04, row + 0.04),
            0.92,
            0.92,
            facecolor="none" if entry is None else colours.colour(entry.value),
            edgecolor=svg.GRID if entry is None else (svg.ACCENT if best else "none"),
            linewidth=3 if best else 1,
            gid=gid,
        )
    )
    if entry is None:
        axes.text(column + 0.5, row + 0.5, "–", ha="center", va="center", color=svg.MUTED)
        return
    ink = "#000000" if colours.share(entry.value) > 0.55 else "#ffffff"
    spread = not math.isnan(entry.std)
    axes.text(
        column + 0.5,
        row + (0.38 if spread else 0.5),
        f"{entry.value:.4f}",
        ha="center",
        va="center",
        color=ink,
        fontweight="bold" if best else "normal",
    )
    if spread:
        axes.text(
            column + 0.5,
            row + 0.70,
            f"± {entry.std:.4f}",
            ha="center",
            va="center",
            color=ink,
            fontsize=10,
        )


def bars(summary: Summary) -> str | None:
    """Fig. 6: a bar for each combination of values, with deviation and the single seeds.

    The axis does not begin at 0: lengths compare differences, not sizes. None where there are too many
    combinations, or where so much varies that a bar's name would be longer than the bar.
    """
    names = summary.varying
    cells = best_of_cells(summary, names)
    if not names or not 2 <= len(cells) <= MOST_BARS:
        return None
    places = {n: {repr(v): i for i, v in enumerate(values_of(summary, n))} for n in names}
    entries = [
        cells[cell]
        for cell in sorted(
            cells, key=lambda c: [places[n][v] for n, v in zip(names, c, strict=True)]
        )
    ]
    if max(len(_bar_name(entry, names)) for entry in entries) > _LONGEST_NAME:
        return None
    low, high = _reach(entries, summary.objective)
    with matplotlib.rc_context(svg.style()):
        figure = svg.new_figure(WIDTH, 62 + 26 * len(entries))
        axes = figure.subplots()
        hints = {}
        for place, entry in enumerate(entries):
            gid = f"bar-{place}"
            _draw_bar(axes, place, entry, low, gid, seed_values(entry.trial, summary.objective))
            hints[gid] = _hint(entry, names)
        axes.set_xlim(low, high)
        axes.set_ylim(len(entries) - 0.4, -0.6)
        axes.set_yticks(range(len(entries)), [_bar_name(entry, names) for entry in entries])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_xlabel(f"{summary.objective} (the axis begins at {low:.4g})")
        axes.set_title(
            ", ".join(words.symbol(name) for name in names), fontsize=12, loc="left", x=0.0
        )
        return svg.to_svg(figure, "bars", f"Bars of {summary.objective}", hints)


def _bar_name(entry: Entry, names: Sequence[str]) -> str:
    return ", ".join(words.shown(entry.trial.hyperparameters.get(name)) for name in names)


def _reach(entries: Sequence[Entry], objective: str) -> tuple[float, float]:
    points = [v for e in entries for v in (e.value, *seed_values(e.trial, objective))]
    points += [e.value + side * e.std for e in entries if not math.isnan(e.std) for side in (-1, 1)]
    low, high = min(points), max(points)
    span = (high - low) or abs(high) * 0.01 or 1.0
    return low - 0.25 * span, high + 0.08 * span


def _draw_bar(
    axes: Any, place: int, entry: Entry, low: float, gid: str, seeds: Sequence[float]
) -> None:
    best = entry.rank == 1
    axes.add_patch(
        matplotlib.patches.Rectangle(
            (low, place - 0.36),
            entry.value - low,
            0.72,
            facecolor=svg.ACCENT if best else svg.SOFT,
            linewidth=0,
            gid=gid,
        )
    )
    if not math.isnan(entry.std):
        axes.errorbar(entry.value, place, xerr=entry.std, color=svg.INK, capsize=3, linewidth=1.2)
    axes.plot(seeds, [place] * len(seeds), "o", color=svg.INK, markersize=3, alpha=0.6)
    axes.annotate(
        f"{entry.value:.4f}",
        (low, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=svg.PAPER if best else svg.INK,
        fontsize=11,
        fontweight="bold" if best else "normal",
    )
