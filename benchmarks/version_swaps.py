"""Swaps versions of the development server under load, and kills the client.

    python benchmarks/version_swaps.py [--requests 20000] [--json FILE]

A server process serves one model whose versions are published and removed all the time, alternating
between two models with different weights. A client process sends requests from several threads and
logs each answer; it is killed (SIGKILL) and restarted from time to time, and continues with
unanswered requests. At the end every request must have an answer, each answer must be that of the
version which gave it (compared with scores computed in this process), no request may have failed,
and the server's memory must be flat.
"""

from __future__ import annotations

import argparse
import json
import math
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

from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.serving.client.request import Request, RequestEncoder

SERVER = """
import sys
from tfr_moe.serving.dev_server import serve
serve(sys.argv[1], port=0, poll_seconds=0.2)
"""
TOLERANCE = 1e-5
KINDS = 40  # different requests
SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "query",
        "labels": ["click"],
        "features": [
            {"name": "age", "scope": "context", "kind": "numeric"},
            *({"name": f"n{i}", "scope": "example", "kind": "numeric"} for i in range(6)),
        ],
    }
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=8, help="of each request")
    parser.add_argument("--threads", type=int, default=8, help="of the client")
    parser.add_argument("--rate", type=float, help="maximum requests per second (default: none)")
    parser.add_argument("--swap-seconds", type=float, default=3.0, help="between new versions")
    parser.add_argument("--kill-seconds", type=float, default=20.0, help="between kills")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--client", nargs=2, metavar=("TARGET", "LOG"), help=argparse.SUPPRESS)
    return parser.parse_args()


def requests(count: int, items: int) -> list[Request]:
    """Random contexts and items."""
    rng = random.Random(1)
    return [
        Request(
            {"age": rng.random()},
            [{f"n{i}": rng.random() for i in range(6)} for _ in range(items)],
        )
        for _ in range(count)
    ]


def export(root: Path, seed: int) -> Path:
    """Exports an untrained `dnn` with small towers."""
    from tfr_moe.config import RunConfig
    from tfr_moe.scorers import create
    from tfr_moe.serving.export import export_model

    uniform = {"mean": 0.5, "std": 0.29}
    scopes = {s: {f.name: uniform for f in SCHEMA.select(s)} for s in ("context", "example")}
    settings = {"model": "dnn", "seed": seed, "expert_hidden_dims": [32, 16]}
    config = RunConfig.model_validate(settings).model_dump()
    tables = FeatureTables(scopes, {})
    scorer = create("dnn", SCHEMA, tables, {**config, "tasks": None, "num_outputs": 1})
    warmup = [RequestEncoder(SCHEMA).encode(*request) for request in requests(2, 8)]
    return export_model(scorer.build_model(name="dnn"), SCHEMA, root / f"shop{seed}", warmup=warmup)


def answered(log: Path) -> dict[int, list[Any]]:
    """The answers in the log by request; a line cut off by a kill does not count."""
    answers_of: dict[int, list[Any]] = {}
    for line in log.read_bytes().splitlines(keepends=True) if log.is_file() else []:
        if line.endswith(b"]\n"):
            number, *answer = json.loads(line)
            answers_of[number] = answer
    return answers_of


def run_client(arguments: argparse.Namespace) -> None:
    """Sends all requests without an answer, and appends each answer to the log."""
    from tfr_moe.serving.client import RankingClient, RequestError

    target, log = arguments.client[0], Path(arguments.client[1])
    done = answered(log)
    waiting = iter([n for n in range(arguments.requests) if n not in done])
    samples = requests(KINDS, arguments.items)
    lock = threading.Lock()
    pause = arguments.threads / arguments.rate if arguments.rate else 0.0
    with (
        open(log, "ab", buffering=0) as file,
        RankingClient(target, "shop", SCHEMA, timeout=60) as client,
    ):
        file.write(b"" if not done else b"\n")  # ends a line that a kill cut off

        def rank() -> None:
            while True:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                try:
                    ranking = client.rank(*samples[number % KINDS])
                    answer = [ranking.version, {i.index: i.score for i in ranking.items}]
                except RequestError as error:
                    answer = ["failed", str(error)]
                line = json.dumps([number, *answer]).encode() + b"\n"
                with lock:
                    file.write(line)
                time.sleep(pause)

        threads = [threading.Thread(target=rank) for _ in range(arguments.threads)]
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
            # Its output must be read, or it blocks when the pipe is full.
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
    from tfr_moe._compat import tf

    encoder = RequestEncoder(SCHEMA)
    encoded = [encoder.encode(*r) for r in requests(KINDS, items)]
    scores = []
    for source in sources:
        score = tf.saved_model.load(str(source)).signatures["serving_default"]
        scores.append([score(inputs=tf.constant([e]))["scores"][0].numpy() for e in encoded])
    return scores


def wrong(answers: dict[int, list[Any]], expected: list[list[np.ndarray]]) -> list[int]:
    """The requests whose answer is not that of the version that gave it."""
    wrong_requests = []
    for number, (version, scores) in answers.items():
        if version == "failed":
            continue
        right = expected[version % 2][number % KINDS]
        given = np.array([scores[str(index)] for index in range(len(right))])
        if len(scores) != len(right) or np.abs(given - right).max() > TOLERANCE:
            wrong_requests.append(number)
    return wrong_requests


def watch(
    command: list[str], log: Path, server: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Runs the client to its end, killing it now and then; samples the server's memory."""
    shuffle, kills, memory = random.Random(0), 0, []
    started = time.monotonic()
    while True:
        client = subprocess.Popen(command)
        # From the first new answer: a client that takes long to start is not killed before it.
        before, until = len(answered(log)), math.inf
        while client.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
            memory.append(resident_megabytes(server))
            if math.isinf(until) and len(answered(log)) > before:
                until = time.monotonic() + arguments.kill_seconds * shuffle.uniform(0.5, 1.5)
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
        sources = [export(work / "sources", seed) for seed in (1, 2)]
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
        command += ["--rate", str(arguments.rate)] if arguments.rate else []
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
