"""Shared parts of the benchmarks: rounds in random order, ratios within a round, the machine.

A busy machine slows all contestants of a round alike. So each runs once per round, in random
order, and ratios are computed within the round; medians and quartiles over the rounds are
reported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def parser_of(doc: str | None, rounds: int = 15) -> argparse.ArgumentParser:
    """The options that every benchmark takes, under the first line of its docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser


def training_parser(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """The same, and those of a training."""
    parser = parser_of(doc, rounds)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="adv_hsc_moe")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    return parser


def sizes_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments, without the output file."""
    values = vars(arguments).items()
    return {k: str(v) if isinstance(v, Path) else v for k, v in values if k != "json"}


def run_rounds(
    steps: dict[str, Callable[[], Any]], rounds: int, seed: int, warm_up: int = 2
) -> list[dict[str, float]]:
    """Seconds of every contestant in every round.

    A step that returns a number returns its own seconds; any other result is waited for.
    """
    for step in steps.values():
        for _ in range(warm_up):
            _seconds(step)
    shuffle = random.Random(seed)
    measured = []
    for _ in range(rounds):
        seconds = {name: _seconds(steps[name]) for name in shuffle.sample(list(steps), len(steps))}
        measured.append({name: seconds[name] for name in steps})
    return measured


def _seconds(step: Callable[[], Any]) -> float:
    started = time.perf_counter()
    result = step()
    if isinstance(result, float):
        return result
    first = result
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if hasattr(first, "numpy"):
        first.numpy()
    return time.perf_counter() - started


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, rounded to the precision of a timing."""
    if len(values) < 2:
        middle = round(statistics.median(values), 4)
        return {"median": middle, "low": middle, "high": middle}
    low, middle, high = (float(np.percentile(values, share)) for share in (25, 50, 75))
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


def seconds_of(rounds: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Quartiles of each contestant's seconds."""
    return {name: quartiles([of_round[name] for of_round in rounds]) for name in rounds[0]}


def ratio(rounds: Sequence[dict[str, float]], one: str, other: str) -> dict[str, float]:
    """Quartiles of the seconds of one contestant over those of another in the same round."""
    return quartiles([of_round[one] / of_round[other] for of_round in rounds])


def ratio_line(name: str, ratios: dict[str, float]) -> str:
    """A ratio with its quartiles as a line of text."""
    return (
        f"{name}: {ratios['median']:.2f}  (quartiles {ratios['low']:.2f} to {ratios['high']:.2f})"
    )


def machine() -> dict[str, Any]:
    """The machine and its load."""
    from tfr_moe._compat import tf

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(models) or os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "devices": [d.device_type for d in tf.config.list_physical_devices()],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
    }


def write(result: dict[str, Any], path: Path | None) -> None:
    """Writes the result to `--json`."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
