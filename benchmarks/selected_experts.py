"""Cost of computing only the selected experts, forward and backward, against alternatives.

    python benchmarks/selected_experts.py [--json FILE] [--quick]

Each contestant runs once per round, in random order, and ratios are computed within the round, so
that a busy machine slows all alike; medians and quartiles over the rounds are printed. The
contestants, over the same lists, half of whose positions are padding:

selected      ExpertTowers: the K + D experts of each list, on valid items
one tower     ItemTower: a single tower on valid items; (K + D) times as fast would be perfect
all, valid    all N experts on valid items by one stacked matrix product; N / (K + D) as much work
all, padded   the same on every position, as a mixture without a mask does
loop          the K + D experts by a loop over all N, each on the valid items that a mask picks for
              it
skewed        ExpertTowers, where expert 0 has nine in ten lists and expert 1 none
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import machine, parser_of, ratio, ratio_line, run_rounds, seconds_of, sizes_of, write

from tfr_moe._compat import tf
from tfr_moe.layers import ExpertTowers, ItemTower

SELECTED = "selected"


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--lists", type=int, default=32, help="lists in a batch")
    parser.add_argument("--slots", type=int, default=60, help="slots of a list, half of them valid")
    parser.add_argument("--width", type=int, default=300, help="width of the input vector")
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--experts", type=int, default=10, help="N")
    parser.add_argument("--selected", type=int, default=5, help="K + D experts for each list")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lists, arguments.width, arguments.hidden, arguments.rounds = 4, 20, [32, 16], 3
    if not 1 <= arguments.selected <= arguments.experts - 2:
        parser.error("--selected must be in 1 .. --experts - 2")
    return arguments


def all_experts(towers: ExpertTowers, rows: Any) -> Any:
    """Rows [T, n] through every tower by stacked matrix products -> [N, T, 1]."""
    hidden = rows[tf.newaxis]
    for depth, (kernel, bias) in enumerate(zip(towers.kernels, towers.biases, strict=True)):
        hidden = tf.matmul(hidden, kernel) + bias[:, tf.newaxis, :]
        if depth < len(towers.kernels) - 1:
            hidden = tf.nn.relu(hidden)
    return hidden


def by_loop(towers: ExpertTowers, rows: Any, chosen: Any) -> Any:
    """Rows [T, n] and their experts [T, S] -> [T, S], expert by expert."""
    logits = tf.zeros(tf.shape(chosen))
    for expert in range(towers.num_experts):
        indices = tf.where(chosen == expert)
        hidden = tf.gather(rows, indices[:, 0])
        for depth, (kernel, bias) in enumerate(zip(towers.kernels, towers.biases, strict=True)):
            hidden = tf.matmul(hidden, kernel[expert]) + bias[expert]
            if depth < len(towers.kernels) - 1:
                hidden = tf.nn.relu(hidden)
        logits = tf.tensor_scatter_nd_update(logits, indices, hidden[:, 0])
    return logits


def skewed(order: Any, selected: int) -> Any:
    """Choices [B, S] of which nine in ten hold expert 0, and none expert 1."""
    others = np.array([row[row > 1][:selected] for row in order])
    others[: int(0.9 * len(others)), 0] = 0
    return tf.constant(others, tf.int32)


def contestants(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Each computes logits and the gradients of all its weights and of the input."""
    rng = np.random.default_rng(arguments.seed)
    lists, slots, width = arguments.lists, arguments.slots, arguments.width
    items = tf.constant(rng.normal(size=[lists, slots, width]), tf.float32)
    mask = tf.constant(np.tile(np.arange(slots) < slots // 2, [lists, 1]))
    order = np.argsort(rng.random([lists, arguments.experts]), axis=1)
    chosen = tf.constant(order[:, : arguments.selected], tf.int32)
    uneven = skewed(order, arguments.selected)
    of_rows = tf.gather(chosen, tf.where(mask)[:, 0])
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
        "loop": (towers, lambda: by_loop(towers, tf.boolean_mask(items, mask), of_rows)),
        "skewed": (towers, lambda: towers(items, uneven, mask=mask)),
    }
    return {name: with_gradient(layer, forward) for name, (layer, forward) in forwards.items()}


def main() -> None:
    arguments = parse_arguments()
    rounds = run_rounds(contestants(arguments), arguments.rounds, arguments.seed)
    seconds = seconds_of(rounds)
    ratios = {name: ratio(rounds, SELECTED, name) for name in rounds[0] if name != SELECTED}
    sizes = sizes_of(arguments)
    result = {"machine": machine(), "sizes": sizes, "seconds": seconds, "ratios": ratios}
    print(f"{result['machine']}\n{sizes}")
    print(f"{SELECTED}: median {seconds[SELECTED]['median']:.3f} s for forward and backward")
    for name, numbers in ratios.items():
        print(ratio_line(f"{SELECTED} / {name}", numbers))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
