"""What gRPC and the local server cost against the same model in this process: latency and throughput.

    python benchmarks/serving_overhead.py [--model dnn] [--rounds 30] [--json FILE]

Requests are 60 items with 36 features. In every round each of these runs once, in an order drawn anew:

in-process, 1    a caller encodes a request and runs the SavedModel as `tf.saved_model.load` gives it, one
                 request after the other
session, 1       the same with the session by which the server runs it
gRPC, 1          a caller asks through `RankingClient`, one request after the other
empty call, 1    a caller sends the same bytes to a Python gRPC server that answers at once with a fixed
                 answer: what gRPC and its Python cost before anybody has done anything. Between two calls
                 both sides rest as long as a request takes in this process
in-process, 4    four threads run the SavedModel on encoded requests without pause
session, 4       the same with the server's session
gRPC, 16         sixteen threads of this process send encoded requests without pause

The latency differences and the ratios of throughputs are taken within a round, against both ways to run
the model; medians and quartiles over the rounds are printed. Server and callers share the machine, as
the numbers of cores say.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import serving_models
from timing import machine, quartiles
from version_swaps import start_server

from tfr_moe._compat import tf
from tfr_moe.serving.asking import PREDICT
from tfr_moe.serving.channel import open_channel
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.loaded import LoadedModel
from tfr_moe.serving.request import RequestEncoder
from tfr_moe.serving.tensors import predict_request

LISTS = 50
WAYS = ("in-process", "session")
EMPTY_SERVER = """
import sys, grpc
from concurrent.futures import ThreadPoolExecutor

class Same(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: bytes(1000))

server = grpc.server(ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((Same(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="dnn")
    parser.add_argument("--requests", type=int, default=40, help="of one caller in a round")
    parser.add_argument("--seconds", type=float, default=1.0, help="of several callers in a round")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser.parse_args()


def latencies(ask: Callable[[int], Any], requests: int, pause: float = 0.0) -> float:
    """The median milliseconds of requests one after the other, `pause` milliseconds apart."""
    found = []
    for number in range(requests):
        time.sleep(pause / 1e3)
        started = time.perf_counter()
        ask(number % LISTS)
        found.append(time.perf_counter() - started)
    return statistics.median(found) * 1e3


def throughput(ask: Callable[[int], Any], threads: int, seconds: float) -> float:
    """Requests a second of several threads that ask without pause."""
    numbers, done = count(), [0] * threads
    started = time.perf_counter()

    def work(thread: int) -> None:
        while time.perf_counter() < started + seconds:
            ask(next(numbers) % LISTS)
            done[thread] += 1

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(done) / (time.perf_counter() - started)


def plain_model(folder: Path) -> Callable[[bytes], dict[str, np.ndarray]]:
    """The signature `rank` as TensorFlow's own loader gives it."""
    function = tf.saved_model.load(str(folder)).signatures["rank"]

    def run(serialized: bytes) -> dict[str, np.ndarray]:
        answer = function(inputs=tf.constant([serialized]))
        return {name: tensor.numpy() for name, tensor in answer.items()}

    return run


def session_model(folder: Path) -> Callable[[bytes], dict[str, np.ndarray]]:
    """The same as the server runs it."""
    model = LoadedModel(folder)
    return lambda serialized: model.run("rank", {"inputs": np.array([serialized], object)})


def measure(
    folder: Path, target: str, empty: str, arguments: argparse.Namespace
) -> list[dict[str, float]]:
    """Milliseconds and requests a second of every contestant in every round."""
    requests = serving_models.requests(LISTS)
    encoder = RequestEncoder(serving_models.SCHEMA)
    encoded = [encoder.encode(*request) for request in requests]
    messages = [predict_request("shop", "rank", [e]).SerializeToString() for e in encoded]
    ways = dict(zip(WAYS, (plain_model(folder), session_model(folder)), strict=True))
    client = RankingClient(target, "shop", serving_models.SCHEMA, timeout=60)
    channel = open_channel(target)
    method = channel.unary_unary(PREDICT.path)
    empty_channel = open_channel(empty)
    empty_method = empty_channel.unary_unary(PREDICT.path)

    def encoded_by(way: str) -> Callable[[int], Any]:
        return lambda number: ways[way](encoded[number])

    def whole_by(way: str) -> Callable[[int], Any]:
        return lambda number: ways[way](encoder.encode(*requests[number]))

    def ask_whole(number: int) -> Any:
        return client.rank(*requests[number])

    def ask_encoded(number: int) -> Any:
        return method(messages[number], timeout=60)

    def ask_nothing(number: int) -> Any:
        return empty_method(messages[number], timeout=60)

    for ask in (*map(encoded_by, WAYS), ask_whole, ask_nothing):
        latencies(ask, 20)
    rest = latencies(whole_by("in-process"), 50)
    contestants: dict[str, Callable[[], float]] = {
        "gRPC, 1": lambda: latencies(ask_whole, arguments.requests),
        "empty call, 1": lambda: latencies(ask_nothing, arguments.requests, rest),
        "gRPC, 16": lambda: throughput(ask_encoded, 16, arguments.seconds),
    }
    for way in WAYS:
        one, four = whole_by(way), encoded_by(way)
        contestants[f"{way}, 1"] = functools.partial(latencies, one, arguments.requests)
        contestants[f"{way}, 4"] = functools.partial(throughput, four, 4, arguments.seconds)
    shuffle, rounds = random.Random(1), []
    for _ in range(arguments.rounds):
        order = shuffle.sample(list(contestants), len(contestants))
        rounds.append({name: contestants[name]() for name in order})
    client.close()
    channel.close()
    empty_channel.close()
    return rounds


def encoding_milliseconds() -> float:
    """The median time to check and encode one request."""
    encoder = RequestEncoder(serving_models.SCHEMA)
    requests = serving_models.requests(LISTS)
    return latencies(lambda number: encoder.encode(*requests[number]), 500)


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # In another process, so that this one holds no Keras model beside the SavedModel.
        script = f"import serving_models as s, pathlib; s.export(pathlib.Path({name!r}), 'shop', "
        subprocess.run(
            [sys.executable, "-c", f"{script}{arguments.model!r})"],
            cwd=Path(__file__).parent,
            check=True,
        )
        server, target = start_server(root)
        empty = subprocess.Popen([sys.executable, "-c", EMPTY_SERVER], stdout=subprocess.PIPE)
        assert empty.stdout is not None
        try:
            port = int(empty.stdout.readline())
            rounds = measure(root / "shop" / "1", target, f"127.0.0.1:{port}", arguments)
        finally:
            for process in (server, empty):
                process.terminate()
                process.wait()
    result = {
        "machine": machine(),
        "model": arguments.model,
        "encoding_ms": round(encoding_milliseconds(), 3),
        "contestants": {name: quartiles([r[name] for r in rounds]) for name in rounds[0]},
        "latency_added_ms": {
            way: quartiles([r["gRPC, 1"] - r[f"{way}, 1"] for r in rounds]) for way in WAYS
        },
        "throughput_ratio": {
            way: quartiles([r["gRPC, 16"] / r[f"{way}, 4"] for r in rounds]) for way in WAYS
        },
    }
    print(json.dumps(result, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
