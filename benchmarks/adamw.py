"""Cost of an optimizer step, against Keras' AdamW and TensorFlow's Adam kernel.

    python benchmarks/adamw.py [--rounds 15] [--json FILE] [--quick]

Two updates are timed: the dense weights of N expert towers of 1024-512-256-1 over 300 inputs,
stacked as in `ExpertTowers`, with a given gradient; and an embedding table of 16 columns of
growing height, with a batch of 20,000 IDs. `kernel` is `tf.raw_ops.ResourceApplyAdam`,
which has no weight decay and no sparse form. Each contestant runs once per round, in
random order; ratios are computed within a round.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import machine, parser_of, ratio, run_rounds, seconds_of, write

from tfr_moe._compat import tf
from tfr_moe.training.optimizers import FusedAdamW

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


def dense(experts: int, rounds: int) -> dict[str, Any]:
    sample = tower_weights(experts)
    gradients = [tf.random.normal(weight.shape, stddev=0.01) for weight in sample]
    common: dict[str, Any] = {"learning_rate": 1e-4, "weight_decay": 0.01}
    ways = {
        "kernel": kernel_step(sample, gradients),
        "ours": keras_step(FusedAdamW(**common), tower_weights(experts), gradients),
        "keras": keras_step(tf.keras.optimizers.AdamW(**common), tower_weights(experts), gradients),
    }
    results = run_rounds(ways, rounds, seed=1)
    ratios = {name: ratio(results, name, "kernel") for name in ways if name != "kernel"}
    return {"kernel_ms": 1e3 * seconds_of(results)["kernel"]["median"], **ratios}


def sparse(rows: int, rounds: int, with_keras: bool) -> dict[str, float]:
    """Milliseconds of a step over a table of that number of rows."""
    ids = tf.constant(np.random.default_rng(0).integers(0, rows, IDS))
    slices = tf.IndexedSlices(tf.random.normal([IDS, 16]), ids, tf.constant([rows, 16]))
    optimizers = {"ours": FusedAdamW(1e-4)}
    if with_keras:
        optimizers["keras"] = tf.keras.optimizers.AdamW(1e-4)
    ways = {
        name: keras_step(optimizer, [tf.Variable(tf.zeros([rows, 16]))], [slices])
        for name, optimizer in optimizers.items()
    }
    seconds_by_way = seconds_of(run_rounds(ways, rounds, seed=1))
    return {name: 1e3 * seconds["median"] for name, seconds in seconds_by_way.items()}


def main() -> None:
    parser = parser_of(__doc__)
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    sizes = (10_000, 100_000) if arguments.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    report = {
        "machine": machine(),
        "dense": {f"N={n}": dense(n, rounds) for n in ((2,) if arguments.quick else (10, 64))},
        "embedding_ms": {f"{n:,}": sparse(n, rounds, n <= 1_000_000) for n in sizes},
    }
    print(json.dumps(report, indent=1))
    write(report, arguments.json)


if __name__ == "__main__":
    main()
