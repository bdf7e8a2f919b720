"""Draws the figure of docs/performance.md from the JSON of the benchmarks.

    python -m benchmarks.plot [--step FILE] [--memory FILE] [--quality FILE] [--out FILE]

Left: cost of a step by N, K, list length and batch; middle: its memory; right: NDCG by seconds of
training. A panel without a file is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.common.plots import drawn

GROWING = ("N", "K", "list length", "batch")


def plain_ticks(*axes: Any) -> None:
    """Labels such as 2, 5 and 10 instead of powers of ten."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def draw_growth(axes: Any, step: dict[str, Any]) -> None:
    for name in GROWING:
        points = step["growth"].get(name, {})
        if not points:
            continue
        sizes = [float(value) for value in points]
        ratios = [found["ratio"] for found in points.values()]
        middle = [r["median"] for r in ratios]
        spread = [
            [m - r["low"] for m, r in zip(middle, ratios, strict=True)],
            [r["high"] - m for m, r in zip(middle, ratios, strict=True)],
        ]
        times = [size / sizes[0] for size in sizes]
        axes.errorbar(
            times, middle, yerr=spread, marker="o", capsize=3, label=f"{name}, from {sizes[0]:.0f}"
        )
    axes.plot([1, 12.8], [1, 12.8], color="0.8", linestyle="--", label="in proportion")
    axes.set(xscale="log", yscale="log", xlabel="times the first size", ylabel="times its seconds")
    plain_ticks(axes.xaxis, axes.yaxis)
    axes.set_title("A training step")
    axes.legend(fontsize=8)


def draw_memory(axes: Any, memory: dict[str, Any]) -> None:
    for name in GROWING:
        points = memory.get(name, {})
        if points:
            sizes = [float(value) for value in points]
            megabytes = [found["megabytes"] for found in points.values()]
            axes.plot(
                [s / sizes[0] for s in sizes],
                megabytes,
                marker="o",
                label=f"{name}, from {sizes[0]:.0f}",
            )
    axes.set(xscale="log", xlabel="times the first size", ylabel="MB above an empty process")
    axes.set_ylim(bottom=0)
    plain_ticks(axes.xaxis)
    axes.set_title("Memory of a step")
    axes.legend(fontsize=8)


def draw_quality(axes: Any, quality: dict[str, Any]) -> None:
    for model, curve in quality["curves"].items():
        axes.plot([s for s, _ in curve], [q for _, q in curve], marker=".", label=model)
    axes.axhline(quality["goal"], color="0.8", linestyle="--")
    axes.set(xscale="log", xlabel="seconds of training", ylabel="validation NDCG")
    plain_ticks(axes.xaxis)
    axes.set_title("Time to the same NDCG")
    axes.legend(fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    drawers: dict[str, Callable[[Any, dict[str, Any]], None]] = {
        "step": draw_growth,
        "memory": draw_memory,
        "quality": draw_quality,
    }
    for name in drawers:
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    arguments = parser.parse_args()
    given = {name: getattr(arguments, name) for name in drawers if getattr(arguments, name)}
    if not given:
        parser.error("give at least one of " + ", ".join(f"--{name}" for name in drawers))
    with drawn(arguments.out, "performance", len(given), 4.6, 3.8, one_scale=False) as panels:
        for axes, (name, path) in zip(panels, given.items(), strict=True):
            drawers[name](axes, json.loads(path.read_text(encoding="utf-8")))
    print(f"wrote {arguments.out}/performance.png")


if __name__ == "__main__":
    main()
