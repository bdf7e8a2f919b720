"""Gain of a sweep's cache: a pass over the training data from memory and from the records.

    python benchmarks/sweep_cache.py --data DATA [--batch-size 128] [--rounds 5] [--json FILE]

A pass reads every batch as training reads it and discards it; passes take turns, see `timing`.
Ratios are of CPU seconds. Filling the cache happens once per sweep and is reported separately.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import machine, parser_of, ratio, run_rounds, seconds_of, write

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.cache import SPLITS, in_memory, map_split, write_parsed


def read_all(builder: ElwcDatasetBuilder) -> Callable[[], float]:
    """Returns a function that reads the training split and returns the CPU seconds."""

    def read() -> float:
        started = time.process_time()
        for _ in builder.build_train_dataset():
            pass
        return time.process_time() - started

    return read


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    rounds_to_do = 2 if arguments.quick else arguments.rounds
    folder = DataFolder(arguments.data)
    with tempfile.TemporaryDirectory() as temporary:
        started = time.process_time()
        cache = write_parsed(folder, Path(temporary) / "cache")
        splits = {split: in_memory(map_split(cache, folder.schema, split)) for split in SPLITS}
        filled = time.process_time() - started
        options: dict[str, Any] = {"batch_size": arguments.batch_size, "repeat": False}
        ways = {
            "records": read_all(ElwcDatasetBuilder(folder, **options)),
            "cache": read_all(ElwcDatasetBuilder(folder.with_splits(splits), **options)),
        }
        rounds = run_rounds(ways, rounds_to_do, arguments.seed, warm_up=0)
    report = {
        "machine": machine(),
        "lists": folder.num_lists("train"),
        "fill_cpu_seconds": filled,
        "cpu_seconds": seconds_of(rounds),
        "records / cache": ratio(rounds, "records", "cache"),
    }
    print(json.dumps(report, indent=1))
    write(report, arguments.json)


if __name__ == "__main__":
    main()
