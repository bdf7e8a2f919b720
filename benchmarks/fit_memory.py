"""Memory of a training step of Keras' `fit`, by N, K, list length and batch.

    python benchmarks/fit_memory.py [--json FILE] [--quick]

Each case trains three steps in a separate process. The result is its peak resident memory above
that of a process without a model, beside the necessary memory: weights, gradients and the two
moments of AdamW, 16 bytes a parameter.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import Any

from step_models import QUICK, Size, fit_step, ours
from timing import machine, parser_of, write

MODEL = "adv_hsc_moe"


def peak() -> float:
    """Peak resident megabytes so far."""
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest * (1 if sys.platform == "darwin" else 1024) / 1e6


def case(size: Size, settings: dict[str, Any]) -> dict[str, Any]:
    """Run in a child."""
    before = peak()
    model = ours(size, MODEL, **settings)
    fit_step(model, size)()
    parameters = model.count_params()
    return {
        "parameters": parameters,
        "megabytes": round(peak() - before),
        "of_parameters": round(16 * parameters / 1e6),
    }


def in_child(size: Size, settings: dict[str, Any]) -> dict[str, Any]:
    job = json.dumps([size._asdict(), settings])
    done = subprocess.run(
        [sys.executable, __file__, "--case", job], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        size, settings = json.loads(arguments.case)
        print(json.dumps(case(Size(**size), settings)))
        return
    base = QUICK if arguments.quick else Size()
    rows: dict[str, dict[str, tuple[Size, dict[str, Any]]]] = {
        "N": {str(n): (base._replace(experts=n), {}) for n in (10, 64, 128)},
        "K": {str(k): (base._replace(selected=k), {}) for k in (1, 4, 8)},
        "list length": {str(n): (base._replace(slots=n), {}) for n in (30, 60, 240)},
        "batch": {str(b): (base._replace(lists=b), {}) for b in (32, 128, 512)},
        "kind": {
            "bfloat16": (base, {"precision": "mixed_bfloat16"}),
            "capacity": (base, {"dispatch": "grouped"}),
        },
    }
    if arguments.quick:
        rows = {"N": rows["N"]}
    result: dict[str, Any] = {"machine": machine(), "sizes": base._asdict()}
    for name, cases in rows.items():
        result[name] = {value: in_child(*what) for value, what in cases.items()}
        for value, sizes in result[name].items():
            print(
                f"{name} {value}: {sizes['megabytes']} MB "
                f"({sizes['of_parameters']} MB of parameters)"
            )
        write(result, arguments.json)


if __name__ == "__main__":
    main()
