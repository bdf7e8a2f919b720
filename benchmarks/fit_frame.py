"""Time and memory of preparing a data frame for training, before the first step.

    python benchmarks/fit_frame.py --rows 1000000

Prints rows per second of schema inference and of `training_data` (grouping, split, vocabularies,
statistics, packing), and the peak memory of both over that of the frame: the growth of the resident
set of the process after the frame exists, plus the frame, divided by the frame.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfr_moe.data.frames import training_data
from tfr_moe.schema import FeatureSchema
from tfr_moe.tables import infer_schema

ITEMS = 20


def frame_of(rows: int) -> pd.DataFrame:
    """A search log with 20 items per list, its rows in random order."""
    rng = np.random.default_rng(0)
    lists = rows // ITEMS
    number = rng.permutation(np.repeat(np.arange(lists), ITEMS))
    sub = rng.integers(200, size=lists)[number]

    def text(prefix: str, values: np.ndarray) -> pd.Series:
        return pd.Series(values).astype(str).radd(prefix)

    return pd.DataFrame(
        {
            "search_id": text("search-", number),
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(number * 10, unit="s"),
            "top_category": text("top-", sub // 20),
            "sub_category": text("sub-", sub),
            "user_age": rng.integers(18, 80, lists)[number],
            "product_id": text("product-", rng.integers(50_000, size=len(number))),
            "brand": text("brand-", rng.integers(500, size=len(number))),
            "price": rng.lognormal(3.0, 1.0, len(number)),
            "rating": rng.random(len(number)) * 5,
            "sales": rng.integers(0, 1000, len(number)),
            "purchased": (rng.random(len(number)) < 0.05).astype(np.int64),
        }
    )


class PeakMemory(threading.Thread):
    """Samples the resident set of this process until `stop`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_bytes = self.peak = resident()
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.01):
            self.peak = max(self.peak, resident())

    def stop(self) -> int:
        """Growth since the start, in bytes."""
        self._done.set()
        self.join()
        return self.peak - self.start_bytes


def release_memory() -> None:
    """Returns what the frame's making left free to the system, so that its reuse is counted."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    options = parser.parse_args()
    frame = frame_of(options.rows)
    size = int(frame.memory_usage(deep=True).sum())
    roles: dict[str, Any] = {"list_id": "search_id", "label": "purchased", "time": "date"}
    # The first call imports pyarrow and TensorFlow.
    small = frame_of(2000)
    warm = FeatureSchema.model_validate(infer_schema(small, **roles).schema)
    training_data(small, None, warm, "run")
    release_memory()
    memory = PeakMemory()
    memory.start()
    cpu = time.process_time()
    started = time.perf_counter()
    schema = FeatureSchema.model_validate(infer_schema(frame, **roles).schema)
    inferred = time.perf_counter()
    data = training_data(frame, None, schema, "run")
    ended = time.perf_counter()
    cpu = time.process_time() - cpu
    growth = memory.stop()
    result = {
        "rows": len(frame),
        "lists": data.num_lists("train") + data.num_lists("validation"),
        "frame_megabytes": round(size / 1e6, 1),
        "inference_seconds": round(inferred - started, 2),
        "preparation_seconds": round(ended - inferred, 2),
        "rows_per_second": round(len(frame) / (ended - started)),
        "peak_over_frame": round((size + growth) / size, 2),
        "cpu_seconds": round(cpu, 2),
    }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
