"""The local server through its life: versions, monitoring, bad company, start and stop."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.serving.conftest import (
    CONTEXT,
    SECONDS,
    asking,
    elwc,
    publish,
    refused,
    shop_items,
    until,
)
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving import calls
from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.refusals import RefusedError
from tfr_moe.serving.repository import Repository
from tfr_moe.serving.server import RankingServer
from tfr_moe.serving.tensors import predict_request

pytestmark = pytest.mark.smoke

Stub = prediction_service_pb2_grpc.PredictionServiceStub


def test_versions_change_under_load_without_a_failed_request(models: Path, tmp_path: Path):
    shop = tmp_path / "shop"
    publish(models / "mixture" / "1", shop / "1")
    said: list[str] = []
    versions: list[int] = []
    stop = threading.Event()
    with RankingServer(tmp_path, port=0, poll_seconds=0.05, notify=said.append) as running:
        client = RankingClient(running.target, "shop", SHOP, timeout=SECONDS)

        def ask() -> None:
            while not stop.is_set():
                versions.append(client.rank(CONTEXT, shop_items(3)).version)

        asking_thread = threading.Thread(target=ask)
        asking_thread.start()
        try:
            until(lambda: 1 in versions)
            publish(models / "plain" / "1", shop / "12")
            until(lambda: versions[-1] == 12)
            with RankingClient(running.target, "shop", SHOP, version=1) as old:
                assert old.rank(CONTEXT, shop_items(3)).experts
            shutil.rmtree(shop / "1")
            until(lambda: "unloaded shop version 1" in said)
            count = len(versions)
            until(lambda: len(versions) > count + 5)
        finally:
            stop.set()
            asking_thread.join()
        assert versions == sorted(versions)
        assert [(s.version, s.state) for s in client.status()] == [(12, "AVAILABLE"), (1, "END")]
        client.close()
    assert said == ["serving shop version 1", "serving shop version 12", "unloaded shop version 1"]


def test_a_removed_version_answers_until_another_is_loaded(models: Path, tmp_path: Path):
    """As when versions are published and removed faster than they load."""
    shop = tmp_path / "shop"
    publish(models / "plain" / "1", shop / "1")
    said: list[str] = []
    repository = Repository(tmp_path, said.append)
    shutil.rmtree(shop / "1")
    (shop / "2").mkdir()  # can't be loaded
    repository.refresh()
    assert repository.get("shop").version == 1
    publish(models / "plain" / "1", shop / "3")
    repository.refresh()
    assert repository.get("shop").version == 3
    assert said[-2:] == ["serving shop version 3", "unloaded shop version 1"]
    shutil.rmtree(shop)
    repository.refresh()
    with pytest.raises(RefusedError, match=r"Latest\(shop\)"):
        repository.get("shop")


def test_a_broken_version_leaves_the_good_one_serving(models: Path, tmp_path: Path):
    shop = tmp_path / "shop"
    publish(models / "plain" / "1", shop / "1")
    (shop / "2").mkdir()
    shutil.copytree(models / "plain" / "1", shop / "3")
    shutil.rmtree(shop / "3" / "variables")
    said: list[str] = []
    with (
        RankingServer(tmp_path, port=0, notify=said.append) as running,
        RankingClient(running.target, "shop", SHOP, timeout=SECONDS) as client,
    ):
        assert client.rank(CONTEXT, shop_items(2)).version == 1
        states = client.status()
    assert [(s.version, s.state) for s in states] == [(3, "END"), (2, "END"), (1, "AVAILABLE")]
    assert states[0].error and states[1].error
    assert [line.split(":")[0] for line in said[:2]] == [
        "could not load shop version 3",
        "could not load shop version 2",
    ]


def test_a_version_that_fails_its_warm_up_is_not_served(models: Path, tmp_path: Path):
    from tfr_moe.serving.warmup import write_warmup

    shutil.copytree(models / "plain" / "1", tmp_path / "shop" / "1")
    extra = tmp_path / "shop" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    write_warmup(extra, "shop", ("rank",), [b"garbage"])
    with pytest.raises(UserError, match="no version could be loaded"):
        RankingServer(tmp_path, port=0)


def test_a_signature_of_waiting_requests_is_batched_and_gives_the_same_scores(models, signature):
    """Lists of unlike sizes at once: each answer is that of the list alone, but for its padding."""
    sizes = [1, 5, 2, 9, 3, 7, 4, 6]
    scores = {
        n: signature("plain", "serving_default")([elwc(shop_items(n))])["scores"][0] for n in sizes
    }
    with (
        RankingServer(models, port=0) as running,
        RankingClient(running.target, "plain", SHOP, timeout=SECONDS) as client,
        ThreadPoolExecutor(16) as pool,
    ):
        found = list(pool.map(lambda n: (n, client.predict(CONTEXT, shop_items(n))), sizes * 20))
    for size, given in found:
        np.testing.assert_allclose(given, scores[size], atol=1e-5)


def test_reflection_tells_the_services_and_their_messages(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert set(database.get_services()) >= {
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "grpc.health.v1.Health",
    }
    for service in ("PredictionService", "ModelService"):
        file = database.FindFileContainingSymbol(f"tensorflow.serving.{service}")
        assert service in [entry.name for entry in file.service]


def test_health_ends_with_the_server(models: Path):
    running = RankingServer(models, port=0).start()
    with grpc.insecure_channel(running.target) as opened:
        check = health_pb2_grpc.HealthStub(opened).Check
        for name in ("", "tensorflow.serving.PredictionService"):
            answer = check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        unknown = health_pb2.HealthCheckRequest(service="nope")
        assert refused(check, unknown)[0] == grpc.StatusCode.NOT_FOUND
        running.stop()
        assert refused(check, health_pb2.HealthCheckRequest())[0] == grpc.StatusCode.UNAVAILABLE


def test_prometheus_is_told_requests_and_versions(models: Path):
    with (
        RankingServer(models, port=0, metrics_port=0) as running,
        RankingClient(running.target, "plain", SHOP, timeout=SECONDS) as client,
    ):
        client.rank(CONTEXT, shop_items(2))
        client.rank(CONTEXT, shop_items(2))
        with (
            RankingClient(running.target, "nope", SHOP) as unknown,
            pytest.raises(UserError),
        ):
            unknown.rank(CONTEXT, [])
        url = f"http://127.0.0.1:{running.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            text = answer.read().decode()
    assert 'tfr_moe_requests_total{code="OK",method="Predict",model="plain"} 2.0' in text
    assert 'tfr_moe_requests_total{code="NOT_FOUND",method="Predict",model="unknown"} 1.0' in text
    assert 'tfr_moe_request_seconds_count{method="Predict",model="plain"} 2.0' in text
    assert 'tfr_moe_version_available{model="mixture",version="1"} 1.0' in text


def test_messages_beyond_the_limit_are_refused_and_the_server_goes_on(server, stub):
    request = predict_request("plain", "", [b"\x00" * (65 * 2**20)])
    with grpc.insecure_channel(
        server.target, options=[("grpc.max_send_message_length", -1)]
    ) as opened:
        assert refused(Stub(opened).Predict, request)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stub.Predict(asking(), timeout=SECONDS).model_spec.version.value == 1


def test_with_a_grpc_that_has_no_queue_for_us_requests_are_answered_all_the_same(
    models, signature, monkeypatch, caplog
):
    monkeypatch.setattr(calls, "_PARTS", ("Missing",))
    with (
        RankingServer(models, port=0) as running,
        RankingClient(running.target, "plain", SHOP, timeout=SECONDS) as client,
        grpc.insecure_channel(running.target) as opened,
    ):
        scores = signature("plain", "serving_default")([elwc(shop_items(4))])["scores"][0]
        given = client.predict(CONTEXT, shop_items(4))
        code, _ = refused(Stub(opened).Predict, predict_request("plain", "nope", [b""]))
    np.testing.assert_allclose(given, scores, atol=1e-5)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "has no Missing" in caplog.text


@pytest.mark.parametrize("method", ["Predict", "Classify"])
def test_200_slow_clients_hold_nobody_else_up(server, stub, method):
    """Each has begun a request and sends no byte of its message."""
    let_go = threading.Event()

    def nothing() -> Iterator[bytes]:
        let_go.wait(SECONDS)
        yield from ()

    channels = [grpc.insecure_channel(server.target) for _ in range(10)]
    path = f"/tensorflow.serving.PredictionService/{method}"
    slow = [
        channels[i % 10].stream_unary(path).future(nothing(), timeout=SECONDS) for i in range(200)
    ]
    half_open = [socket.create_connection(server.target.split(":")) for _ in range(20)]
    try:
        for _ in range(20):
            assert stub.Predict(asking(), timeout=SECONDS).model_spec.version.value == 1
        assert not any(call.done() for call in slow)
    finally:
        let_go.set()
        for call in slow:
            call.cancel()
        for opened in (*half_open, *channels):
            opened.close()
    assert stub.Predict(asking(), timeout=SECONDS).model_spec.version.value == 1


def test_folders_without_models_are_refused(models: Path, tmp_path: Path):
    with pytest.raises(UserError, match="does not exist"):
        RankingServer(tmp_path / "none", port=0)
    with pytest.raises(UserError, match="has no model"):
        RankingServer(tmp_path, port=0)
    with pytest.raises(UserError, match="the folder of one model"):
        RankingServer(models / "plain", port=0)


def test_a_port_in_use_is_refused(server: RankingServer, models: Path):
    with pytest.raises(UserError, match=f"{server.target}: Address already in use"):
        RankingServer(models, port=server.port)


def test_a_port_that_is_none_is_refused(models: Path):
    with pytest.raises(UserError, match="0 to 65535, got 70000"):
        RankingServer(models, port=70000)


def test_a_metrics_port_in_use_is_refused_and_nothing_is_left_listening(models: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = RankingServer(models, port=0, metrics_port=port)
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port} for metrics"):
            running.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.port))


def test_nobody_else_can_reach_it_unless_told(server: RankingServer):
    assert server.target.startswith("127.0.0.1:")


def test_serve_runs_until_it_is_told_to_stop(models: Path, tmp_path: Path):
    script = "import sys; from tfr_moe.serving.server import serve; serve(sys.argv[1], port=0)"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(models)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    assert process.stderr is not None
    try:
        while not lines or not lines[-1].startswith("listening on"):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        assert "TensorFlow Serving image" in lines[-1]
        target = lines[-1].split()[2]
        with RankingClient(target, "mixture", SHOP, timeout=SECONDS) as client:
            assert len(client.rank(CONTEXT, shop_items(4)).items) == 4
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest.startswith("stopping")
