"""Estimates hours per epoch on the first paper's training set from measured rates.

    python benchmarks/extrapolate.py --step fit_step.json --reading reading.json [--build FILE]

Xiao et al. train on 26,674,871 rows (Table II). From the JSON of `fit_step.py`, `reading.py` and
`build_throughput.py` follows the cost of an epoch on this machine. For other machines the rates are
scaled by the factors that the result lists:

16 cores   steps, parsing and building by the ratio of cores times --efficiency, 0.7 by default,
           since cores share their memory
one GPU    multiplications by --gpu-tflops times --gpu-share, 19.5 (an A100 in float32) and 0.4 by
           default; reading as on 16 cores
workers    --workers machines like this one, 8 by default, which exchange gradients at --exchange
           GB/s, by default the measured 0.43 of two workers on loopback; each reads all records
a day      builds one of --days days, 30 by default, and trains a warm epoch on all of them
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from step_models import Size
from timing import write

ROWS = 26_674_871
STEPS = 10_000
"""Simulated steps of several workers."""


def hours(seconds: float) -> float:
    return round(seconds / 3600, 3)


def training_seconds(step: dict[str, Any]) -> float:
    """An epoch at the measured seconds of a valid item."""
    size = Size(**step["sizes"])
    return ROWS / size.items * step["marks"]["seconds"]["N=10"]["median"]


def workers_seconds(step: dict[str, Any], workers: int, exchange: float) -> float:
    """An epoch by machines like this one, each with batches of the measured size.

    A step waits for the slowest worker and for the gradients, which go round a ring: each worker
    sends 2 (W - 1) / W times their bytes, at `exchange` GB/s. Workers' times are drawn from a
    log-normal distribution with the measured median and quartiles.
    """
    size = Size(**step["sizes"])
    measured = step["marks"]["seconds"]["N=10"]
    sigma = np.log(measured["high"] / measured["low"]) / (2 * NormalDist().inv_cdf(0.75))
    normal = np.random.default_rng(0).standard_normal((STEPS, workers))
    slowest = measured["median"] * float(np.exp(sigma * normal.max(1)).mean())
    gradients = 4 * size.experts * size.products
    exchanged = 2 * (workers - 1) / workers * gradients / (exchange * 1e9)
    return ROWS / (size.items * workers) * (slowest + exchanged)


def reading_seconds(reading: dict[str, Any]) -> float:
    """A pass over the rows at the measured rate; the lists that it was measured on have 30 each."""
    rate = reading["30 numerics"]["lists_per_second"]["packed"] * 30
    return ROWS / rate


def multiplications(step: dict[str, Any]) -> float:
    size = Size(**step["sizes"])
    return 6.0 * ROWS * (size.selected + size.adversarial) * size.products


def row(train: float, read: float, build: float | None, faster: float = 1.0) -> dict[str, Any]:
    """Hours of the seconds of an epoch, and of a build that takes the part `1 / faster`."""
    bound = "training" if train > read else "reading"
    # Reading and training overlap: the slower of both is the epoch.
    result = {"training_hours": hours(train), "reading_hours": hours(read), "bound": bound}
    result["epoch_hours"] = hours(max(train, read))
    if build is not None:
        result["build_hours"] = hours(build / faster)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--step", type=Path, required=True, help="JSON of fit_step.py")
    parser.add_argument("--reading", type=Path, required=True, help="JSON of reading.py")
    parser.add_argument("--build", type=Path, help="JSON of build_throughput.py, on one core")
    parser.add_argument("--efficiency", type=float, default=0.7)
    parser.add_argument("--gpu-tflops", type=float, default=19.5)
    parser.add_argument("--gpu-share", type=float, default=0.4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--exchange", type=float, default=0.43, help="GB/s of gradients")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    step, reading = (json.loads(p.read_text()) for p in (arguments.step, arguments.reading))
    cores = step["machine"]["cores"]
    train, read = training_seconds(step), reading_seconds(reading)
    by_workers = workers_seconds(step, arguments.workers, arguments.exchange)
    faster = 16 / cores * arguments.efficiency
    build = None
    if arguments.build is not None:
        layouts = json.loads(arguments.build.read_text())["layouts"]
        build = ROWS / layouts["packed"]["rows_per_cpu_second"]["pipeline"] / cores
    gpu = multiplications(step) / (arguments.gpu_tflops * 1e12 * arguments.gpu_share)
    result: dict[str, Any] = {
        "rows": ROWS,
        "measured_on": step["machine"],
        "assumed": {
            "efficiency of 16 cores": arguments.efficiency,
            "GPU": f"{arguments.gpu_tflops} TFLOP/s in float32, {arguments.gpu_share:.0%} used",
            "exchange of gradients": f"{arguments.exchange} GB/s",
        },
        "epochs": {
            f"here, {cores} cores": row(train, read, build),
            "16 cores": row(train / faster, read / faster, build, faster),
            "one GPU, 16 cores": row(gpu, read / faster, build, faster),
            f"{arguments.workers} workers of {cores} cores": row(by_workers, read, build),
            f"a day of {arguments.days}, {cores} cores": row(train, read, build, arguments.days),
        },
    }
    print(json.dumps(result, indent=1))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
