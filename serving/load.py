"""Requests at a given rate, whatever the server makes of them, and what became of each.

The load is open-loop: requests are due at random moments drawn beforehand (a Poisson process), as those
of users who know nothing of each other, and a latency counts from the moment at which its request
was due. A server that stalls is thus charged for all who would have asked meanwhile; clients that wait
for their answer before they ask again would hide it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import grpc
import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from .asking import PREDICT, Asking, Items
from .channel import MAX_MESSAGE_BYTES, Tls, open_channel
from .client import RankingClient

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
_AHEAD = 0.05
_WARMUP = 20


class Request(NamedTuple):
    """What is to be ranked."""

    context: Mapping[str, Any]
    items: Items


@dataclass(frozen=True)
class Target:
    """A model on a server. `name` stands for it in tables."""

    address: str
    model: str
    name: str
    tls: Tls | None = None


@dataclass(frozen=True)
class LoadResult:
    """What became of the requests of one run.

    Attributes:
        rate: requests a second that were due.
        seconds: from the first that was due to the last answer.
        latencies: milliseconds of each that was answered, in no order.
        errors: the others by status code.
        lag: milliseconds by which the 99th percentile of them was sent late by this machine.
    """

    rate: float
    seconds: float
    latencies: NDArray[np.float64]
    errors: Mapping[str, int]
    lag: float

    def summary(self) -> dict[str, Any]:
        """As plain numbers: latency in milliseconds, throughput in answers a second."""
        answered = len(self.latencies)
        percentiles = {
            name: round(float(np.percentile(self.latencies, q)), 3) if answered else None
            for name, q in PERCENTILES.items()
        }
        return {
            "rate": self.rate,
            "sent": answered + sum(self.errors.values()),
            "answered": answered,
            "errors": dict(self.errors),
            "seconds": round(self.seconds, 3),
            "throughput": round(answered / self.seconds, 2) if self.seconds else 0.0,
            "latency_ms": {
                "mean": round(float(self.latencies.mean()), 3) if answered else None,
                **percentiles,
                "max": round(float(self.latencies.max()), 3) if answered else None,
            },
            "send_lag_ms_p99": round(self.lag, 3),
        }


def arrivals(rate: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """The moments at which requests are due, in seconds from the start: a Poisson process.

    Raises:
        UserError: if no request would be due.

    Example:
        >>> due = arrivals(rate=100.0, seconds=10.0, seed=1)
        >>> bool(900 < len(due) < 1100 and due[-1] < 10.0)
        True
    """
    if rate <= 0 or seconds <= 0:
        raise UserError(f"rate and seconds must be above 0, got {rate:g} and {seconds:g}")
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5) + 50))
    due = due[due < seconds]
    if not len(due):
        raise UserError(f"no request is due at {rate:g} a second within {seconds:g} seconds")
    return due


class LoadGenerator:
    """Asks one target; to be closed.

    Args:
        target: who is asked.
        requests: asked one after the other, and again from the first.
        signature: `rank` or `serving_default`.
        timeout: seconds after which a request counts as an error.
        schema: of the requests; None asks the server.

    Raises:
        RequestError: if the target can't answer the first requests, asked one by one.
    """

    def __init__(
        self,
        target: Target,
        requests: Sequence[Request],
        signature: str = "rank",
        timeout: float = 5.0,
        schema: FeatureSchema | None = None,
    ):
        self._timeout = timeout
        with RankingClient(target.address, target.model, schema, tls=target.tls) as client:
            asking = Asking(target.model, client.schema, None, None, MAX_MESSAGE_BYTES, False)
            for request in requests[:_WARMUP]:
                client.predict(*request)
        make = asking.rank if signature == "rank" else asking.predict
        # Encoded beforehand: what is to be measured is the server.
        self._messages = [next(make(*r))[0].message.SerializeToString() for r in requests]
        self._channel = open_channel(target.address, tls=target.tls, attempts=1)
        self._method = self._channel.unary_unary(PREDICT.path)

    def run(self, due: NDArray[np.float64]) -> LoadResult:
        """Sends a request at each moment and waits until all are answered or given up."""
        finished = np.full(len(due), np.nan)
        sent = np.zeros(len(due))
        errors: Counter[str] = Counter()
        pending = threading.Semaphore(0)
        start = time.perf_counter() + _AHEAD

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
            message = self._messages[number % len(self._messages)]
            call = self._method.future(message, timeout=self._timeout)
            call.add_done_callback(partial(done, number))
        for _ in due:
            pending.acquire()
        elapsed = time.perf_counter() - start - due[0]
        latencies = (finished - due)[~np.isnan(finished)] * 1e3
        lag = float(np.percentile(sent - due, 99)) * 1e3
        return LoadResult(len(due) / due[-1], elapsed, latencies, dict(errors), max(0.0, lag))

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()
