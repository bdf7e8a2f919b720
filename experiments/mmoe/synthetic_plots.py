"""The plots of the synthetic study, named after the paper's figures that they correspond to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.log_axes import log_chart
from experiments.mmoe.synthetic_summary import REFERENCE, Losses
from tfr_moe.report import Chart, Line, chart, write_figure

Curves = dict[tuple[str, float], np.ndarray]
"""(model, correlation) -> [runs, windows] training losses."""
LOSS = "training loss (mean squared error)"


def draw_label_correlation(out: Path, correlations: dict[str, Any]) -> None:
    """Draws Figure 2: Pearson correlation of the labels over the cosine of the weight vectors."""
    mean = np.array(correlations["mean"])
    spread = 2 * np.array(correlations["standard_deviation"])
    name = f"mean of {correlations['trials']} trials, 2 standard deviations"
    lines = [
        Line(name, correlations["cosine"], mean, mean - spread, mean + spread, "points"),
        Line("exact", correlations["fine_cosine"], correlations["exact"], kind="curve"),
    ]
    panel = chart(
        lines,
        "the correlation of labels grows with that of the tasks",
        "cosine of the weight vectors (task correlation)",
        "Pearson correlation of the labels",
    )
    write_figure([panel], out / "figure_2_label_correlation.svg")


def _line(steps: np.ndarray, values: np.ndarray, name: str) -> Line:
    mean = values.mean(axis=0)
    if len(values) < 2:
        return Line(name, steps, mean, kind="curve")
    error = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return Line(name, steps, mean, mean - error, mean + error, "curve")


def _losses(lines: Sequence[Line], title: str, scale: Sequence[float] = ()) -> Chart:
    # Losses fall by powers of ten; the differences of interest are at the end.
    finding = f"{title}: {LOSS} by step"
    return log_chart("y", lines, finding, "training steps", LOSS, title=title, values=scale)


def draw_shared_bottom(out: Path, steps: np.ndarray, curves: Curves) -> None:
    """Draws Figure 3: training loss of Shared-Bottom, a line for each correlation."""
    by_correlation = {
        p: values for (model, p), values in sorted(curves.items()) if model == REFERENCE
    }
    lines = [_line(steps, values, f"correlation {p:g}") for p, values in by_correlation.items()]
    runs = max(map(len, by_correlation.values()))
    write_figure([_losses(lines, f"{REFERENCE}, {runs} runs")], out / "figure_3_shared_bottom.svg")


def draw_models(out: Path, steps: np.ndarray, curves: Curves) -> None:
    """Draws Figure 4: training losses of all models, a panel for each correlation."""
    models = list(dict.fromkeys(model for model, _ in curves))
    correlations = sorted({p for _, p in curves})
    panels = [[_line(steps, curves[model, p], model) for model in models] for p in correlations]
    drawn = [value for lines in panels for line in lines for value in (*line.y, *line.low)]
    runs = len(curves[models[0], correlations[0]])
    charts = [
        _losses(lines, f"correlation {p:g}, {runs} runs", drawn)
        for p, lines in zip(correlations, panels, strict=True)
    ]
    write_figure(charts, out / "figure_4_models.svg")


def draw_distribution(out: Path, losses: Losses) -> None:
    """Draws the final test loss of every run with its quartiles, a panel for each correlation."""
    rng = np.random.default_rng(0)
    panels = []
    for p in losses.correlations:
        lines = []
        for index, model in enumerate(losses.models):
            values = losses.of(model, p)
            spread = index + rng.uniform(-0.25, 0.05, len(values))
            low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
            lines += [
                Line("", spread, values, kind="points", colour=index),
                Line("", [index + 0.25], [median], [low], [high], colour=index),
            ]
        panels.append((p, lines))
    drawn = [value for _, lines in panels for line in lines for value in line.y]
    charts = [
        chart(
            lines,
            f"test loss of every run at correlation {p:g}, with median and quartiles",
            "",
            "test loss after training",
            title=f"correlation {p:g}",
            x_ticks=list(enumerate(losses.models)),
            include=((-0.5, len(losses.models) - 0.5), drawn),
        )
        for p, lines in panels
    ]
    write_figure(charts, out / "distribution_of_runs.svg")
