"""What listwise self-attention costs: against TFR's own attention, and by the length of the lists.

    python benchmarks/listwise_attention.py [--json FILE] [--quick]

Forward and backward over the same lists, of which half the places are padding. In every round each
contestant runs once, in an order drawn anew, and ratios are taken within the round. The contestants, each
with a linear score on top:

encoder       SelfAttentionEncoder: attention with heads of width dim / H, and a feed-forward part
wide heads    the same with heads as wide as the encoder, as TFR (and PRM) have them
TFR           tfr.keras.layers.DocumentInteractionAttention: wide heads, no feed-forward part

Then the encoder on lists of 10 to 1,000 items, with about the same number of items in each batch: directly,
and by way of learned points.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from selected_experts import machine, quartiles, run_rounds

from tfr_moe._compat import tf, tfr
from tfr_moe.layers import SelfAttentionEncoder

OURS, WIDE, THEIRS = "encoder", "wide heads", "TFR"
LENGTHS = (10, 30, 100, 300, 1000)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lists", type=int, default=32, help="lists in a batch")
    parser.add_argument(
        "--places", type=int, default=60, help="places of a list, half of them valid"
    )
    parser.add_argument("--width", type=int, default=136, help="width of the input vector")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--points", type=int, default=16, help="learned points")
    parser.add_argument("--items", type=int, default=3000, help="in a batch of any length")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lists, arguments.places, arguments.items, arguments.rounds = 2, 6, 1000, 3
    return arguments


def encoder_of(
    arguments: argparse.Namespace, head_dim: int | None = None, points: int | None = None
) -> SelfAttentionEncoder:
    return SelfAttentionEncoder(
        arguments.dim,
        arguments.blocks,
        arguments.heads,
        head_dim,
        arguments.hidden,
        num_points=points,
        seed=arguments.seed,
    )


def batch(arguments: argparse.Namespace, lists: int, places: int, valid: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(arguments.seed)
    items = tf.constant(rng.normal(size=[lists, places, arguments.width]), tf.float32)
    return items, tf.constant(np.tile(np.arange(places) < valid, [lists, 1]))


def scored(layer: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """One step: scores, and the gradients of all weights."""
    output = tf.keras.layers.Dense(1)
    output(call())

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(output(call())))
        return loss, tape.gradient(loss, [*layer.trainable_variables, *output.trainable_variables])

    return step


def contestants(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """A step of each."""
    places = arguments.places
    items, mask = batch(arguments, arguments.lists, places, places // 2)
    ours, wide = encoder_of(arguments), encoder_of(arguments, arguments.dim)
    theirs = tfr.keras.layers.DocumentInteractionAttention(
        arguments.heads, arguments.dim, arguments.blocks, dropout=0.0
    )
    return {
        OURS: scored(ours, lambda: ours(items, mask=mask, training=True)),
        WIDE: scored(wide, lambda: wide(items, mask=mask, training=True)),
        THEIRS: scored(theirs, lambda: theirs((items, mask), training=True)),
    }


def by_length(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """A step on lists of each length, directly and by way of points."""
    steps = {}
    for length, points in itertools.product(LENGTHS, (None, arguments.points)):
        items, mask = batch(arguments, max(1, arguments.items // length), length, length)
        encoder = encoder_of(arguments, points=points)

        def call(encoder: Any = encoder, items: Any = items, mask: Any = mask) -> Any:
            return encoder(items, mask=mask, training=True)

        steps[_named(length, points)] = scored(encoder, call)
    return steps


def _named(length: int, points: int | None) -> str:
    return f"{length} items" if points is None else f"{length} items by {points} points"


def growth(arguments: argparse.Namespace, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """By case: milliseconds for 1,000 items, and how many times those of the shortest lists."""

    def each(found: dict[str, float], length: int, name: str) -> float:
        items = max(1, arguments.items // length) * length
        return found[name] / items * 1e6

    shortest = LENGTHS[0]
    result = {}
    for length, points in itertools.product(LENGTHS, (None, arguments.points)):
        name = _named(length, points)
        costs = [each(found, length, name) for found in rounds]
        bases = [each(found, shortest, _named(shortest, None)) for found in rounds]
        result[name] = {
            "milliseconds_per_1000_items": quartiles(costs),
            "against_shortest": quartiles([c / b for c, b in zip(costs, bases, strict=True)]),
        }
    return result


def main() -> None:
    arguments = parse_arguments()
    # That each contestant is traced anew is meant.
    tf.get_logger().setLevel("ERROR")
    rounds = run_rounds(contestants(arguments), arguments.rounds, arguments.seed)
    ratios = {
        f"{one} / {THEIRS}": quartiles([r[one] / r[THEIRS] for r in rounds]) for one in (OURS, WIDE)
    }
    seconds = {name: quartiles([r[name] for r in rounds]) for name in rounds[0]}
    lengths = run_rounds(by_length(arguments), arguments.rounds, arguments.seed)
    sizes = {k: v for k, v in vars(arguments).items() if k not in ("json", "quick")}
    result = {
        "machine": machine(),
        "sizes": sizes,
        "seconds": seconds,
        "ratios": ratios,
        "by_length": growth(arguments, lengths),
    }
    print(f"{result['machine']}\n{sizes}")
    for name, found in seconds.items():
        print(f"{name:<12} {found['median']:.3f} s for forward and backward")
    for name, ratio in ratios.items():
        print(f"{name:<18} {ratio['median']:.2f}  ({ratio['low']:.2f} to {ratio['high']:.2f})")
    for name, cost in result["by_length"].items():
        each, against = cost["milliseconds_per_1000_items"], cost["against_shortest"]
        print(
            f"{name:>24}: {each['median']:.1f} ms per 1,000 items, {against['median']:.2f} times "
            f"that of {LENGTHS[0]} ({against['low']:.2f} to {against['high']:.2f})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
