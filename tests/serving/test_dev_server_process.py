"""The development server as a process: a port in use, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.serving.conftest import SECONDS, elwc, predict_request, shop_items
from tfr_moe.errors import UserError
from tfr_moe.serving.dev_server import DevServer

Stub = prediction_service_pb2_grpc.PredictionServiceStub


def test_a_port_in_use_is_rejected(server: DevServer, models: Path):
    port = int(server.target.rpartition(":")[2])
    with pytest.raises(UserError, match=f"cannot listen on {server.target}: the port is in use"):
        DevServer(models, port=port)
    command = [sys.executable, "-m", "tfr_moe.cli", "serve", "--models", models, "--port"]
    run = subprocess.run([*command, str(port)], capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].startswith("error: cannot listen on")
    assert "add_port" not in run.stderr  # gRPC's own line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_finishes_running_requests_when_it_is_stopped(
    models: Path, tmp_path: Path, number: int
):
    (tmp_path / "mixture").symlink_to(models / "mixture")
    script = "import sys; from tfr_moe.serving.dev_server import serve; serve(sys.argv[1], port=0)"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
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
        # Large enough to be running while the signal arrives.
        lists = [elwc(shop_items(60))] * 2000
        with grpc.insecure_channel(lines[-1].split()[2]) as opened:
            stub = Stub(opened)
            stub.Predict(predict_request("mixture", "rank", lists[:1]), timeout=SECONDS)
            running = stub.Predict.future(predict_request("mixture", "rank", lists))
            time.sleep(0.2)
            process.send_signal(number)
            answer = running.result(timeout=SECONDS)
        assert len(answer.outputs["valid"].int_val) == 2000
        _, rest = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest.startswith("stopping")
