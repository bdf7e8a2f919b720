"""What a step of the optimizer costs, against Keras' AdamW and TensorFlow's own kernel of Adam.

    python benchmarks/adamw.py [--rounds 15] [--json FILE] [--quick]

Two things are updated. The dense weights of N expert towers of 1024-512-256-1 over 300 inputs, stacked as in
`ExpertTowers`, by a gradient that is there already. And an embedding table of 16 columns, by a batch of
20,000 ids, as its rows grow. `kernel` is `tf.raw_ops.ResourceApplyAdam`, which has no weight decay and
no sparse form. All ways run once a round, in an order drawn anew; ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.training.adamw import FusedAdamW

WIDTHS = (300, 1024, 512, 256, 1)
IDS = 20_000


def tower_weights(experts: int) -> list[tf.Variable]:
    shapes: list[tuple[int, ...]] = []
    for before, after in itertools.pairwise(WIDTHS):
        shapes += [(experts, before, after), (experts, after)]
    return [tf.Variable(tf.random.normal(shape)) for shape in shapes]


def keras_step(optimizer: Any, weights: list[tf.Variable], gradients: list[Any]) -> Callable:
    optimizer.build(weights)

    @tf.function
    def step() -> None:
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    return step


def kernel_step(weights: list[tf.Variable], gradients: list[Any]) -> Callable:
    slots = [(tf.Variable(tf.zeros_like(w)), tf.Variable(tf.zeros_like(w))) for w in weights]

    @tf.function
    def step() -> None:
        for weight, (m, v), gradient in zip(weights, slots, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=0.9,
                beta2_power=0.999,
                lr=1e-4,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=gradient,
            )

    return step


def timed(ways: dict[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round."""
    for step in ways.values():
        step(), step()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in random.Random(number).sample(list(ways), len(ways)):
            started = time.perf_counter()
            ways[name]()
            found[name].append(time.perf_counter() - started)
    return found


def ratios(found: dict[str, list[float]], base: str) -> dict[str, Any]:
    """Median and quartiles of each way's seconds over those of `base`, and the base's seconds."""
    result: dict[str, Any] = {f"{base}_ms": 1e3 * statistics.median(found[base])}
    for name, seconds in found.items():
        if name != base:
            within = [a / b for a, b in zip(seconds, found[base], strict=True)]
            low, middle, high = np.percentile(within, [25, 50, 75])
            result[name] = {"ratio": middle, "quartiles": [low, high]}
    return result


def dense(experts: int, rounds: int) -> dict[str, Any]:
    sample = tower_weights(experts)
    gradients = [tf.random.normal(weight.shape, stddev=0.01) for weight in sample]
    common = {"learning_rate": 1e-4, "weight_decay": 0.01}
    ways = {
        "kernel": kernel_step(sample, gradients),
        "ours": keras_step(FusedAdamW(**common), tower_weights(experts), gradients),
        "keras": keras_step(tf.keras.optimizers.AdamW(**common), tower_weights(experts), gradients),
    }
    return ratios(timed(ways, rounds), "kernel")


def sparse(rows: int, rounds: int, with_keras: bool) -> dict[str, float]:
    """Milliseconds of a step over a table of so many rows."""
    ids = tf.constant(np.random.default_rng(0).integers(0, rows, IDS))
    slices = tf.IndexedSlices(tf.random.normal([IDS, 16]), ids, tf.constant([rows, 16]))
    optimizers = {"ours": FusedAdamW(1e-4)}
    if with_keras:
        optimizers["keras"] = tf.keras.optimizers.AdamW(1e-4)
    ways = {
        name: keras_step(optimizer, [tf.Variable(tf.zeros([rows, 16]))], [slices])
        for name, optimizer in optimizers.items()
    }
    found = timed(ways, rounds)
    return {name: 1e3 * statistics.median(seconds) for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    sizes = (10_000, 100_000) if arguments.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    report = {
        "dense": {f"N={n}": dense(n, rounds) for n in ((2,) if arguments.quick else (10, 64))},
        "embedding_ms": {f"{n:,}": sparse(n, rounds, n <= 1_000_000) for n in sizes},
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
