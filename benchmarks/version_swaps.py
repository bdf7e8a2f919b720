"""Requests while versions are swapped under load and the client is killed: none lost, none wrong.

    python benchmarks/version_swaps.py [--requests 100000] [--json FILE]

A server process answers for one model whose versions are published and removed all the time, in turn by
two models of different weights. A client process asks from several threads and writes each answer
down; it is killed (SIGKILL) now and then and begun again, and goes on with what has no answer yet. At
the end every request must have an answer, each answer must be that of the version which gave it (compared
with scores computed in this process), no request may have failed, and the server's memory must be flat.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import serving_models

SERVER = """
import sys
from tfr_moe.serving.server import serve
serve(sys.argv[1], port=0, poll_seconds=0.2)
"""
TOLERANCE = 1e-5
KINDS = 40  # different requests
SMALL = {"expert_hidden_dims": [32, 16], "embedding_dim": 4}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=8, help="of each request")
    parser.add_argument("--threads", type=int, default=8, help="of the client")
    parser.add_argument("--swap-seconds", type=float, default=3.0, help="between new versions")
    parser.add_argument("--kill-seconds", type=float, default=20.0, help="between kills")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--client", nargs=2, metavar=("TARGET", "LOG"), help=argparse.SUPPRESS)
    return parser.parse_args()


def answered(log: Path) -> dict[int, list[Any]]:
    """The answers in the log by request; a line cut off by a kill is none."""
    found: dict[int, list[Any]] = {}
    for line in log.read_bytes().splitlines(keepends=True) if log.is_file() else []:
        if line.endswith(b"]\n"):
            number, *answer = json.loads(line)
            found[number] = answer
    return found


def run_client(arguments: argparse.Namespace) -> None:
    """Asks for all requests that have no answer, and appends each answer to the log."""
    from tfr_moe.serving.client import RankingClient, RequestError

    target, log = arguments.client[0], Path(arguments.client[1])
    done = answered(log)
    waiting = iter([n for n in range(arguments.requests) if n not in done])
    requests = serving_models.requests(KINDS, arguments.items)
    lock = threading.Lock()
    with (
        open(log, "ab", buffering=0) as file,
        RankingClient(target, "shop", serving_models.SCHEMA, timeout=60) as client,
    ):
        file.write(b"" if not done else b"\n")  # ends a line that a kill cut off

        def ask() -> None:
            while True:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                try:
                    found = client.rank(*requests[number % KINDS])
                    answer = [found.version, {item.index: item.score for item in found.items}]
                except RequestError as error:
                    answer = ["failed", str(error)]
                line = json.dumps([number, *answer]).encode() + b"\n"
                with lock:
                    file.write(line)

        threads = [threading.Thread(target=ask) for _ in range(arguments.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def start_server(models: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(models)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("listening on"):
            # What it says must be read, or it stops when the pipe is full.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, line.split()[2]
    raise SystemExit("the server did not start")


def publish(source: Path, folder: Path) -> None:
    hidden = folder.with_name(f".{folder.name}")
    shutil.copytree(source, hidden)
    hidden.rename(folder)


def swap(sources: list[Path], model: Path, seconds: float, stop: threading.Event) -> None:
    """Publishes a version every few seconds and removes the one before the last."""
    version = 1
    while not stop.wait(seconds):
        version += 1
        publish(sources[version % 2], model / str(version))
        old = model / str(version - 2)
        if old.is_dir():
            shutil.rmtree(old)


def resident_megabytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) // 1024


def expected_scores(sources: list[Path], items: int) -> list[list[np.ndarray]]:
    """For each source the scores of all kinds of requests, computed here."""
    from tfr_moe.serving.loaded import LoadedModel
    from tfr_moe.serving.request import RequestEncoder

    encoder = RequestEncoder(serving_models.SCHEMA)
    encoded = [encoder.encode(*r) for r in serving_models.requests(KINDS, items)]
    found = []
    for source in sources:
        model = LoadedModel(source)
        runs = [model.run("serving_default", {"inputs": np.array([e], object)}) for e in encoded]
        found.append([run["scores"][0] for run in runs])
    return found


def wrong(answers: dict[int, list[Any]], expected: list[list[np.ndarray]]) -> list[int]:
    """The requests whose answer is not that of the version that gave it."""
    found = []
    for number, (version, scores) in answers.items():
        if version == "failed":
            continue
        right = expected[version % 2][number % KINDS]
        given = np.array([scores[str(index)] for index in range(len(right))])
        if len(scores) != len(right) or np.abs(given - right).max() > TOLERANCE:
            found.append(number)
    return found


def watch(
    command: list[str], log: Path, server: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Runs the client to its end, killing it now and then; samples the server's memory."""
    shuffle, kills, memory = random.Random(0), 0, []
    started = time.monotonic()
    while True:
        client = subprocess.Popen(command)
        until = time.monotonic() + arguments.kill_seconds * shuffle.uniform(0.5, 1.5)
        while client.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
            memory.append(resident_megabytes(server))
        if client.poll() is not None:
            if client.returncode:
                raise SystemExit(f"the client failed with {client.returncode}")
            break
        client.send_signal(signal.SIGKILL)
        client.wait()
        kills += 1
        print(f"{len(answered(log))} answers, {kills} kills, server {memory[-1]} MB", flush=True)
    quarter = max(1, len(memory) // 4)
    return {
        "seconds": round(time.monotonic() - started, 1),
        "kills": kills,
        "server_mb": {
            "second_quarter": int(np.median(memory[quarter : 2 * quarter] or memory)),
            "last_quarter": int(np.median(memory[-quarter:])),
            "peak": max(memory),
        },
    }


def main() -> None:
    arguments = parse_arguments()
    if arguments.client:
        return run_client(arguments)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sources = [
            serving_models.export(work / "sources", f"shop{seed}", "dnn", seed=seed, **SMALL)
            for seed in (1, 2)
        ]
        expected = expected_scores(sources, arguments.items)
        publish(sources[1], work / "models" / "shop" / "1")
        server, target = start_server(work / "models")
        stop, log = threading.Event(), work / "answers.jsonl"
        swapping = threading.Thread(
            target=swap,
            args=(sources, work / "models" / "shop", arguments.swap_seconds, stop),
        )
        swapping.start()
        command = [sys.executable, __file__, "--client", target, str(log)]
        command += ["--requests", str(arguments.requests), "--items", str(arguments.items)]
        command += ["--threads", str(arguments.threads)]
        try:
            result = watch(command, log, server.pid, arguments)
        finally:
            stop.set()
            swapping.join()
            server.terminate()
            server.wait()
        answers = answered(log)
        failures = [answer[1] for answer in answers.values() if answer[0] == "failed"]
        versions = {answer[0] for answer in answers.values() if answer[0] != "failed"}
        result = {
            "requests": arguments.requests,
            "lost": arguments.requests - len(answers),
            "failed": len(failures),
            "wrong": len(wrong(answers, expected)),
            "versions": len(versions),
            **result,
        }
    print(json.dumps(result, indent=1))
    for message in sorted(set(failures))[:5]:
        print(f"failed: {message}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if result["lost"] or result["failed"] or result["wrong"]:
        raise SystemExit(1)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
