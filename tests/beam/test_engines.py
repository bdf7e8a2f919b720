"""The same pipelines on engines that run elsewhere: Beam's portable runners, Apache Flink."""

from __future__ import annotations

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from rich.console import Console

from tests import tiny
from tests.beam import logs
from tests.beam.test_predict import table_rows, write_table
from tfr_moe.cli.prediction import predict
from tfr_moe.training import train

START_SECONDS = 180


def free_port():
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return result.getsockname()[1]


@contextmanager
def serving(command, port, log, **options):
    """Runs a job server until the block ends; waits until it listens."""
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options
        )
        try:
            for _ in range(START_SECONDS * 2):
                assert server.poll() is None, log.read_text()[-2000:]
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.5)
            else:
                pytest.fail(f"no job server after {START_SECONDS} s: {log.read_text()[-2000:]}")
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


@pytest.fixture(params=["portable", "flink"])
def engine(request, repository, tmp_path):
    """Beam arguments of a job server that runs while the test does."""
    port = free_port()
    if request.param == "portable":
        module = "apache_beam.runners.portability.local_job_service_main"
        command = [sys.executable, "-m", module, "--port", str(port)]
        environment = {**os.environ}
    else:
        script = str(repository / "scripts" / "flink_job_server.sh")
        # A server of seconds ends before the second compiler of Java has paid.
        quick = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        environment = {**os.environ, **quick, "PYTHON": sys.executable, "SLOTS": "2"}
        done = subprocess.run(
            [script, "fetch"], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode == 3:
            pytest.skip(f"no Flink: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        environment["FLINK_JOB_SERVER_JAR"] = done.stdout.splitlines()[-1]  # asks Maven once
        command = [script, str(port)]
    with serving(command, port, tmp_path / "server.log", env=environment):
        yield (
            "--runner=PortableRunner",
            f"--job_endpoint=127.0.0.1:{port}",
            "--environment_type=LOOPBACK",
            *(["--parallelism=2"] if request.param == "flink" else []),
        )


def build_from(folder, out, **options):
    """Builds `folder / out` from the log in `folder`; gives the manifest and the folder."""
    return logs.run(folder, folder / "log-*.csv", out, max_list_size=2, **options)


def predicted(folder, out, **options):
    """(list, item) -> (score, rank) as the run in `folder` predicts them."""
    table = str(folder / "rows.csv")
    predict(folder / "run", None, table, folder / out, item_id="sku", **options)
    with open(folder / out, newline="") as file:
        rows = csv.DictReader(file)
        return {(r["list_id"], r["item_id"]): (float(r["score"]), r["rank"]) for r in rows}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a log, a run and a table, and what this process builds and predicts there."""
    folder = tmp_path_factory.mktemp("here")
    rows = logs.log_rows(60)
    rows[7]["price"] = "cheap"
    for part in range(3):
        logs.write_csv(folder / f"log-{part}.csv", rows[part::3])
    data = tiny.write_data_folder(folder / "data", train=40, validation=20, test=20)
    settings = {**tiny.SMALL, "num_epochs": 1, "model": "dnn"}
    train(data, folder / "run", tiny.small_config(settings), Console(quiet=True))
    write_table(folder / "rows.csv", table_rows())
    return folder, *build_from(folder, "one"), predicted(folder, "here.csv")


# When a job ends, Flink hangs up on Beam's worker threads, and these say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.slow
def test_build_and_predict_give_what_they_give_in_this_process(engine, here, tmp_path):
    folder, manifest, one, expected = here
    there, two = build_from(folder, tmp_path / "two", beam_args=engine)
    totals = {"read": 180, "written": 120, "rejected": 1, "cut": 59}
    assert manifest["rows"] == there["rows"] == totals
    assert set(logs.records(one)) == set(logs.records(two))
    assert logs.tree(one) == logs.tree(two)

    actual = predicted(folder, tmp_path / "there.csv", beam_args=engine)
    assert actual.keys() == expected.keys()
    for key, (score, rank) in expected.items():
        # Batches differ between engines, and with them the order of sums in float32.
        assert actual[key][0] == pytest.approx(score, rel=1e-5, abs=1e-6)
        assert actual[key][1] == rank
