"""Heat maps of group by group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe.errors import UserError


def draw_heatmap(shown: Mapping[str, Any], title: str, path: Path) -> None:
    """Draws the lift of a map (see `AttentionMap.as_json`): a row attends to a column.

    White is a lift of 1, red more and blue less; pairs of groups that never met stay grey.

    Raises:
        UserError: if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import TwoSlopeNorm
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("plots need matplotlib: pip install 'tfr_moe[report]'") from None
    labels = shown["labels"]
    values = np.array(shown["lift"], dtype=float)
    finite = values[np.isfinite(values)]
    side = 3 + 0.3 * len(labels)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("0.8")
    norm = TwoSlopeNorm(
        1.0, min(finite.min(initial=1.0), 0.999), max(finite.max(initial=1.0), 1.001)
    )
    image = axes.imshow(np.ma.masked_invalid(values), cmap="RdBu_r", norm=norm)
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xlabel("attended to")
    axes.set_ylabel("attends")
    axes.set_title(title)
    figure.colorbar(image, label="weight / even weight", shrink=0.8)
    figure.savefig(path, dpi=120, metadata={"Software": None})
