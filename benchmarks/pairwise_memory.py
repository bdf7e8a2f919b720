"""Memory and time of pairwise losses with gradients on long lists, against TensorFlow Ranking's.

    python benchmarks/pairwise_memory.py --lists 32 --items 1000

Each runs in a separate process; memory is the peak of the process above that before the loss.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import Any


def measure(kind: str, lists: int, items: int, repeats: int, answers: Any) -> None:
    """Puts (megabytes, seconds a step) of one loss into the queue."""
    import numpy as np

    from tfr_moe import losses
    from tfr_moe._compat import tf, tfr

    loss = losses.get("ndcg_loss_2pp")
    if kind == "tfr":
        weight = tfr.keras.losses.NDCGLambdaWeight(smooth_fraction=1 / 11)
        loss = tfr.keras.losses.PairwiseLogisticLoss(lambda_weight=weight)

    @tf.function
    def step(labels: Any, logits: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits)
        return tape.gradient(value, logits)

    rng = np.random.default_rng(0)

    def batch(length: int) -> tuple[Any, Any]:
        shape = (lists, length)
        labels = rng.integers(0, 5, shape).astype(np.float32)
        return tf.constant(labels), tf.constant(rng.normal(size=shape).astype(np.float32))

    step(*batch(10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arguments = batch(items)
    step(*arguments)
    started = time.process_time()
    for _ in range(repeats):
        step(*arguments).numpy()
    seconds = (time.process_time() - started) / repeats
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    answers.put((peak / 1024, seconds))


def main() -> None:
    """Measures and prints both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=32)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    measured: dict[str, tuple[float, float] | None] = {}
    for kind in ("ours", "tfr"):
        answers = context.Queue()
        process = context.Process(
            target=measure,
            args=(kind, options.lists, options.items, options.repeats, answers),
        )
        process.start()
        process.join()
        # A process that ran out of memory has no answer.
        answer = measured[kind] = answers.get() if process.exitcode == 0 else None
        message = "ended without a result"
        if answer is not None:
            message = "{:.0f} MB above the start, {:.3f} s of processor a step".format(*answer)
        print(f"{kind}: {message}", flush=True)
    if measured["ours"] and measured["tfr"]:
        memory, seconds = (measured["tfr"][i] / measured["ours"][i] for i in (0, 1))
        print(f"TensorFlow Ranking over ours: memory {memory:.1f}, time {seconds:.1f}")


if __name__ == "__main__":
    main()
