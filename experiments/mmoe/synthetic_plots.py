"""The plots of the synthetic study, named after the paper's figures that they correspond to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.plots import COLOURS, MARKERS, drawn, log_scale
from experiments.mmoe.synthetic_summary import REFERENCE, Losses

Curves = dict[tuple[str, float], np.ndarray]
"""(model, correlation) -> [runs, windows] training losses."""


def draw_label_correlation(out: Path, correlations: dict[str, Any]) -> None:
    """Draws Figure 2: Pearson correlation of the labels over the cosine of the weight vectors."""
    with drawn(out, "figure_2_label_correlation", width=5) as (axes,):
        axes.errorbar(
            correlations["cosine"],
            correlations["mean"],
            yerr=2 * np.array(correlations["standard_deviation"]),
            fmt="o",
            color=COLOURS[0],
            markersize=4,
            capsize=3,
            label=f"mean of {correlations['trials']} trials, 2 standard deviations",
        )
        axes.plot(
            correlations["fine_cosine"],
            correlations["exact"],
            color="black",
            linewidth=1,
            label="exact",
        )
        axes.set_xlabel("cosine of the weight vectors (task correlation)")
        axes.set_ylabel("Pearson correlation of the labels")
        axes.legend(loc="upper left")


def _line(axes: Any, steps: np.ndarray, values: np.ndarray, index: int, label: str) -> None:
    mean = values.mean(axis=0)
    axes.plot(steps, mean, color=COLOURS[index], label=label)
    if len(values) > 1:
        error = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(
            steps, mean - error, mean + error, color=COLOURS[index], alpha=0.2, linewidth=0
        )


def draw_shared_bottom(out: Path, steps: np.ndarray, curves: Curves) -> None:
    """Draws Figure 3: training loss of Shared-Bottom, a line for each correlation."""
    by_correlation = {
        p: values for (model, p), values in sorted(curves.items()) if model == REFERENCE
    }
    with drawn(out, "figure_3_shared_bottom", width=5) as (axes,):
        for index, (p, values) in enumerate(by_correlation.items()):
            _line(axes, steps, values, index, f"correlation {p:g}")
        _name_axes(axes)
        axes.set_ylabel("training loss (mean squared error)")
        axes.legend(title=f"{REFERENCE}, {len(values)} runs", loc="upper right")


def draw_models(out: Path, steps: np.ndarray, curves: Curves) -> None:
    """Draws Figure 4: training losses of all models, a panel for each correlation."""
    models = list(dict.fromkeys(model for model, _ in curves))
    correlations = sorted({p for _, p in curves})
    with drawn(out, "figure_4_models", len(correlations), width=3.6) as panels:
        for axes, p in zip(panels, correlations, strict=True):
            for index, model in enumerate(models):
                _line(axes, steps, curves[model, p], index, model)
            _name_axes(axes)
            axes.set_title(f"correlation {p:g}")
        panels[0].set_ylabel("training loss (mean squared error)")
        runs = len(curves[models[0], correlations[0]])
        panels[-1].legend(title=f"{runs} runs", loc="upper right")


def _name_axes(axes: Any) -> None:
    # Losses fall by powers of ten; the differences of interest are at the end.
    log_scale(axes)
    axes.set_xlabel("training steps")


def draw_distribution(out: Path, losses: Losses) -> None:
    """Draws the final test loss of every run, a panel for each correlation."""
    rng = np.random.default_rng(0)
    with drawn(out, "distribution_of_runs", len(losses.correlations), width=3.6) as panels:
        for axes, p in zip(panels, losses.correlations, strict=True):
            values = [losses.of(model, p) for model in losses.models]
            _boxes(axes, values, losses.models)
            for index, losses_of_model in enumerate(values):
                spread = index + 1 + rng.uniform(-0.12, 0.12, len(losses_of_model))
                axes.plot(
                    spread,
                    losses_of_model,
                    MARKERS[index],
                    color=COLOURS[index],
                    markersize=4,
                    alpha=0.6,
                )
            axes.set_title(f"correlation {p:g}")
        panels[0].set_ylabel("test loss after training")


def _boxes(axes: Any, values: Sequence[np.ndarray], names: Sequence[str]) -> None:
    axes.boxplot(
        values,
        widths=0.5,
        showfliers=False,
        medianprops={"color": "black", "linewidth": 1.5},
        boxprops={"color": "0.4"},
        whiskerprops={"color": "0.4"},
        capprops={"color": "0.4"},
    )
    axes.set_xticks(range(1, len(names) + 1), names)
    axes.grid(axis="x", visible=False)
