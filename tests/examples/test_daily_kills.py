"""kill -9 in each step of the daily loop: the same command then ends in the same state.

What is killed is a process with its own processes; all other steps run in the process of the tests,
by the same script and commands.
"""

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.tiny import SMALL, shop_log, small_config
from tfr_moe import FeatureSchema
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.serving.versions import versions_of
from tfr_moe.utils.io import read_json

pytestmark = pytest.mark.slow
MONDAY, TUESDAY = "2024-06-03", "2024-06-04"
# The process is killed as soon as the file is there.
FILES = {
    "accept": [f"incoming/days/.{TUESDAY}.partial", f"incoming/days/{TUESDAY}"],
    "join": [f"windows/.{TUESDAY}.partial"],
    "train": [f"runs/{TUESDAY}/config.yaml", f"runs/{TUESDAY}/.metrics.json.new"],
    "publish": ["models/.shop.partial/shop/2", "models/shop/2"],
}
# The step may have ended before the kill arrives.
LAST = (f"runs/{TUESDAY}/.metrics.json.new", "models/shop/2")
CASES = [(step, at) for step, files in FILES.items() for at in files]


def run_here(script: Path, words: list[str]) -> int:
    """Runs the script and its commands in this process; the code that it ends with."""

    def step(*arguments: object) -> None:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        if ended.value.code:
            raise ended.value

    spec = importlib.util.spec_from_file_location("run_day", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # As in a process of its own; tests switch it off.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    with mock.patch.object(module, "step", step), mock.patch.object(sys, "argv", words):
        try:
            module.main()
        except SystemExit as ended:
            return int(ended.code)
    return 0


class Day:
    """The second day, step by step, in a folder that can be put back before each step."""

    def __init__(self, folder: Path, script: Path):
        self.work, self._before = folder / "work", folder / "before"
        paths = ["--schema", folder / "schema.yaml", "--work", self.work]
        given = [*paths, "--config", folder / "config.yaml"]
        rules = ["--publish", "margin=1", "category-margin=1", "max-ratio=99"]
        command = [script, TUESDAY, "--logs", folder / f"{TUESDAY}.csv"]
        self._script = script
        self._words = [str(word) for word in (*command, *given, *rules)]
        self.state: dict[str, dict[str, object]] = {}

    def run(self, step: str) -> int:
        return run_here(self._script, [*self._words, "--step", step])

    def run_and_remember(self, step: str) -> None:
        shutil.copytree(self.work, self._before / step)
        assert self.run(step) == 0
        self.state[step] = state_of(self.work)

    def put_back(self, step: str) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self._before / step, self.work)

    def killed(self, step: str, at: str) -> bool:
        """Runs a step and kills its process group; whether it was alive."""
        words = [sys.executable, *self._words, "--step", step]
        process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (self.work / at).exists():
            time.sleep(0.0005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        ended = process.wait()
        # Its own processes free their locks when their last threads have ended.
        for path in self.work.rglob(".*.partial"):
            folder = os.open(path, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
            os.close(folder)
        return ended == -signal.SIGKILL


def state_of(work: Path) -> dict[str, object]:
    """What the next step and the next day read."""
    state: dict[str, object] = {}
    for name in ("data/days", "windows"):
        for path in sorted(work.glob(f"{name}/*/**/*")):
            if path.is_file() and path.name != "manifest.json":  # it has the time of the build
                state[str(path.relative_to(work))] = path.read_bytes()
            elif path.is_file():
                state[str(path.relative_to(work))] = read_json(path)["fingerprint"]
    for path in sorted(work.glob("runs/*/metrics.json")):
        found = {k: v for k, v in read_json(path).items() if k != "seconds"}
        state[path.parent.name] = json.dumps(found)
    model = work / "models" / "shop"
    state["versions"] = versions_of(model)
    state["runs"] = [
        read_json(model / str(version) / "assets.extra" / "decision.json")["run"]
        for version in versions_of(model)
    ]
    return state


@pytest.fixture(scope="module")
def day(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("daily")
    logs = {MONDAY: shop_log(300, 1), TUESDAY: shop_log(300, 2)}
    roles = {"list_id": "search_id", "label": "purchased", "time": "date"}
    FeatureSchema.infer(logs[MONDAY], **roles).save(folder / "schema.yaml")
    small_config({**SMALL, "model": "dnn", "num_epochs": 2}).save(folder / "config.yaml")
    for name, log in logs.items():
        log.assign(purchased=log["purchased"].astype(int)).to_csv(folder / f"{name}.csv")
    script = repository / "examples" / "daily" / "run_day.py"
    first = [script, MONDAY, "--logs", folder / f"{MONDAY}.csv"]
    where = ["--schema", folder / "schema.yaml", "--work", folder / "work"]
    words = [*first, *where, "--config", folder / "config.yaml"]
    assert run_here(script, list(map(str, words))) == 0
    prepared = Day(folder, script)
    for step in FILES:
        prepared.run_and_remember(step)
    return prepared


@pytest.mark.parametrize(("step", "at"), CASES)
def test_the_same_command_after_a_kill_ends_in_the_same_state(day, step, at):
    day.put_back(step)
    assert day.killed(step, at) or at in LAST
    # What is half done is in hidden folders, which nothing reads.
    for folder in ("data/days", "windows", "incoming/days"):
        for path in (day.work / folder).glob("[!.]*"):
            assert read_json(path / "manifest.json")["fingerprint"]
    assert versions_of(day.work / "models" / "shop") in ([1], [1, 2])

    assert day.run(step) == 0
    found, expected = state_of(day.work), day.state[step]
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert not list(day.work.glob("*/.*.partial")) or step == "publish"
    assert day.run(step) == 0 and state_of(day.work) == found
