"""Time and memory of evaluating many lists, against scoring them.

    python benchmarks/evaluation.py --data DATA --run RUN --lists 1000000

The lists of a split are read repeatedly, each time under new IDs, up to `--lists`. In one process,
after a warm-up: reading alone; reading and the forward pass; the whole evaluation. The ratio is
that of the evaluation to the forward pass with reading, which every forward pass needs; the ratio
without reading is printed too. Memory is the resident set, sampled during the evaluation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.baselines import open_run
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.evaluation.results import evaluate_lists
from tfr_moe.evaluation.scoring import score_dataset
from tfr_moe.metrics.per_list import ListBatch

WARM_UP = 20  # batches


def resident_megabytes() -> float:
    """Resident memory of this process, of Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def repeated(dataset: tf.data.Dataset, list_id: str, batches: int) -> tf.data.Dataset:
    """The given number of batches; later passes have new IDs."""

    def renamed(number: Any, element: Any) -> Any:
        features, labels, extras = element
        ids = tf.strings.join([extras[list_id], tf.strings.as_string(number)], "/")
        return features, labels, {**extras, list_id: ids}

    return dataset.repeat().enumerate().map(renamed).take(batches)


def seconds_of(dataset: tf.data.Dataset, infer: Any = None) -> float:
    """Time to read a data set, and to score it where there is a model."""
    started = time.perf_counter()
    for features, *_ in dataset:
        if infer is not None:
            infer(features)
    return time.perf_counter() - started


def watched(
    batches: Iterator[ListBatch], every: int, seen: list[tuple[int, float]]
) -> Iterator[ListBatch]:
    """The same batches, with memory sampled at intervals."""
    lists = 0
    for number, batch in enumerate(batches):
        lists += len(batch.list_ids)
        if number % every == 0:
            seen.append((lists, resident_megabytes()))
        yield batch


def measure(data: Path, run: Path, split: str, lists: int, batch_size: int) -> dict[str, Any]:
    """All numbers."""
    loaded, folder = open_run(run), DataFolder(data)
    builder = ElwcDatasetBuilder(folder, batch_size)
    name = loaded.schema.list_id
    plain = builder.build_evaluation_dataset(split)
    # The last batch of each pass is smaller.
    one_pass = folder.num_lists(split) or batch_size
    batches = -(-lists // one_pass) * -(-one_pass // batch_size)
    dataset = repeated(plain, name, batches)
    infer = loaded.score
    warm = repeated(plain, name, WARM_UP)
    seconds_of(warm, infer)
    evaluate_lists(score_dataset(infer, warm, loaded.schema))
    reading, forward = seconds_of(dataset), seconds_of(dataset, infer)
    memory: list[tuple[int, float]] = []
    started = time.perf_counter()
    scored = score_dataset(infer, dataset, loaded.schema)
    result = evaluate_lists(watched(scored, max(1, batches // 10), memory))
    evaluation = time.perf_counter() - started
    return {
        "lists": len(result),
        "reading_seconds": reading,
        "forward_seconds": forward,
        "evaluation_seconds": evaluation,
        "ratio": evaluation / forward,
        "ratio_without_reading": (evaluation - reading) / max(forward - reading, 1e-9),
        "resident_megabytes": memory,
        "after_megabytes": resident_megabytes(),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--lists", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured = measure(
        arguments.data, arguments.run, arguments.split, arguments.lists, arguments.batch_size
    )
    print(
        f"{measured['lists']:,} lists: reading {measured['reading_seconds']:.1f} s, "
        f"with the forward pass {measured['forward_seconds']:.1f} s, "
        f"evaluation {measured['evaluation_seconds']:.1f} s"
    )
    print(
        f"evaluation / forward pass: {measured['ratio']:.2f}; both without reading: "
        f"{measured['ratio_without_reading']:.2f}"
    )
    for lists, megabytes in measured["resident_megabytes"]:
        print(f"after {lists:>9,} lists: {megabytes:.0f} MB resident")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
