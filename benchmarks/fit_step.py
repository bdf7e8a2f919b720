"""Cost of a training step of Keras' `fit`: features, gate, towers, losses, AdamW.

    python benchmarks/fit_step.py [--section marks|growth|others|dispatch] [--json FILE] [--quick]

marks     selected experts against one tower, share of the machine's float32 matmul peak, N = 64
          over N = 10, bfloat16 against float32, beside the same ratio of a plain matmul
growth    a step by N, K, list length and batch, each against the first of its row
others    against TFR's own DNN scorer, and an MMoE of Keras' Dense layers, with Keras' AdamW
dispatch  sorted against auto, grouped, and grouped compiled by XLA

`fit` is called repeatedly with one batch; the first step of a call is not timed. Contestants take
turns, see `timing`. The command is the same on a GPU; `machine` in the result lists the devices.
"""

from __future__ import annotations

import gc
from typing import Any

from step_models import QUICK, Size, dense_mmoe, fit_step, ours, tfr_dnn
from timing import machine, parser_of, quartiles, ratio, ratio_line, run_rounds, seconds_of, write

from tfr_moe._compat import tf

SECTIONS = ("marks", "growth", "others", "dispatch")
MOE = "adv_hsc_moe"
PEAK = "matmul"
HALF_PEAK = "matmul bfloat16"


def marks(base: Size, arguments: Any) -> dict[str, Any]:
    side = 256 if arguments.quick else 4096
    squares = {
        PEAK: tf.random.normal([side, side]),
        HALF_PEAK: tf.cast(tf.random.normal([side, side]), tf.bfloat16),
    }
    steps = {
        **{name: _product(square) for name, square in squares.items()},
        "one tower": fit_step(ours(base, "dnn"), base),
        "N=10": fit_step(ours(base, MOE), base),
        "N=10 bfloat16": fit_step(ours(base, MOE, precision="mixed_bfloat16"), base),
    }
    rounds = run_rounds(steps, arguments.rounds, arguments.seed)
    peak = 2 * side**3
    # Forward once, backward twice: by the weights and by the input.
    useful = 6 * base.items * (base.selected + base.adversarial) * base.products
    shares = [(useful / r["N=10"]) / (peak / r[PEAK]) for r in rounds]
    ratios = {
        "seconds": seconds_of(rounds),
        "N=10 / one tower": ratio(rounds, "N=10", "one tower"),
        "float32 / bfloat16": ratio(rounds, "N=10", "N=10 bfloat16"),
        "matmul, float32 / bfloat16": ratio(rounds, PEAK, HALF_PEAK),
        "share of matmul peak": quartiles(shares),
        "matmul_gflops": round(peak / seconds_of(rounds)[PEAK]["median"] / 1e9, 1),
    }
    fewer = base.lists if arguments.quick else max(1, base.lists // 4)
    for lists in {base.lists, fewer}:
        ratios[f"N=64 / N=10, B={lists}"] = _against_ten(base._replace(lists=lists), arguments)
    return ratios


def _product(square: Any) -> Any:
    # One number of the product is fetched, so that copying it is not measured.
    return tf.function(lambda: tf.cast(tf.matmul(square, square)[0, 0], tf.float32))


def _against_ten(size: Size, arguments: Any) -> dict[str, float]:
    steps = {n: fit_step(ours(size._replace(experts=n), MOE), size) for n in (10, 64)}
    named = {f"N={n}": step for n, step in steps.items()}
    against = ratio(run_rounds(named, arguments.rounds, arguments.seed), "N=64", "N=10")
    gc.collect()
    return against


def growth(base: Size, arguments: Any) -> dict[str, Any]:
    rows: dict[str, list[tuple[int, Size]]] = {
        "N": [(n, base._replace(experts=n)) for n in (10, 16, 32, 64, 128)],
        "K": [(k, base._replace(selected=k, experts=16)) for k in (1, 2, 4, 8)],
        "list length": [(n, base._replace(slots=n)) for n in (20, 60, 120, 240)],
        "batch": [(n, base._replace(lists=n)) for n in (16, 32, 64, 128)],
    }
    if arguments.quick:
        rows = {name: row[:2] for name, row in rows.items()}
    growths = {}
    for name, row in rows.items():
        steps = {str(value): fit_step(ours(size, MOE), size) for value, size in row}
        rounds = run_rounds(steps, arguments.rounds, arguments.seed)
        first = str(row[0][0])
        growths[name] = {
            value: {"seconds": quartile, "ratio": ratio(rounds, value, first)}
            for value, quartile in seconds_of(rounds).items()
        }
        del steps
        gc.collect()
    return growths


def others(base: Size, arguments: Any) -> dict[str, Any]:
    steps = {
        "dnn": fit_step(ours(base, "dnn"), base),
        MOE: fit_step(ours(base, MOE), base),
        "tfr_dnn": fit_step(tfr_dnn(base), base),
        "dense_mmoe": fit_step(dense_mmoe(base), base),
    }
    rounds = run_rounds(steps, arguments.rounds, arguments.seed)
    return {
        "seconds": seconds_of(rounds),
        "dnn / tfr_dnn": ratio(rounds, "dnn", "tfr_dnn"),
        f"{MOE} / dense_mmoe": ratio(rounds, MOE, "dense_mmoe"),
        f"{MOE} / tfr_dnn": ratio(rounds, MOE, "tfr_dnn"),
    }


def dispatch(base: Size, arguments: Any) -> dict[str, Any]:
    ways = {
        "sorted": {"dispatch": "sorted"},
        "auto": {"dispatch": "auto"},
        "grouped": {"dispatch": "grouped"},
    }
    steps = {name: fit_step(ours(base, MOE, **way), base) for name, way in ways.items()}
    rounds = run_rounds(steps, arguments.rounds, arguments.seed)
    others = [name for name in ways if name != "sorted"]
    return {
        "seconds": seconds_of(rounds),
        **{f"{name} / sorted": ratio(rounds, name, "sorted") for name in others},
    }


def main() -> None:
    parser = parser_of(__doc__, rounds=9)
    parser.add_argument("--section", action="append", choices=SECTIONS, help="all by default")
    parser.add_argument("--lists", type=int, default=128, help="lists of a batch, B")
    arguments = parser.parse_args()
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    base = QUICK if arguments.quick else Size(lists=arguments.lists)
    result: dict[str, Any] = {"machine": machine(), "sizes": base._asdict()}
    print(result["machine"], result["sizes"], sep="\n")
    for section in arguments.section or SECTIONS:
        numbers = result[section] = globals()[section](base, arguments)
        for name, value in numbers.items():
            print(
                ratio_line(name, value)
                if isinstance(value, dict) and "median" in value
                else f"{name}: {value}"
            )
        write(result, arguments.json)


if __name__ == "__main__":
    main()
