"""Estimates hours per epoch on the first paper's training set from measured rates.

    python benchmarks/extrapolate.py --step fit_step.json --reading reading.json [--build FILE]

Xiao et al. train on 26,674,871 rows (Table II). From the JSON of `fit_step.py`, `reading.py` and
`build_throughput.py` follows the cost of an epoch on this machine. For other machines the rates are
scaled by the factors that the result lists:

16 cores   steps, parsing and building by the ratio of cores times --efficiency, 0.7 by default,
           since cores share their memory
one GPU    multiplications by --gpu-tflops times --gpu-share, 19.5 (an A100 in float32) and 0.4 by
           default; reading as on 16 cores
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from step_models import Size
from timing import write

ROWS = 26_674_871


def hours(seconds: float) -> float:
    return round(seconds / 3600, 3)


def training_seconds(step: dict[str, Any]) -> float:
    """An epoch at the measured seconds of a valid item."""
    size = Size(**step["sizes"])
    return ROWS / size.items * step["marks"]["seconds"]["N=10"]["median"]


def reading_seconds(reading: dict[str, Any]) -> float:
    """A pass over the rows at the measured rate; the lists that it was measured on have 30 each."""
    rate = reading["30 numerics"]["lists_per_second"]["packed"] * 30
    return ROWS / rate


def multiplications(step: dict[str, Any]) -> float:
    size = Size(**step["sizes"])
    return 6.0 * ROWS * (size.selected + size.adversarial) * size.products


def row(train: float, read: float, build: float | None) -> dict[str, Any]:
    bound = "training" if train > read else "reading"
    # Reading and training overlap: the slower of both is the epoch.
    result = {"training_hours": hours(train), "reading_hours": hours(read), "bound": bound}
    result["epoch_hours"] = hours(max(train, read))
    if build is not None:
        result["build_hours_once"] = hours(build)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--step", type=Path, required=True, help="JSON of fit_step.py")
    parser.add_argument("--reading", type=Path, required=True, help="JSON of reading.py")
    parser.add_argument("--build", type=Path, help="JSON of build_throughput.py, on one core")
    parser.add_argument("--efficiency", type=float, default=0.7)
    parser.add_argument("--gpu-tflops", type=float, default=19.5)
    parser.add_argument("--gpu-share", type=float, default=0.4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    step, reading = (json.loads(p.read_text()) for p in (arguments.step, arguments.reading))
    cores = step["machine"]["cores"]
    train, read = training_seconds(step), reading_seconds(reading)
    build = None
    if arguments.build is not None:
        layouts = json.loads(arguments.build.read_text())["layouts"]
        build = ROWS / layouts["packed"]["rows_per_cpu_second"]["pipeline"]
    faster = 16 / cores * arguments.efficiency
    gpu = multiplications(step) / (arguments.gpu_tflops * 1e12 * arguments.gpu_share)
    result: dict[str, Any] = {
        "rows": ROWS,
        "measured_on": step["machine"],
        "assumed": {
            "efficiency of 16 cores": arguments.efficiency,
            "GPU": f"{arguments.gpu_tflops} TFLOP/s in float32, {arguments.gpu_share:.0%} used",
        },
        "epochs": {
            f"here, {cores} cores": row(train, read, None if build is None else build / cores),
            "16 cores": row(
                train / faster,
                read / faster,
                None if build is None else build / (16 * arguments.efficiency),
            ),
            "one GPU, 16 cores": row(
                gpu,
                read / faster,
                None if build is None else build / (16 * arguments.efficiency),
            ),
        },
    }
    print(json.dumps(result, indent=1))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
