"""The Airflow DAG of the daily schedule, imported by Airflow, each of its tasks run by it."""

import json
import os
import subprocess
import sys

import pytest

from tests.tiny import SMALL, shop_log, small_config
from tfr_moe import FeatureSchema
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.versions import versions_of

DAY = "2024-06-03"
ROLES = {"list_id": "search_id", "label": "purchased", "time": "date"}
# Airflow's command line, which takes seconds to load, for one command after the other.
AIRFLOW = """
import contextlib, io, json, os, sys
from airflow.cli import cli_parser

parser = cli_parser.get_parser()
for line in sys.stdin:
    arguments, variables = json.loads(line)
    os.environ.update(variables)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        parsed = parser.parse_args(arguments)
        parsed.func(parsed)
    print("printed " + json.dumps(printed.getvalue()), flush=True)
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, repository):
    """Runs a command of Airflow, which has an environment of its own, and returns its output."""
    home = tmp_path_factory.mktemp("airflow")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "venv"], check=True)
    python = home / "venv" / "bin" / "python"
    packages = ["-q", "--no-deps", "-r", repository / "tests" / "examples" / "airflow.txt"]
    # uv takes a tenth of pip's time, but may be absent, and does not read pip's configuration.
    uv, pip = ["uv", "pip", "install", "--python", python], ["pip", "--python", python, "install"]
    if subprocess.run([sys.executable, "-m", *uv, *packages], check=False).returncode:
        subprocess.run([sys.executable, "-m", *pip, "--no-compile", *packages], check=True)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(repository / "examples" / "daily"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    said = home / "stderr.txt"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [python, "-c", AIRFLOW],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):

        def run(*arguments, **variables):
            named = {f"AIRFLOW_VAR_{name.upper()}": str(value) for name, value in variables.items()}
            print(json.dumps([arguments, named]), file=process.stdin, flush=True)
            lines = []
            for line in process.stdout:
                if line.startswith("printed "):
                    return json.loads(line.removeprefix("printed "))
                lines.append(line)
            raise AssertionError("".join(lines)[-3000:] + said.read_text()[-3000:])

        run("db", "migrate")
        yield run
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Airflow 2 needs Python 3.12 or older")
def test_airflow_runs_each_task_of_a_day(airflow, tmp_path):
    log = shop_log(300, 1)
    FeatureSchema.infer(log, **ROLES).save(tmp_path / "schema.yaml")
    small_config({**SMALL, "model": "dnn", "num_epochs": 2}).save(tmp_path / "config.yaml")
    log.assign(purchased=log["purchased"].astype(int)).to_csv(tmp_path / f"{DAY}.csv", index=False)
    variables = {
        "ranker_python": sys.executable,
        "ranker_logs": tmp_path,
        "ranker_schema": tmp_path / "schema.yaml",
        "ranker_work": tmp_path / "work",
        "ranker_options": f"--config {tmp_path / 'config.yaml'}",
        "ranker_models_config": tmp_path / "models.config",
    }
    assert airflow("dags", "list-import-errors").splitlines()[-1] == "No data found"
    tasks = airflow("tasks", "list", "ranker").splitlines()[-5:]
    assert set(tasks) == {"accept", "join", "train", "publish", "labels"}
    models = tmp_path / "work" / "models"
    for task in ("accept", "join", "train", "publish"):
        airflow("tasks", "test", "ranker", task, DAY, **variables)
    assert versions_of(models / "shop") == [1]
    with DevServer(models, port=0) as server:
        airflow("tasks", "test", "ranker", "labels", DAY, ranker_server=server.target, **variables)
    assert "stable" in (tmp_path / "models.config").read_text()
