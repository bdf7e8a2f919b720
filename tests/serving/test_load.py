"""The load test: when requests are due, what is counted, and two targets side by side."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, shop_items
from tests.serving.models import SHOP
from tests.serving.test_connection import Relay, relaying
from tests.tiny import write_data_folder
from tfr_moe.errors import UserError
from tfr_moe.serving.client import RequestError
from tfr_moe.serving.load import LoadGenerator, LoadResult, Request, Target, arrivals
from tfr_moe.serving.loadtest import (
    LoadOptions,
    Run,
    data_requests,
    plot,
    report,
    run_load_test,
    tables,
)
from tfr_moe.serving.server import RankingServer

REQUESTS = [Request(CONTEXT, shop_items(count)) for count in (1, 3, 7)]


def test_arrivals_are_a_poisson_process():
    due = arrivals(200.0, 50.0, seed=3)
    gaps = np.diff(due)
    assert len(due) == pytest.approx(10_000, abs=4 * 100)  # four standard deviations
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # of exponential gaps both are alike
    assert due[0] > 0 and due[-1] < 50


def test_the_same_seed_gives_the_same_moments():
    assert arrivals(20.0, 2.0, 1).tolist() == arrivals(20.0, 2.0, 1).tolist()
    assert arrivals(20.0, 2.0, 1).tolist() != arrivals(20.0, 2.0, 2).tolist()


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (1, 0), (1e-6, 1e-3)])
def test_a_load_of_nothing_is_refused(rate: float, seconds: float):
    with pytest.raises(UserError, match=r"above 0|no request is due"):
        arrivals(rate, seconds, 0)


def test_the_summary_by_hand():
    result = LoadResult(10.0, 2.0, np.arange(1.0, 101.0), {"UNAVAILABLE": 3}, 0.5)
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


def test_a_stall_is_charged_to_all_who_would_have_asked_meanwhile(server: RankingServer):
    """Closed-loop clients would see one slow answer of a server that stood still for a second."""
    relay = Stalling(server.target, stall=1.0)
    running = grpc.server(ThreadPoolExecutor(64), handlers=[relay])
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    generator = LoadGenerator(
        Target(f"127.0.0.1:{port}", "plain", "stalling"), REQUESTS, schema=SHOP, timeout=20
    )
    relay.armed = True
    result = generator.run(np.arange(10) * 0.05)
    generator.close()
    running.stop(0)
    assert len(result.latencies) == 10
    assert result.latencies.max() > 1000
    # The last was due 0.45 s into the stall, and so waited for more than half a second.
    assert (result.latencies > 500).all()


def test_errors_are_counted_by_their_code(server: RankingServer):
    relay = Relay(server.target)
    with relaying(relay) as address:
        generator = LoadGenerator(Target(address, "plain", "plain"), REQUESTS, schema=SHOP)
        relay.failures = [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE]
        result = generator.run(np.arange(5) * 0.01)
        relay.failures = [grpc.StatusCode.UNAVAILABLE] * 2
        failed = generator.run(np.arange(2) * 0.01)
        generator.close()
    assert len(result.latencies) == 3
    assert dict(result.errors) == {"RESOURCE_EXHAUSTED": 1, "UNAVAILABLE": 1}
    assert failed.summary()["latency_ms"]["p99"] is None


def test_a_target_without_the_model_is_told_before_any_load(server: RankingServer):
    with pytest.raises(RequestError, match="'nope' is not served"):
        LoadGenerator(Target(server.target, "nope", "nope"), REQUESTS, schema=SHOP)


def test_two_targets_get_the_same_load_and_are_compared(server: RankingServer, tmp_path: Path):
    targets = [Target(server.target, name, name) for name in ("plain", "mixture")]
    options = LoadOptions(rates=(40.0,), seconds=0.5, rounds=2)
    steps: list[Any] = []
    runs = run_load_test(targets, REQUESTS, options, lambda *step: steps.append(step))
    assert [(run.target, run.round) for run in runs] == [
        ("plain", 0),
        ("mixture", 0),
        ("mixture", 1),
        ("plain", 1),
    ]
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    found = report(runs, targets, REQUESTS, options)
    first, second = found["results"]
    assert first["sent"] == second["sent"] == first["answered"] > 0
    assert found["lists"] == {"count": 3, "items_median": 3, "items_max": 7}
    plot(runs, tmp_path / "latency.svg")
    assert "mixture, 40/s" in (tmp_path / "latency.svg").read_text()
    assert len(tables(found)) >= 2


def test_ratios_are_taken_within_rounds():
    def run(target: str, number: int, latency: float) -> Run:
        result = LoadResult(1.0, 10.0, np.full(50, latency), {}, 0.0)
        return Run(target, 1.0, number, result)

    targets = [Target("h:1", "a", "a"), Target("h:1", "b", "b")]
    runs = [run("a", 0, 2.0), run("b", 0, 4.0), run("a", 1, 10.0), run("b", 1, 30.0)]
    (ratio,) = report(runs, targets, REQUESTS, LoadOptions(rates=(1.0,), rounds=2))["ratios"]
    assert (ratio["of"], ratio["to"]) == ("b", "a")
    assert ratio["latency"]["p99"] == {"median": 2.5, "low": 2.0, "high": 3.0}
    assert ratio["throughput"]["median"] == 1.0


def test_lateness_of_this_machine_is_told():
    late = [Run("a", 1.0, 0, LoadResult(1.0, 1.0, np.ones(3), {}, lag=50.0))]
    found = report(late, [Target("h:1", "a", "a")], REQUESTS, LoadOptions(rates=(1.0,)))
    assert "too slow or too busy" in str(tables(found)[-1])


def test_a_name_that_is_no_image_is_refused(tmp_path: Path):
    runs = [Run("a", 1.0, 0, LoadResult(1.0, 1.0, np.ones(3), {}, 0.0))]
    with pytest.raises(UserError, match=r"plot .*latency\.word"):
        plot(runs, tmp_path / "latency.word")


def test_requests_are_the_lists_of_a_data_set_without_their_labels(tmp_path: Path):
    write_data_folder(tmp_path / "data")
    found = data_requests(tmp_path / "data", "test", 5)
    assert len(found) == 5
    assert set(found[0].context) == {"top", "sub", "age", "clicked"}
    assert set(found[0].items[0]) == {"brand", "price", "sales"}
    with pytest.raises(UserError):
        data_requests(tmp_path / "none", "test", 5)
