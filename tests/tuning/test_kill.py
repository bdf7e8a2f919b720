"""kill -9 on a command, on one of two commands, on a worker, and on the parent of workers.

The process that is killed is a command of its own; what follows on it happens in this process,
which has nothing of it but its files.
"""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from tests.tiny import SMALL, write_data_folder
from tfr_moe.config import applicable
from tfr_moe.tuning.config import load_sweep_config
from tfr_moe.tuning.sweep import tune
from tfr_moe.tuning.sweep_folder import load_trials

pytestmark = pytest.mark.slow
PATIENCE = 600
BASE = {
    **{key: list(v) if isinstance(v, tuple) else v for key, v in applicable("dnn", SMALL).items()},
    "model": "dnn",
    "expert_hidden_dims": [8],
    "metrics": ["session_auc"],
    "num_epochs": 1,
}
RATES = [0.1, 0.01, 0.001]
ALGORITHMS = {
    "grid": {},
    "random": {"max_trials": 3},
    "bayesian": {"max_trials": 3, "initial_points": 2},
    "hyperband": {"base": {**BASE, "num_epochs": 2}, "hyperband_factor": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("kill") / "data", train=64, validation=20)


class Command:
    """A `tfr-moe tune` in a process group of its own, with the lines that it prints."""

    def __init__(self, data, folder, *flags, **settings):
        path = write_sweep_config(folder, **settings)
        self.out = folder / "out"
        paths = ["--data", str(data), "--config", str(path), "--out", str(self.out)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tfr_moe.cli", "tune", *paths, *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "500"},
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.strip())

    def wait_for(self, happened):
        end = time.monotonic() + PATIENCE
        while not (result := happened()):
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < end, self.lines
            time.sleep(0.02)
        return result

    def wait_for_line(self, words):
        return self.wait_for(lambda: next((x for x in self.lines if words in x), None))

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self):
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join(10)
        assert code == 0, self.lines


def write_sweep_config(folder, **settings):
    path = folder / "sweep.yaml"
    space = {"learning_rate": RATES}
    path.write_text(yaml.safe_dump({"base": BASE, "space": space, **settings}))
    return path


def sweep_here(data, folder, text=None):
    """Runs or resumes the sweep of `folder` in this process; the lines that it prints."""
    text = text or io.StringIO()
    config = load_sweep_config(folder / "sweep.yaml")
    tune(data, folder / "out", config, Console(file=text, width=500))
    return [line.strip() for line in text.getvalue().splitlines()]


def records(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("trials/*/trial.json")}


def started(out):
    """A trial that is being trained."""
    done = records(out)
    return next(
        (p.parent.name for p in out.glob("work/*/seed-1") if p.parent.name not in done), None
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_killed_command_resumes_and_repeats_and_skips_nothing(data, tmp_path, algorithm):
    settings = {"algorithm": algorithm, **ALGORITHMS[algorithm]}
    command = Command(data, tmp_path, **settings)
    command.wait_for(lambda: records(command.out))
    interrupted = command.wait_for(lambda: started(command.out))
    command.kill()
    before = records(command.out)
    lines = sweep_here(data, tmp_path)
    after = records(command.out)
    assert {name: after[name] for name in before} == before
    begun = [line.split()[1].rstrip(":") for line in lines if line.startswith("trial ")]
    # Two lines a trial: what is tried, and what came of it.
    assert sorted(set(begun)) == sorted(set(after) - set(before))
    if interrupted not in before:
        assert begun[0] == interrupted
    trials = load_trials(command.out)
    assert [int(trial.trial_id) for trial in trials] == list(range(len(trials)))
    assert not any(trial.failed for trial in trials)
    for trial in trials:
        epochs = [entry["epoch"] for entry in trial.seeds[0].history]
        assert epochs == list(range(1, trial.budget.get("epochs", 1) + 1))
    points = [tuple(trial.hyperparameters.values()) for trial in trials]
    if algorithm == "hyperband":
        assert any("continues" in trial.budget for trial in trials)
    else:
        assert len(points) == len(set(points)) == len(RATES)


def test_the_trial_of_a_killed_command_is_taken_over_by_another(data, tmp_path, undisturbed):
    first = Command(data, tmp_path)
    lost = first.wait_for(lambda: started(first.out))
    # Halted, it cannot finish the trial while the other one starts.
    os.kill(first.process.pid, signal.SIGSTOP)

    class KillsFirst(io.StringIO):
        def write(self, text):
            if "trial " in text and first.process.poll() is None:
                first.kill()
            return super().write(text)

    lines = sweep_here(data, tmp_path, KillsFirst())
    assert first.process.returncode == -signal.SIGKILL
    assert any(line.startswith(f"trial {lost}:") for line in lines)
    assert_equals(undisturbed, first.out)


def test_a_killed_worker_is_restarted_and_its_trial_resumed(data, tmp_path, undisturbed):
    command = Command(data, tmp_path, "--workers", "2")
    command.wait_for_line("worker-1: trial")
    command.wait_for_line("worker-2: trial")
    os.kill(children(command.process.pid)[0], signal.SIGKILL)
    command.wait_for_line("ended with signal 9; restart 1 of 3")
    command.finish()
    assert_equals(undisturbed, command.out)


def test_workers_of_a_killed_command_end_within_five_seconds(data, tmp_path, undisturbed):
    command = Command(data, tmp_path, "--workers", "2")
    command.wait_for_line("worker-1: trial")
    command.wait_for_line("worker-2: trial")
    workers = children(command.process.pid)
    assert len(workers) == 2
    command.kill()
    end = time.monotonic() + 5
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.05)
    sweep_here(data, tmp_path)
    assert_equals(undisturbed, command.out)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """The trials of the same sweep without a kill."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_sweep_config(folder)
    sweep_here(data, folder)
    return load_trials(folder / "out")


def assert_equals(undisturbed, out):
    """Compares a sweep with one that nothing disturbed, and checks that its files are whole."""
    trials = load_trials(out)
    assert len(trials) == len(RATES)
    for trial, known in zip(trials, undisturbed, strict=True):
        assert (trial.trial_id, trial.hyperparameters) == (known.trial_id, known.hyperparameters)
        assert trial.mean == pytest.approx(known.mean, abs=1e-6)
    assert not list(out.rglob("*.tmp")) + list(out.rglob("*.partial-*"))
    assert not (out / "work").exists()


def children(pid):
    result = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in result.stdout.split()]


def alive(pid):
    """Whether a process runs; one that nobody has collected yet has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
