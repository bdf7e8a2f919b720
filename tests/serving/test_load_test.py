"""The load test: when requests are due, and what is counted."""

from __future__ import annotations

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from rich.console import Console

from tests.serving.client.test_channel import Relay, relaying
from tests.serving.conftest import CONTEXT, shop_items
from tests.tiny import write_data_folder
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RequestError
from tfr_moe.serving.client.channel import open_channel
from tfr_moe.serving.client.request import Request
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.load_test import (
    PERCENTILES,
    LoadResult,
    arrivals,
    data_requests,
    latency_table,
    prepare,
    run_load_test,
    send,
)

REQUESTS = [Request(CONTEXT, shop_items(count)) for count in (1, 3, 7)]


def test_arrivals_are_a_poisson_process():
    due = arrivals(200.0, 50.0, seed=3)
    gaps = np.diff(due)
    assert len(due) == pytest.approx(10_000, abs=4 * 100)  # four standard deviations
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # of exponential gaps both are alike
    assert due[0] > 0 and due[-1] < 50


def test_the_same_seed_gives_the_same_times():
    assert arrivals(20.0, 2.0, 1).tolist() == arrivals(20.0, 2.0, 1).tolist()
    assert arrivals(20.0, 2.0, 1).tolist() != arrivals(20.0, 2.0, 2).tolist()


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0, 1), (1, 0), (np.inf, 1), (1, np.inf), (1e-6, 1e-3)]
)
def test_a_load_without_requests_is_rejected(rate: float, seconds: float):
    with pytest.raises(UserError, match=r"above 0|no requests at"):
        arrivals(rate, seconds, 0)


def test_the_summary_by_hand():
    result = LoadResult(2.0, np.arange(1.0, 101.0), {"UNAVAILABLE": 3}, 0.5)
    summary = result.summary()
    assert (summary["sent"], summary["answered"]) == (103, 100)
    assert summary["throughput"] == 50.0
    assert summary["latency_ms"]["mean"] == 50.5
    assert summary["latency_ms"]["p50"] == 50.5
    assert summary["latency_ms"]["p95"] == pytest.approx(95.05)
    assert summary["latency_ms"]["max"] == 100.0


class Stalling(grpc.GenericRpcHandler):
    """Passes calls on, one at a time; the fourth is held up for a while."""

    def __init__(self, target: str, stall: float):
        self._channel = grpc.insecure_channel(target)
        self._lock = threading.Lock()
        self._stall = stall
        self.armed = False

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def pass_on(request: bytes, context: grpc.ServicerContext) -> bytes:
            with self._lock:
                if self.armed:
                    self.armed = False
                    time.sleep(self._stall)
                return self._channel.unary_unary(details.method)(request)

        return grpc.unary_unary_rpc_method_handler(pass_on)


def test_a_stall_is_charged_to_all_requests_that_were_due_meanwhile(server: DevServer):
    """Closed-loop clients would see one slow answer of a server that stalled for a second."""
    relay = Stalling(server.target, stall=1.0)
    running = grpc.server(ThreadPoolExecutor(64), handlers=[relay])
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    target = f"127.0.0.1:{port}"
    messages = prepare(target, "plain", REQUESTS)
    relay.armed = True
    with grpc.insecure_channel(target) as channel:
        result = send(channel, messages, np.arange(10) * 0.05, timeout=20)
    running.stop(0)
    assert len(result.latencies) == 10
    assert result.latencies.max() > 1000
    # The last was due 0.45 s into the stall, and so waited for more than half a second.
    assert (result.latencies > 500).all()


def test_errors_are_counted_by_their_code(server: DevServer):
    relay = Relay(server.target)
    with relaying(relay) as address:
        messages = prepare(address, "plain", REQUESTS)
        with open_channel(address, retries=False) as channel:
            relay.failures = [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]
            result = send(channel, messages, np.arange(5) * 0.01)
            relay.failures = [grpc.StatusCode.UNAVAILABLE] * 2
            failed = send(channel, messages, np.arange(2) * 0.01)
    assert len(result.latencies) == 3
    assert dict(result.errors) == {"RESOURCE_EXHAUSTED": 1, "UNAVAILABLE": 1}
    assert failed.summary()["latency_ms"]["p99"] is None


def test_a_target_without_the_model_is_an_error_before_any_load(server: DevServer):
    with pytest.raises(RequestError, match="'nope' is not served"):
        run_load_test(server.target, "nope", REQUESTS)


def test_each_rate_is_a_run(server: DevServer):
    steps: list[Any] = []
    report = run_load_test(
        *(server.target, "mixture", REQUESTS, [20.0, 60.0], 0.5),
        progress=lambda *step: steps.append(step),
    )
    assert steps == [(1, 2), (2, 2)]
    assert [result["rate"] for result in report["results"]] == [20.0, 60.0]
    for result in report["results"]:
        assert result["sent"] == result["answered"] == len(arrivals(result["rate"], 0.5, 0))
        assert result["errors"] == {}
    assert report["lists"] == {"count": 3, "items_median": 3, "items_max": 7}


def printed(report: dict[str, Any]) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(latency_table(report))
    return console.export_text()


def test_the_table_has_errors_and_a_warning_of_late_requests():
    lag = {False: 0.5, True: 50.0}
    for late, milliseconds in lag.items():
        result = LoadResult(2.0, np.arange(1.0, 101.0), {"UNAVAILABLE": 3}, milliseconds)
        results = [{"rate": 10.0, **result.summary()}]
        text = printed({"model": "shop", "target": "h:1", "results": results})
        latencies = ["50.5", "95.0", "99.0", "99.9", "100.0"]
        rows = [line.split() for line in text.splitlines()]
        assert ["10", "103", "3", "50.0", *latencies] in rows
        assert "errors at 10/s: 3 UNAVAILABLE" in text
        assert ("too slow or too busy" in " ".join(text.split())) == late


def test_the_table_cuts_nothing_in_80_columns():
    latency = dict.fromkeys(("mean", *PERCENTILES), 1234.5)
    entry = {
        "rate": 2000.0,
        "sent": 123456,
        "errors": {"DEADLINE_EXCEEDED": 1200, "UNAVAILABLE": 33},
        "throughput": 1999.9,
        "latency_ms": latency,
        "send_lag_ms_p99": 0.0,
    }
    console = Console(width=80, record=True, file=io.StringIO())
    target = "ranking-production.eu-west-1.example.com:8500"
    console.print(latency_table({"model": "shop", "target": target, "results": [entry]}))
    text = console.export_text()
    assert "…" not in text and target in text
    assert "errors at 2000/s: 1200 DEADLINE_EXCEEDED, 33 UNAVAILABLE" in text


def test_requests_are_the_lists_of_a_data_set_without_their_labels(tmp_path: Path):
    write_data_folder(tmp_path / "data")
    actual = data_requests(tmp_path / "data", "test", 5)
    assert len(actual) == 5
    assert set(actual[0].context) == {"top", "sub", "age", "clicked"}
    assert set(actual[0].items[0]) == {"brand", "price", "sales"}
    with pytest.raises(UserError):
        data_requests(tmp_path / "none", "test", 5)
