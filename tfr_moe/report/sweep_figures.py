"""Plotly figures of a sweep: heat map, learning curves and parallel coordinates.

Each function returns None if the sweep has nothing to show in it. Results are coloured by viridis,
the better the brighter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from tfr_moe.report.figures import LEGEND, Drawing, epoch_axis, heat_map, label, named_axis
from tfr_moe.tuning import formatting
from tfr_moe.tuning.results import RankedTrial, SweepSummary, values_of
from tfr_moe.tuning.sweep_folder import Trial

MAX_CELLS = 12
"""Largest side of the heat map."""
NUM_COLOURED = 5
_MAX_NAME = 32
_MAX_LEGEND = 56
_MAX_TICKS = 9
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
            title=formatting.heading(pair[0]),
            side="top",
        ),
        named_axis([formatting.format_value(v) for v in down], title=formatting.heading(pair[1])),
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


def mean_history(trial: Trial, name: str) -> tuple[list[float], list[float]]:
    """Epochs and the metric's mean over the seeds that have a value in the epoch.

    Seeds that stopped early drop out of the mean.
    """
    by_epoch: dict[float, list[float]] = {}
    for seed in trial.seeds:
        for row in seed.history:
            value = row.get(name)
            if value is not None and math.isfinite(value):
                by_epoch.setdefault(row["epoch"], []).append(value)
    epochs = sorted(by_epoch)
    return epochs, [float(np.mean(by_epoch[epoch])) for epoch in epochs]


def curves_of(summary: SweepSummary, metric: str, title: str) -> Drawing | None:
    """A metric by epoch: the best five trials in colour, the others in grey."""
    histories = [(entry, *mean_history(entry.trial, metric)) for entry in summary.entries]
    histories = [item for item in histories if item[1]]
    if not any(len(epochs) > 1 for _, epochs, _ in histories):
        return None
    figure = go.Figure()
    for entry, epochs, values in reversed(histories):
        coloured = entry.rank <= NUM_COLOURED
        settings = formatting.format_settings(entry.trial.hyperparameters, summary.varying)
        fits = 0 < len(settings) <= _MAX_LEGEND
        name = settings if fits else f"trial {entry.trial.trial_id}"
        colour = f"var(--series-{entry.rank})" if coloured else "var(--muted)"
        figure.add_scatter(
            x=epochs,
            y=values,
            name=label(f"{entry.rank}. {name}", _MAX_LEGEND + 4),
            showlegend=coloured,
            legendrank=entry.rank,
            mode="lines+markers" if coloured else "lines",
            opacity=1 if coloured else 0.35,
            line={"color": colour, "width": 2 if coloured else 1},
            hovertext=hint(entry, summary.varying),
            hovertemplate="%{y:.4f} in epoch %{x}<br>%{hovertext}<extra></extra>",
        )
    rows = sum(entry.rank <= NUM_COLOURED for entry, *_ in histories)
    figure.update_layout(
        showlegend=True,
        legend={**LEGEND, "orientation": "v", "y": -0.25, "yanchor": "top"},
        height=300 + 20 * rows,
        xaxis=epoch_axis(max(len(epochs) for _, epochs, _ in histories)),
        yaxis={
            "title": label(f"{title}, mean over seeds", 80),
            "range": _central_range([value for _, _, values in histories for value in values]),
        },
    )
    return Drawing(figure, f"{title} by epoch")


def _central_range(values: Sequence[float]) -> tuple[float, float]:
    """A range without the values of diverged trials, which would flatten the others."""
    low, middle, high = (float(np.percentile(values, share)) for share in (25, 50, 75))
    reach = 8 * max(high - middle, middle - low)
    inside = [v for v in values if abs(v - middle) <= reach] or list(values)
    margin = 0.05 * (max(inside) - min(inside)) or 0.01
    return min(inside) - margin, max(inside) + margin


def positions(values: Sequence[Any]) -> tuple[Callable[[Any], float], list[tuple[float, str]]]:
    """Positions of values on an axis from 0 to 1, and its ticks (position, text).

    Numbers are placed by size, or by logarithm if they span more than a factor of 30; other values
    are spaced evenly.

    Example:
        >>> position, ticks = positions([0.1, 0.001, 0.01])
        >>> round(position(0.01), 3), [text for _, text in ticks]
        (0.5, ['0.001', '0.01', '0.1'])
        >>> positions(["SC", "TC+SC"])[0]("TC+SC")
        1.0
    """
    distinct = sorted({repr(value): value for value in values}.values(), key=formatting.sort_key)
    if _numeric(distinct):
        low, high = float(distinct[0]), float(distinct[-1])
        logarithmic = low > 0 and high / low > 30
        transform, inverse = (math.log, math.exp) if logarithmic else (float, float)
        start, span = transform(low), transform(high) - transform(low)

        def position(value: Any) -> float:
            return (transform(value) - start) / span if span else 0.5

        shown = distinct
        if len(distinct) > _MAX_TICKS:
            marks = np.linspace(start, start + span, 5)[1:-1]
            shown = [low, *(float(f"{inverse(mark):.2g}") for mark in marks), high]
    else:
        order = {repr(value): i for i, value in enumerate(distinct)}

        def position(value: Any) -> float:
            return order[repr(value)] / (len(order) - 1) if len(order) > 1 else 0.5

        shown = distinct[:: math.ceil(len(distinct) / _MAX_TICKS)]
    return position, [(position(value), formatting.format_value(value)) for value in shown]


def parallel_coordinates(summary: SweepSummary) -> Drawing | None:
    """A line per trial across its hyper-parameters to its result, the best drawn last.

    None if fewer than two hyper-parameters vary or fewer than two trials have a result.
    """
    names, entries = summary.varying, summary.entries
    if len(names) < 2 or len(entries) < 2:
        return None
    low, high = sorted(scale([entry.value for entry in entries], summary.higher))
    axes = [positions(values_of(summary, name)) for name in names]
    figure = go.Figure()
    for entry in reversed(entries):
        given = entry.trial.hyperparameters
        heights = [position(given.get(n)) for (position, _), n in zip(axes, names, strict=True)]
        height = float(np.clip((entry.value - low) / ((high - low) or 1.0), 0.0, 1.0))
        brightness = height if summary.higher else 1 - height
        best = entry.rank == 1
        figure.add_scatter(
            x=list(range(len(names) + 1)),
            y=[*heights, height],
            mode="lines",
            opacity=1 if best else 0.75,
            line={"color": _BEST if best else _viridis(brightness), "width": 4 if best else 1.6},
            hovertext=hint(entry, names),
            hoverinfo="text",
        )
    ticks = [(i / 4, f"{value:.4f}") for i, value in enumerate(np.linspace(low, high, 5))]
    for x, marks in enumerate([*(marks for _, marks in axes), ticks]):
        figure.add_shape(x0=x, x1=x, y0=0, y1=1, line={"color": "var(--muted)", "width": 1})
        for y, text in marks:
            figure.add_annotation(
                x=x,
                y=y,
                text=label(text, _MAX_NAME),
                showarrow=False,
                xanchor="left",
                bgcolor="var(--paper)",
                opacity=0.85,
                font={"size": 11},
            )
    titles = [*(formatting.symbol(name) for name in names), summary.objective]
    figure.update_layout(
        showlegend=False,
        hovermode="closest",
        height=380,
        xaxis=named_axis(titles, side="top", range=[-0.1, len(names) + 0.45], showline=False),
        yaxis={"visible": False, "range": [-0.04, 1.04]},
        margin={"l": 52, "r": 12, "t": 48, "b": 12},
    )
    title = f"Parallel coordinates of {len(entries)} trials"
    return Drawing(figure, title, min_width=110 + 105 * len(names))


def _viridis(share: float) -> str:
    return str(sample_colorscale("Viridis", [share])[0])
