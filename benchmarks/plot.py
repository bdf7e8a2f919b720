"""Draws the figure of docs/performance.md from the JSON of the benchmarks.

    python -m benchmarks.plot [--step FILE] [--memory FILE] [--quality FILE] [--out FOLDER]

Left: cost of a step by N, K, list length and batch; middle: its memory; right: NDCG by seconds of
training. A panel without a file is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common.log_axes import log_chart
from tfr_moe.report import Chart, Line, write_figure

GROWING = ("N", "K", "list length", "batch")


def draw_growth(step: dict[str, Any]) -> Chart:
    lines, last = [], 1.0
    for name in GROWING:
        points = step["growth"].get(name, {})
        if not points:
            continue
        sizes = [float(value) for value in points]
        ratios = [point["ratio"] for point in points.values()]
        median, low, high = ([r[key] for r in ratios] for key in ("median", "low", "high"))
        times = [size / sizes[0] for size in sizes]
        last = max(last, *times)
        lines.append(Line(f"{name}, from {sizes[0]:.0f}", times, median, low, high))
    lines.append(Line("in proportion", [1.0, last], [1.0, last], kind="dashed"))
    return log_chart(
        "xy",
        lines,
        "seconds of a training step by size",
        "times the first size",
        "times its seconds",
        title="A training step",
    )


def draw_memory(memory: dict[str, Any]) -> Chart:
    lines = []
    for name in GROWING:
        points = memory.get(name, {})
        if points:
            sizes = [float(value) for value in points]
            megabytes = [point["megabytes"] for point in points.values()]
            times = [size / sizes[0] for size in sizes]
            lines.append(Line(f"{name}, from {sizes[0]:.0f}", times, megabytes))
    return log_chart(
        "x",
        lines,
        "memory of a training step by size",
        "times the first size",
        "MB above an empty process",
        title="Memory of a step",
        values=(0.0,),
    )


def draw_quality(quality: dict[str, Any]) -> Chart:
    goal = quality["goals"]["LightGBM's best"]
    lines = [
        Line(model, [s for s, _ in curve], [q for _, q in curve])
        for model, curve in quality["curves"].items()
    ]
    return log_chart(
        "x",
        lines,
        f"validation NDCG by seconds; the dotted line is {goal:.4f}, the best of LightGBM",
        "seconds, reading the records included",
        "validation NDCG",
        title="Time to the same NDCG",
        rule=[(float("-inf"), goal), (float("inf"), goal)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    drawers: dict[str, Callable[[dict[str, Any]], Chart]] = {
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
    panels = [
        drawers[name](json.loads(path.read_text(encoding="utf-8"))) for name, path in given.items()
    ]
    write_figure(panels, arguments.out / "performance.svg")
    print(f"wrote {arguments.out}/performance.svg")


if __name__ == "__main__":
    main()
