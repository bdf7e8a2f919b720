"""What a sweep's cache is worth: a pass over the training data from memory and from the records.

    python benchmarks/sweep_cache.py --data DATA [--batch-size 128] [--rounds 5] [--json FILE]

A pass reads every batch as training reads it and throws it away. Both ways run in an order drawn anew each
round; the ratio is taken within a round, of CPU seconds and of seconds. Filling the cache happens once for
a whole sweep and is told apart.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.tuning.cache import SPLITS, CachedDatasetBuilder, load_split, write_cache


def read_all(builder: ElwcDatasetBuilder) -> tuple[float, float, int]:
    """(CPU seconds, seconds, lists) of a pass over the training split."""
    cpu, clock = time.process_time(), time.perf_counter()
    lists = 0
    for features, _ in builder.build_train_dataset():
        lists += next(iter(features.values())).shape[0]
    return time.process_time() - cpu, time.perf_counter() - clock, lists


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = DataFolder(arguments.data)
    found: dict[str, list[tuple[float, float, int]]] = {"records": [], "cache": []}
    with tempfile.TemporaryDirectory() as temporary:
        started = time.process_time()
        cache = write_cache(folder, Path(temporary) / "cache")
        splits = {split: load_split(cache, folder.schema, split) for split in SPLITS}
        filled = time.process_time() - started
        options: dict[str, Any] = {"batch_size": arguments.batch_size, "repeat": False}
        ways = {
            "records": ElwcDatasetBuilder(folder, **options),
            "cache": CachedDatasetBuilder(splits, folder, **options),
        }
        for number in range(arguments.rounds):
            order = random.Random(number).sample(list(ways), 2)
            for way in order:
                found[way].append(read_all(ways[way]))
    assert {lists for passes in found.values() for *_, lists in passes} == {found["cache"][0][2]}
    pairs = list(zip(found["records"], found["cache"], strict=True))
    report = {
        "lists": found["cache"][0][2],
        "fill_cpu_seconds": filled,
        **{
            f"{way}_cpu_seconds": statistics.median(passes[0] for passes in found[way])
            for way in found
        },
        "cpu_ratio": statistics.median(a[0] / b[0] for a, b in pairs),
        "time_ratio": statistics.median(a[1] / b[1] for a, b in pairs),
        "rounds": arguments.rounds,
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
