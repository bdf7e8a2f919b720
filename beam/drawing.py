"""Pictures of `categories.json`, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MOST = 12


def _axes(title: str) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    # A figure of its own: nothing is shown, and no state of pyplot is touched.
    axes = Figure(figsize=(11, 5), layout="constrained").subplots()
    axes.set_title(title)
    return axes


def draw_importance(categories: dict[str, dict[str, float]], path: Path) -> None:
    """Bars of each feature's importance in the categories with most lists; nothing for no category."""
    chosen = list(categories.items())[:_MOST]
    axes = _axes("Share of pairs that a feature has right, by category") if chosen else None
    if axes is None:
        return
    features = [name for name in chosen[0][1] if name != "lists"]
    width = 0.8 / max(1, len(features))
    for index, feature in enumerate(features):
        places = [at + (index + 0.5) * width - 0.4 for at in range(len(chosen))]
        axes.bar(places, [values[feature] for _, values in chosen], width, label=feature)
    axes.axhline(0.5, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(chosen)), [name for name, _ in chosen], rotation=30, ha="right")
    axes.set_ylim(0, 1)
    axes.legend(fontsize="small", ncols=3)
    axes.figure.savefig(path, dpi=120)


def draw_concentration(categories: dict[str, dict[str, float]], path: Path) -> None:
    """Proportion and number of the brands with 80 % of the purchases; nothing for no category."""
    chosen = list(categories.items())[:_MOST]
    axes = _axes("Brands that have 80 % of the purchases, by category") if chosen else None
    if axes is None:
        return
    names = [name for name, _ in chosen]
    axes.bar(names, [values["proportion"] for _, values in chosen], color="tab:blue", alpha=0.6)
    axes.set_ylabel("proportion of brands")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    numbers = axes.twinx()
    numbers.plot(
        range(len(names)), [values["brands"] for _, values in chosen], "o", color="tab:red"
    )
    numbers.set_ylabel("number of brands")
    axes.figure.savefig(path, dpi=120)
