"""Measures the latency of a server at given request rates.

The load is open-loop: requests are due at random times (a Poisson process), like those of
independent users, and latency counts from the time a request was due. A server that stalls is
charged for all requests that were due meanwhile, which waiting clients would hide.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from tfr_moe.elwc.values import decode_list
from tfr_moe.errors import UserError
from tfr_moe.utils.console import TableColumn, fitted_table

from .client import RankingClient
from .client.channel import open_channel
from .client.client import PREDICT, seconds_or_none
from .client.request import Request, RequestEncoder, predict_request

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}
_HEAD_START = 0.05
_WARMUP = 20
_LATE_MS = 10.0


@dataclass(frozen=True)
class LoadResult:
    """The outcome of one run.

    Attributes:
        seconds: from the first due time to the last answer.
        latencies: milliseconds of each answered request, in no order.
        errors: number of the others by status code.
        lag: milliseconds by which the 99th percentile was sent late by this machine.
    """

    seconds: float
    latencies: NDArray[np.float64]
    errors: Mapping[str, int]
    lag: float

    def summary(self) -> dict[str, Any]:
        """As plain numbers: latency in milliseconds, throughput in answers per second."""
        answered = len(self.latencies)
        latency: dict[str, float | None] = dict.fromkeys(("mean", *PERCENTILES))
        if answered:
            percentiles = np.percentile(self.latencies, list(PERCENTILES.values()))
            values = np.append(self.latencies.mean(), percentiles)
            latency = dict(zip(latency, values.round(3).tolist(), strict=True))
        return {
            "sent": answered + sum(self.errors.values()),
            "answered": answered,
            "errors": dict(self.errors),
            "seconds": round(self.seconds, 3),
            "throughput": round(answered / self.seconds, 2),
            "latency_ms": latency,
            "send_lag_ms_p99": round(self.lag, 3),
        }


def arrivals(rate: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """The times at which requests are due, in seconds from the start: a Poisson process."""
    if not (0 < rate < math.inf and 0 < seconds < math.inf):
        raise UserError(f"rate and seconds must be above 0, got {rate:g} and {seconds:g}")
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5) + 50))
    due = due[due < seconds]
    if not len(due):
        raise UserError(
            f"no requests at rate={rate:g} within seconds={seconds:g}; increase one of them"
        )
    return due


def prepare(
    target: str, model: str, requests: Sequence[Request], timeout: float = 5.0
) -> list[bytes]:
    """Ranks the first requests one by one; returns all as serialized `PredictRequest`s."""
    with RankingClient(target, model, timeout=timeout) as client:
        encoder = RequestEncoder(client.schema)
        for request in requests[:_WARMUP]:
            client.rank(*request)
    return [
        predict_request(model, "rank", [encoder.encode(*request)]).SerializeToString()
        for request in requests
    ]


def send(
    channel: grpc.Channel,
    messages: Sequence[bytes],
    due: NDArray[np.float64],
    timeout: float | None = 5.0,
) -> LoadResult:
    """Sends the messages in turn, one at each of the `due` times, and waits for all answers.

    `due` is in seconds from the start; the channel is without retries.
    """
    predict = channel.unary_unary(PREDICT)
    finished = np.full(len(due), np.nan)
    sent = np.zeros(len(due))
    errors: Counter[str] = Counter()
    pending = threading.Semaphore(0)
    start = time.perf_counter() + _HEAD_START

    def done(number: int, call: Any) -> None:
        code = call.code()
        if code == grpc.StatusCode.OK:
            finished[number] = time.perf_counter() - start
        else:
            errors[code.name] += 1
        pending.release()

    for number, at in enumerate(due):
        pause = start + at - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        sent[number] = time.perf_counter() - start
        call = predict.future(messages[number % len(messages)], timeout=timeout)
        call.add_done_callback(partial(done, number))
    for _ in due:
        pending.acquire()
    elapsed = time.perf_counter() - start - due[0]
    latencies = (finished - due)[~np.isnan(finished)] * 1e3
    lag = float(np.percentile(sent - due, 99)) * 1e3
    return LoadResult(elapsed, latencies, dict(errors), max(0.0, lag))


def data_requests(data: str | Path, split: str, limit: int) -> list[Request]:
    """Lists of a data set as requests, without their labels, in the order of the files."""
    from tfr_moe.data import DataFolder, ElwcDatasetBuilder

    folder = DataFolder(data)
    folder.check_lists(split)
    records = ElwcDatasetBuilder(folder).serialized_lists(split).as_numpy_iterator()
    return [Request(*decode_list(folder.schema, record)) for record in islice(records, limit)]


def run_load_test(
    target: str,
    model: str,
    requests: Sequence[Request],
    rates: Sequence[float] = (20.0,),
    seconds: float = 10.0,
    *,
    timeout: float = 5.0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Puts the signature `rank` of a model under load at one rate after the other.

    `requests` are sent in turn. `progress` is called with the number of finished rates and of all.
    Returns the arguments, the sizes of the lists, and `results`: the `LoadResult.summary` of each
    rate.
    """
    limit = seconds_or_none(timeout)
    due = {rate: arrivals(rate, seconds, seed) for rate in rates}
    messages = prepare(target, model, requests, timeout)
    results = []
    with open_channel(target, retries=False) as channel:
        for rate, times in due.items():
            results.append({"rate": rate, **send(channel, messages, times, limit).summary()})
            progress(len(results), len(due))
    sizes = [len(request.items) for request in requests]
    return {
        "target": target,
        "model": model,
        "timeout": limit,
        "seed": seed,
        "lists": {
            "count": len(sizes),
            "items_median": float(np.median(sizes)),
            "items_max": max(sizes),
        },
        "results": results,
    }


def latency_table(report: Mapping[str, Any]) -> Table:
    """The results of `run_load_test` as a table, with errors and late requests in its caption."""
    results, notes = report["results"], []
    for entry in results:
        if entry["errors"]:
            errors = ", ".join(f"{count} {code}" for code, count in entry["errors"].items())
            notes.append(f"errors at {entry['rate']:g}/s: {errors}")
    if any(entry["send_lag_ms_p99"] > _LATE_MS for entry in results):
        notes.append(
            f"warning: requests were sent more than {_LATE_MS:g} ms late; this machine is too slow "
            "or too busy for the rate"
        )
    columns = [
        TableColumn("rate/s", [f"{entry['rate']:g}" for entry in results]),
        TableColumn("sent", [str(entry["sent"]) for entry in results]),
        TableColumn("errors", [str(sum(entry["errors"].values())) for entry in results]),
        TableColumn("answers/s", [f"{entry['throughput']:.1f}" for entry in results]),
    ]
    for name in PERCENTILES:
        values = [entry["latency_ms"][name] for entry in results]
        columns.append(TableColumn(name, ["-" if v is None else f"{v:.1f}" for v in values]))
    title = f"{report['model']} at {report['target']}: latency in ms from the due time"
    return fitted_table(columns, len(columns), title=title, caption="\n".join(notes))
