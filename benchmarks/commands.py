"""Seconds of commands from cold, as a user waits for them: from the start of Python to its exit.

    python benchmarks/commands.py [--sessions 12000] [--rounds 5] [--json FILE]

On the data of `tfr-moe demo`: `train` of `dnn` and of `lambdamart`, two epochs; `explain` of a
query, `evaluate` of two runs, `predict` of rows, `export` with its check in a fresh process, and
`report` on three runs. Beside them the import of TensorFlow alone, and a trial of `tune` after the
first in one process.
"""

from __future__ import annotations

import csv
import functools
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import machine, parser_of, quartiles, run_rounds, seconds_of, sizes_of, write

from tfr_moe.cli.demo import example_request
from tfr_moe.data import DataFolder

EPOCHS = ("--set", "num_epochs=2")
TOWERS = ("--set", "expert_hidden_dims=[64,32]", "--set", "embedding_dim=8")
CLI = (sys.executable, "-m", "tfr_moe.cli")


def run(*arguments: object) -> None:
    """Runs a command of tfr-moe in a process of its own."""
    words = [*CLI, *map(str, arguments)]
    done = subprocess.run(words, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def prepare(root: Path, sessions: int) -> None:
    """Makes logs, a data set, three runs and the rows of the test split."""
    run("synth", "--out", root / "logs", "--sessions", sessions)
    source = ("search-logs", "--input", root / "logs" / "logs-*.csv.gz")
    schema = ("--schema", root / "logs" / "schema.yaml")
    run("build", *source, *schema, "--out", root / "data")
    for name, model in (("dnn", "dnn"), ("moe", "adv_hsc_moe"), ("dnn-2", "dnn")):
        seed = ("--set", "seed=2") if name == "dnn-2" else ()
        out = root / "runs" / name
        run("train", "--data", root / "data", "--model", model, "--out", out, *EPOCHS, *seed)
    _rows(root)
    request = example_request(DataFolder(root / "data"))
    (root / "request.json").write_text(json.dumps(request), encoding="utf-8")


def _rows(root: Path) -> None:
    """The rows of the last tenth of the logs, the size of a test split."""
    files = sorted((root / "logs").glob("logs-*.csv.gz"))
    with gzip.open(files[-1], "rt", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    last = rows[1:][-len(rows) * len(files) // 10 :]
    with (root / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([rows[0], *last])


def commands(root: Path) -> dict[str, Callable[[], Any]]:
    """Name -> the call that is timed."""
    data, runs = ("--data", root / "data"), root / "runs"
    request = root / "request.json"
    fresh = (root / "out" / str(number) for number in itertools.count())
    both = ("--run", runs / "dnn", "--run", runs / "moe")
    train = functools.partial(run, "train", *data, *EPOCHS)

    def imports() -> None:
        subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)

    return {
        "import tensorflow": imports,
        "train dnn": lambda: train("--model", "dnn", *TOWERS, "--out", next(fresh)),
        "train adv_hsc_moe": lambda: train("--model", "adv_hsc_moe", "--out", next(fresh)),
        "train lambdamart": lambda: run(
            "train", *data, "--model", "lambdamart", "--out", next(fresh)
        ),
        "explain": lambda: run("explain", "--run", runs / "moe", "--request", request),
        "evaluate, two runs": lambda: run("evaluate", *data, *both),
        "predict": lambda: run(
            "predict", "--run", runs / "moe", "--input", root / "rows.csv", "--out",
            next(fresh).with_suffix(".csv"),
        ),
        "export": lambda: run("export", "--run", runs / "moe", *data, "--out", next(fresh)),
        "report, three runs": lambda: run(
            "report", *data, *both, "--run", runs / "dnn-2", "--out",
            next(fresh).with_suffix(".html"),
        ),
    }  # fmt: skip


def further_trials(root: Path, number: int = 4) -> dict[str, float]:
    """Seconds between the ends of trials of a sweep in one process, after the first."""
    base = {"model": "dnn", "num_epochs": 2, "expert_hidden_dims": [64, 32], "embedding_dim": 8}
    space = {"learning_rate": [0.001 * n for n in range(1, number + 2)]}
    config = root / "sweep.json"
    config.write_text(json.dumps({"base": base, "space": space}), encoding="utf-8")
    run("tune", "--data", root / "data", "--config", config, "--out", root / "sweep")
    ends = sorted(path.stat().st_mtime for path in (root / "sweep").rglob("trial.json"))
    return quartiles([later - end for end, later in itertools.pairwise(ends)])


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--sessions", type=int, default=12_000)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sessions, arguments.rounds = 400, 1
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        started = time.monotonic()
        prepare(root, arguments.sessions)
        print(f"prepared in {time.monotonic() - started:.0f} s", file=sys.stderr)
        rounds = run_rounds(commands(root), arguments.rounds, arguments.seed, warm_up=0)
        seconds = seconds_of(rounds) | {"a further trial of tune": further_trials(root)}
    for name, times in seconds.items():
        print(f"{name}: {times['median']:.1f} s ({times['low']:.1f} to {times['high']:.1f})")
    result = {"machine": machine(), "sizes": sizes_of(arguments), "seconds": seconds}
    write(result, arguments.json)


if __name__ == "__main__":
    main()
