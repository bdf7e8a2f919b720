"""The example of a daily schedule: a first day, a second one from it, and one in cents.

After kill -9 in each step of the second day the same command ends in the same state. The first day
and what is killed are processes with their own processes; all other steps run in the process of the
tests, by the same script and commands.
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

import pandas as pd
import pytest

from tests.tiny import SMALL, shop_log, small_config
from tfr_moe import FeatureSchema
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.data import DataFolder
from tfr_moe.serving.versions import versions_of
from tfr_moe.utils.io import read_json

pytestmark = pytest.mark.slow
MONDAY, TUESDAY, WEDNESDAY = "2024-06-03", "2024-06-04", "2024-06-05"
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


class Days:
    """The second day, step by step, in a folder that can be put back before each step."""

    def __init__(self, folder: Path, script: Path):
        self._folder, self._script = folder, script
        self.work, self._before = folder / "work", folder / "before"
        self.state: dict[str, dict[str, object]] = {}

    def command(self, day: str, *options: str) -> list[str]:
        """The words of the script for a day; so few lists can show nothing."""
        paths = ["--schema", self._folder / "schema.yaml", "--work", self.work]
        given = [*paths, "--config", self._folder / "config.yaml"]
        rules = ["--publish", "margin=1", "category-margin=1", "max-ratio=99"]
        words = [self._script, day, "--logs", self._folder / f"{day}.csv", *given, *rules]
        return [str(word) for word in (*words, *options)]

    def run(self, day: str, *options: str) -> int:
        return run_here(self._script, self.command(day, *options))

    def write_log(self, day: str, log: pd.DataFrame) -> None:
        log = log.assign(purchased=log["purchased"].astype(int))
        log.to_csv(self._folder / f"{day}.csv", index=False)

    def remember(self, step: str) -> None:
        shutil.copytree(self.work, self._before / step)

    def put_back(self, step: str) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self._before / step, self.work)

    def killed(self, step: str, at: str) -> bool:
        """Runs a step and kills its process group; whether it was alive."""
        words = [sys.executable, *self.command(TUESDAY, "--step", step)]
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
        result = {k: v for k, v in read_json(path).items() if k != "seconds"}
        state[path.parent.name] = json.dumps(result)
    model = work / "models" / "shop"
    state["versions"] = versions_of(model)
    state["runs"] = [
        read_json(model / str(version) / "assets.extra" / "decision.json")["run"]
        for version in versions_of(model)
    ]
    return state


@pytest.fixture(scope="module")
def days(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("daily")
    prepared = Days(folder, repository / "examples" / "daily" / "run_day.py")
    roles = {"list_id": "search_id", "label": "purchased", "time": "date"}
    FeatureSchema.infer(shop_log(300, 1), **roles).save(folder / "schema.yaml")
    small_config({**SMALL, "model": "dnn", "num_epochs": 2}).save(folder / "config.yaml")
    prepared.write_log(MONDAY, shop_log(300, 1))
    prepared.write_log(TUESDAY, shop_log(300, 2))
    subprocess.run([sys.executable, *prepared.command(MONDAY)], check=True)
    for step in FILES:
        prepared.remember(step)
        assert prepared.run(TUESDAY, "--step", step) == 0
        prepared.state[step] = state_of(prepared.work)
    prepared.remember("end")
    return prepared


def test_three_days_of_which_the_last_is_broken(days):
    days.put_back("accept")
    model = days.work / "models" / "shop"
    assert versions_of(model) == [1]
    assert days.run(MONDAY) == 0 and versions_of(model) == [1]
    days.put_back("end")
    assert versions_of(model) == [1, 2]
    manifest = json.loads((days.work / "runs" / TUESDAY / "manifest.json").read_text())
    assert Path(manifest["start"]["path"]) == days.work / "runs" / MONDAY
    assert list(DataFolder(manifest["data"]["path"]).manifest["days"]) == [MONDAY, TUESDAY]
    second = shop_log(300, 2)
    days.write_log(WEDNESDAY, second.assign(price=100 * second["price"]))
    assert days.run(WEDNESDAY) == 3
    assert versions_of(model) == [1, 2]
    assert not (days.work / "runs" / WEDNESDAY).exists()
    assert sorted(path.name for path in (days.work / "data" / "days").iterdir()) == [
        MONDAY,
        TUESDAY,
    ]


@pytest.mark.parametrize(("step", "at"), CASES)
def test_the_same_command_after_a_kill_ends_in_the_same_state(days, step, at):
    for _ in range(1 if at in LAST else 5):  # the step may be over before it is killed
        days.put_back(step)
        if days.killed(step, at):
            break
    else:
        assert at in LAST
    # What is half done is in hidden folders, which nothing reads.
    for folder in ("data/days", "windows", "incoming/days"):
        for path in (days.work / folder).glob("[!.]*"):
            assert read_json(path / "manifest.json")["fingerprint"]
    assert versions_of(days.work / "models" / "shop") in ([1], [1, 2])

    assert days.run(TUESDAY, "--step", step) == 0
    actual, expected = state_of(days.work), days.state[step]
    assert actual.keys() == expected.keys()
    assert [name for name in expected if actual[name] != expected[name]] == []
    assert not list(days.work.glob("*/.*.partial")) or step == "publish"
    assert days.run(TUESDAY, "--step", step) == 0 and state_of(days.work) == actual
