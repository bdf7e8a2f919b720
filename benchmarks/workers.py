"""Seconds of an epoch with two data-parallel workers of one core over one process with two cores.

    python benchmarks/workers.py --data DATA [--model NAME] [--set key=value]... [--json FILE]

Each round runs `tfr-moe train` for four epochs, alone and as two workers on loopback. An epoch,
with its validation, is a third of the time between the lines that it prints for the first and the
last one; the start and the end do not count. The memory is the peak of each process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import (
    machine,
    ratio,
    ratio_line,
    run_rounds,
    seconds_of,
    sizes_of,
    training_parser,
    write,
)

WORKERS = 2
EPOCHS = 4
BY_DEFAULT = ("batch_size=128", "steps_per_epoch=20", "early_stopping_patience=0")


def addresses() -> list[str]:
    """Free addresses of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(WORKERS)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def environments(workers: bool) -> list[dict[str, str]]:
    """The environment of each process of a run."""
    if not workers:
        return [dict(os.environ)]
    cluster = {"worker": addresses()}
    tasks = [{"type": "worker", "index": index} for index in range(WORKERS)]
    return [
        {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "TF_NUM_INTRAOP_THREADS": "1",
        }
        for task in tasks
    ]


def train(command: list[str], workers: bool) -> tuple[float, list[int]]:
    """Seconds of an epoch, and the peak megabytes of each process."""
    processes = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for environment in environments(workers)
    ]
    megabytes, ends = [], []
    for process in processes:  # the leader, which prints the epochs, is the first
        said = []
        for line in process.stderr or ():
            said.append(line)
            if line.startswith("epoch"):
                ends.append(time.perf_counter())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit("".join(said))
        megabytes.append(usage.ru_maxrss // 1000)
    return (ends[-1] - ends[0]) / (EPOCHS - 1), megabytes


def main() -> None:
    arguments = training_parser(__doc__, rounds=3).parse_args()
    quick = ["expert_hidden_dims=[8]", "steps_per_epoch=2"] if arguments.quick else []
    numbers = itertools.count()
    memory: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as work:

        def epoch(name: str) -> float:
            out = Path(work) / str(next(numbers))
            command = [sys.executable, "-m", "tfr_moe.cli", "train", "--out", str(out)]
            command += ["--data", str(arguments.data), "--model", arguments.model]
            if name == "workers":
                command += ["--set", "strategy=MultiWorkerMirroredStrategy"]
            for setting in (*BY_DEFAULT, *quick, *arguments.settings, f"num_epochs={EPOCHS}"):
                command += ["--set", setting]
            seconds, memory[name] = train(command, name == "workers")
            return seconds

        steps: dict[str, Callable[[], Any]] = {
            name: functools.partial(epoch, name) for name in ("alone", "workers")
        }
        rounds = run_rounds(steps, arguments.rounds, arguments.seed, warm_up=0)
    result: dict[str, Any] = {
        "machine": machine(),
        "sizes": sizes_of(arguments),
        "seconds_of_an_epoch": seconds_of(rounds),
        "speed_of_workers_over_alone": ratio(rounds, "alone", "workers"),
        "peak_megabytes": memory,
    }
    for name, times in result["seconds_of_an_epoch"].items():
        print(f"{name}: {times['median']:.2f} s, {memory[name]} MB")
    print(ratio_line("speed of workers over alone", result["speed_of_workers_over_alone"]))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
