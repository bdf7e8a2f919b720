"""Cost of listwise self-attention, against TFR's attention and by the length of the lists.

    python benchmarks/listwise_attention.py [--json FILE] [--quick]

Forward and backward over the same lists, half of whose positions are padding. Each contestant runs
once per round, in random order, and ratios are computed within the round. The contestants, each
with a linear score on top:

encoder       SelfAttentionEncoder: attention with heads of width dim / H, and a feed-forward part
wide heads    the same with heads as wide as the encoder, as TFR (and PRM) have them
TFR           tfr.keras.layers.DocumentInteractionAttention: wide heads, no feed-forward part
PyTorch       where torch is installed: the encoder of torch.nn.TransformerEncoderLayer, as allRank
              has it

Then the encoder on lists of 10 to 1,000 items, with about the same number of items in each batch.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import (
    machine,
    parser_of,
    quartiles,
    ratio,
    ratio_line,
    run_rounds,
    seconds_of,
    sizes_of,
    write,
)

from tfr_moe._compat import tf, tfr
from tfr_moe.layers import SelfAttentionEncoder

OURS, WIDE, THEIRS, TORCH = "encoder", "wide heads", "TFR", "PyTorch"
LENGTHS = (10, 30, 100, 300, 1000)


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--lists", type=int, default=32, help="lists in a batch")
    parser.add_argument("--slots", type=int, default=60, help="slots of a list, half of them valid")
    parser.add_argument("--width", type=int, default=136, help="width of the input vector")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--items", type=int, default=3000, help="in a batch of any length")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lists, arguments.slots, arguments.items, arguments.rounds = 2, 6, 1000, 3
    return arguments


def encoder_of(arguments: argparse.Namespace, head_dim: int | None = None) -> SelfAttentionEncoder:
    return SelfAttentionEncoder(
        arguments.dim,
        arguments.blocks,
        arguments.heads,
        head_dim,
        arguments.hidden,
        seed=arguments.seed,
    )


def batch(arguments: argparse.Namespace, lists: int, slots: int, valid: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(arguments.seed)
    items = tf.constant(rng.normal(size=[lists, slots, arguments.width]), tf.float32)
    return items, tf.constant(np.tile(np.arange(slots) < valid, [lists, 1]))


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


def torch_step(arguments: argparse.Namespace, items: Any, mask: Any) -> Callable[[], float] | None:
    """The same step in PyTorch with as many threads; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if threads:
        torch.set_num_threads(threads)
    layer = torch.nn.TransformerEncoderLayer(
        arguments.dim, arguments.heads, arguments.hidden, dropout=0.0, batch_first=True
    )
    model = torch.nn.ModuleList(
        [
            torch.nn.Linear(arguments.width, arguments.dim),
            torch.nn.TransformerEncoder(layer, arguments.blocks, enable_nested_tensor=False),
            torch.nn.Linear(arguments.dim, 1),
        ]
    )
    rows, padding = torch.tensor(items), torch.tensor(~mask)

    def step() -> float:
        started = time.perf_counter()
        model.zero_grad()
        first, encoder, last = model
        scores = last(encoder(first(rows), src_key_padding_mask=padding))[..., 0]
        scores.masked_fill(padding, 0.0).square().sum().backward()
        return time.perf_counter() - started

    return step


def contestants(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """A step of each."""
    slots = arguments.slots
    items, mask = batch(arguments, arguments.lists, slots, slots // 2)
    ours, wide = encoder_of(arguments), encoder_of(arguments, arguments.dim)
    theirs = tfr.keras.layers.DocumentInteractionAttention(
        arguments.heads, arguments.dim, arguments.blocks, dropout=0.0
    )
    torch = torch_step(arguments, items.numpy(), mask.numpy())
    return {
        **({} if torch is None else {TORCH: torch}),
        OURS: scored(ours, lambda: ours(items, mask=mask, training=True)),
        WIDE: scored(wide, lambda: wide(items, mask=mask, training=True)),
        THEIRS: scored(theirs, lambda: theirs((items, mask), training=True)),
    }


def by_length(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """A step on lists of each length."""
    steps = {}
    for length in LENGTHS:
        items, mask = batch(arguments, max(1, arguments.items // length), length, length)
        encoder = encoder_of(arguments)

        def call(encoder: Any = encoder, items: Any = items, mask: Any = mask) -> Any:
            return encoder(items, mask=mask, training=True)

        steps[_named(length)] = scored(encoder, call)
    return steps


def _named(length: int) -> str:
    return f"{length} items"


def growth(arguments: argparse.Namespace, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """By case: milliseconds for 1,000 items, and how many times those of the shortest lists."""

    def each(seconds: dict[str, float], length: int, name: str) -> float:
        items = max(1, arguments.items // length) * length
        return seconds[name] / items * 1e6

    shortest = LENGTHS[0]
    result = {}
    for length in LENGTHS:
        name = _named(length)
        costs = [each(of_round, length, name) for of_round in rounds]
        bases = [each(of_round, shortest, _named(shortest)) for of_round in rounds]
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
    pairs = [(OURS, THEIRS), (WIDE, THEIRS), *([(OURS, TORCH)] if TORCH in rounds[0] else [])]
    ratios = {f"{one} / {other}": ratio(rounds, one, other) for one, other in pairs}
    seconds = seconds_of(rounds)
    lengths = run_rounds(by_length(arguments), arguments.rounds, arguments.seed)
    sizes = sizes_of(arguments)
    result = {
        "machine": machine(),
        "sizes": sizes,
        "seconds": seconds,
        "ratios": ratios,
        "by_length": growth(arguments, lengths),
    }
    print(f"{result['machine']}\n{sizes}")
    for name, numbers in seconds.items():
        print(f"{name:<12} {numbers['median']:.3f} s for forward and backward")
    for name, numbers in ratios.items():
        print(ratio_line(name, numbers))
    for name, cost in result["by_length"].items():
        each, against = cost["milliseconds_per_1000_items"], cost["against_shortest"]
        print(
            f"{name:>24}: {each['median']:.1f} ms per 1,000 items, {against['median']:.2f} times "
            f"that of {LENGTHS[0]} ({against['low']:.2f} to {against['high']:.2f})"
        )
    write(result, arguments.json)


if __name__ == "__main__":
    main()
