"""What it costs to compute the selected experts only: forward and backward, against three others.

    python benchmarks/selected_experts.py [--json FILE] [--quick]

In every round each contestant runs once, in an order drawn anew, and the ratio is taken within the
round; medians and quartiles over the rounds are printed. So a machine that is busy for a while slows all
of them alike. The contestants, over the same lists, of which half the places are padding:

selected      ExpertTowers: the K + D experts of each list, on valid items
one tower     ItemTower: a single tower on valid items; (K + D) times as fast would be perfect
all, valid    all N experts on valid items by one stacked matrix product; N / (K + D) as much work
all, padded   the same on every place, as a mixture does that knows no mask
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.layers import ExpertTowers, ItemTower

SELECTED = "selected"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lists", type=int, default=32, help="lists in a batch")
    parser.add_argument(
        "--places", type=int, default=60, help="places of a list, half of them valid"
    )
    parser.add_argument("--width", type=int, default=300, help="width of the input vector")
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--experts", type=int, default=10, help="N")
    parser.add_argument("--selected", type=int, default=5, help="K + D experts for each list")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lists, arguments.width, arguments.hidden, arguments.rounds = 4, 20, [32, 16], 3
    if not 1 <= arguments.selected <= arguments.experts:
        parser.error("--selected must be in 1 .. --experts")
    return arguments


def all_experts(towers: ExpertTowers, rows: Any) -> Any:
    """Rows [T, n] through every tower by stacked matrix products -> [N, T, 1]."""
    hidden = rows[tf.newaxis]
    for depth, (kernel, bias) in enumerate(zip(towers.kernels, towers.biases, strict=True)):
        hidden = tf.matmul(hidden, kernel) + bias[:, tf.newaxis, :]
        if depth < len(towers.kernels) - 1:
            hidden = tf.nn.relu(hidden)
    return hidden


def contestants(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Each computes logits and the gradients of all its weights and of the input."""
    rng = np.random.default_rng(arguments.seed)
    lists, places, width = arguments.lists, arguments.places, arguments.width
    items = tf.constant(rng.normal(size=[lists, places, width]), tf.float32)
    mask = tf.constant(np.tile(np.arange(places) < places // 2, [lists, 1]))
    order = np.argsort(rng.random([lists, arguments.experts]), axis=1)
    chosen = tf.constant(order[:, : arguments.selected], tf.int32)
    towers = ExpertTowers(arguments.experts, arguments.hidden, seed=1)
    single = ItemTower(arguments.hidden, seed=1)
    towers.build(items.shape)
    single(items, mask=mask)

    def with_gradient(layer: Any, forward: Callable[[], Any]) -> Callable[[], Any]:
        @tf.function
        def step() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(items)
                loss = tf.reduce_sum(tf.square(forward()))
            return loss, tape.gradient(loss, [*layer.trainable_variables, items])

        return step

    forwards: dict[str, tuple[Any, Callable[[], Any]]] = {
        SELECTED: (towers, lambda: towers(items, chosen, mask=mask)),
        "one tower": (single, lambda: single(items, mask=mask)),
        "all, valid": (towers, lambda: all_experts(towers, tf.boolean_mask(items, mask))),
        "all, padded": (towers, lambda: all_experts(towers, tf.reshape(items, [-1, width]))),
    }
    return {name: with_gradient(layer, forward) for name, (layer, forward) in forwards.items()}


def run_rounds(
    steps: dict[str, Callable[[], Any]], rounds: int, seed: int
) -> list[dict[str, float]]:
    """Seconds of every contestant in every round."""
    shuffle = random.Random(seed)
    for step in steps.values():
        step()
        step()
    found = []
    for _ in range(rounds):
        seconds = {}
        for name in shuffle.sample(list(steps), len(steps)):
            started = time.perf_counter()
            loss, _gradients = steps[name]()
            loss.numpy()
            seconds[name] = time.perf_counter() - started
        found.append(seconds)
    return found


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles, rounded to what a timing can tell."""
    low, _, high = statistics.quantiles(values, n=4)
    median = statistics.median(values)
    return {"median": round(median, 4), "low": round(low, 4), "high": round(high, 4)}


def machine() -> dict[str, Any]:
    """Where it ran."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(models) or None,
        "devices": [d.device_type for d in tf.config.list_physical_devices()],
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
    }


def main() -> None:
    arguments = parse_arguments()
    rounds = run_rounds(contestants(arguments), arguments.rounds, arguments.seed)
    seconds = {name: quartiles([r[name] for r in rounds]) for name in rounds[0]}
    ratios = {
        name: quartiles([r[SELECTED] / r[name] for r in rounds])
        for name in rounds[0]
        if name != SELECTED
    }
    sizes = {k: v for k, v in vars(arguments).items() if k not in ("json", "quick")}
    result = {"machine": machine(), "sizes": sizes, "seconds": seconds, "ratios": ratios}
    print(f"{result['machine']}\n{sizes}")
    print(f"{SELECTED}: median {seconds[SELECTED]['median']:.3f} s for forward and backward")
    for name, ratio in ratios.items():
        print(
            f"{SELECTED} / {name:<12} {ratio['median']:.2f}  "
            f"(quartiles {ratio['low']:.2f} to {ratio['high']:.2f})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
