"""The pictures of a sweep that are made of lines: parallel coordinates and learning curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np

from . import svg, words
from .figures import WIDTH, scale
from .records import Trial
from .summary import Entry, Summary, values_of

_COLOURS = matplotlib.colormaps["viridis"]
_LONGEST_LABEL = 56
_MOST_NAMES = 9  # categories or values named at an axis


def positions(values: Sequence[Any]) -> tuple[Callable[[Any], float], list[tuple[float, str]]]:
    """Where values stand on an axis from 0 to 1, and the ticks (place, text) to show.

    Numbers stand by size, over more than a factor of 30 by their logarithm; anything else is spaced evenly.

    Example:
        >>> place, ticks = positions([0.1, 0.001, 0.01])
        >>> round(place(0.01), 3), [text for _, text in ticks]
        (0.5, ['0.001', '0.01', '0.1'])
        >>> positions(["SC", "TC+SC"])[0]("TC+SC")
        1.0
    """
    distinct = sorted({repr(value): value for value in values}.values(), key=words.order)
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in distinct):
        low, high = float(distinct[0]), float(distinct[-1])
        transform = math.log if low > 0 and high / low > 30 else float
        start, span = transform(low), transform(high) - transform(low)

        def place(value: Any) -> float:
            return (transform(value) - start) / span if span else 0.5

        shown = distinct
        if len(distinct) > _MOST_NAMES:
            marks = np.linspace(start, start + span, 5)
            back = math.exp if transform is math.log else float
            shown = [low, *(float(f"{back(mark):.2g}") for mark in marks[1:-1]), high]
    else:
        order = {repr(value): i for i, value in enumerate(distinct)}

        def place(value: Any) -> float:
            return order[repr(value)] / (len(order) - 1) if len(order) > 1 else 0.5

        step = math.ceil(len(distinct) / _MOST_NAMES)
        shown = distinct[::step]
    return place, [(place(value), words.shown(value)) for value in shown]


def parallel_coordinates(summary: Summary) -> str | None:
    """A line for each trial across its hyper-parameters to its result, brighter and on top the better.

    None where fewer than two hyper-parameters vary or there are fewer than two results.
    """
    names, entries = summary.varying, summary.entries
    if len(names) < 2 or len(entries) < 2:
        return None
    colours = scale([entry.value for entry in entries], summary.higher)
    columns = [[e.trial.hyperparameters.get(name) for e in entries] for name in names]
    placed = [positions(values_of(summary, name)) for name in names]
    result_place, result_ticks = _result_axis(entries, colours)
    with matplotlib.rc_context(svg.style()):
        figure = svg.new_figure(110 + 105 * len(names), 300)
        axes = figure.subplots()
        hints = {}
        for number, entry in reversed(list(enumerate(entries))):
            height = [place(column[number]) for (place, _), column in zip(placed, columns)]  # noqa: B905
            height.append(result_place(entry.value))
            gid = f"line-{number}"
            axes.plot(
                range(len(height)),
                height,
                color=svg.ACCENT if entry.rank == 1 else colours.colour(entry.value),
                linewidth=3 if entry.rank == 1 else 1.6,
                alpha=1 if entry.rank == 1 else 0.75,
                gid=gid,
                clip_on=False,
            )
            hints[gid] = (
                f"trial {entry.trial.trial_id}, number {entry.rank}: "
                f"{words.measured(entry.value, entry.std)} "
                f"({words.settings(entry.trial.hyperparameters, names)})"
            )
        for i, (_, ticks) in enumerate([*placed, (result_place, result_ticks)]):
            _draw_axis(axes, i, ticks)
        axes.set_xticks(
            range(len(names) + 1), [*(words.symbol(name) for name in names), summary.objective]
        )
        axes.xaxis.set_ticks_position("top")
        axes.tick_params(length=0, pad=8)
        axes.set_yticks([])
        axes.set_xlim(-0.1, len(names) + 0.45)
        axes.set_ylim(-0.04, 1.04)
        axes.spines[:].set_visible(False)
        label = f"Parallel coordinates of {len(entries)} trials"
        return svg.to_svg(figure, "parallel", label, hints)


def _result_axis(
    entries: Sequence[Entry], colours: Any
) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    low, high = sorted((colours.low, colours.high))
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return min(max((value - low) / span, 0.0), 1.0)

    return place, [(place(v), f"{v:.4f}") for v in np.linspace(low, high, 5)]


def _draw_axis(axes: Any, place: int, ticks: Sequence[tuple[float, str]]) -> None:
    axes.plot([place, place], [0, 1], color=svg.MUTED, linewidth=1, zorder=3)
    for height, text in ticks:
        axes.annotate(
            text,
            (place, height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=svg.INK,
            zorder=4,
            bbox={"facecolor": svg.PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 1},
        )


def mean_history(trial: Trial, name: str) -> tuple[list[float], list[float]]:
    """Epochs and the metric's mean over the seeds that have a number there.

    Training that stopped early has no number afterwards: the mean is then over the others.
    """
    found: dict[float, list[float]] = {}
    for seed in trial.seeds:
        for row in seed.history:
            value = row.get(name)
            if value is not None and math.isfinite(value):
                found.setdefault(row["epoch"], []).append(value)
    epochs = sorted(found)
    return epochs, [float(np.mean(found[epoch])) for epoch in epochs]


def learning_curves(summary: Summary) -> str | None:
    """The validation metric by epoch, the best five in colour, all others behind in grey."""
    return _curves(summary, f"val_{summary.objective}", summary.objective, "curves")


def loss_curves(summary: Summary) -> str | None:
    """The validation loss by epoch: where it rises again, a trial has begun to learn by heart."""
    if summary.objective == "loss":
        return None
    return _curves(summary, "val_loss", "validation loss", "losses")


def _curves(summary: Summary, metric: str, title: str, name: str) -> str | None:
    histories = [(entry, *mean_history(entry.trial, metric)) for entry in summary.entries]
    histories = [item for item in histories if item[1]]
    if not any(len(epochs) > 1 for _, epochs, _ in histories):
        return None
    top = [item for item in histories if item[0].rank <= svg.SERIES]
    with matplotlib.rc_context(svg.style()):
        figure = svg.new_figure(WIDTH, 260 + 20 * len(top))
        axes = figure.subplots()
        hints = {}
        for entry, epochs, values in reversed(histories):
            best = entry.rank <= svg.SERIES
            gid = f"curve-{entry.rank}"
            text = words.settings(entry.trial.hyperparameters, summary.varying)
            name_of = text if 0 < len(text) <= _LONGEST_LABEL else f"trial {entry.trial.trial_id}"
            axes.plot(
                epochs,
                values,
                color=svg.SERIES_COLOURS[entry.rank - 1] if best else svg.MUTED,
                linewidth=2 if best else 1,
                alpha=1 if best else 0.35,
                marker="o" if best else None,
                markersize=3,
                gid=gid,
                label=f"{entry.rank}.  {name_of}" if best else "_",
            )
            hints[gid] = f"trial {entry.trial.trial_id}, number {entry.rank}: {text}"
        axes.set_xlabel("epoch")
        axes.set_title(f"{title}, mean over seeds", fontsize=12, loc="left")
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        axes.grid(axis="y")
        _clip_to_most(axes, [value for _, _, values in histories for value in values])
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside lower left", frameon=False, fontsize=11
        )
        return svg.to_svg(figure, name, f"{title} by epoch", hints)


def _clip_to_most(axes: Any, values: Sequence[float]) -> None:
    """Leaves a diverged trial's values out of the range, so that the others can be told apart."""
    low, middle, high = (float(np.percentile(values, share)) for share in (25, 50, 75))
    reach = 8 * max(high - middle, middle - low)
    inside = [v for v in values if abs(v - middle) <= reach] or list(values)
    margin = 0.05 * (max(inside) - min(inside)) or 0.01
    axes.set_ylim(min(inside) - margin, max(inside) + margin)
