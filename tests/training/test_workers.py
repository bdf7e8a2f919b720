"""Several processes train as one: their results, a worker that is killed, user errors."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SMALL, small_config, write_data_folder
from tfr_moe.errors import EXIT_PEER_LOST, UserError
from tfr_moe.training import load_run, train

# D = N - K and no noise: nothing is drawn, so that runs can be compared.
SETTINGS = {
    **SMALL,
    "model": "adv_hsc_moe",
    "batch_size": 16,
    "num_epochs": 2,
    "num_adversarial": 2,
    "noisy_gate": False,
    "importance_weight": 0.1,
    "metrics": ["ndcg"],
    "monitor": "ndcg",
}
TOGETHER = {"strategy": "MultiWorkerMirroredStrategy"}
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    # A last batch of one list, which only one worker can get.
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", 33, 17, 2)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    train(data, run, small_config(SETTINGS), QUIET)
    return run


def free_addresses(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def start(data, run, addresses, number, **settings):
    """A worker, whose output is appended to a file beside the run."""
    task = {"type": "worker", "index": number}
    cluster = json.dumps({"cluster": {"worker": addresses}, "task": task})
    with (run.parent / f"worker-{number}.txt").open("ab") as out:
        return subprocess.Popen(
            command(data, run, **TOGETHER, **settings),
            stdout=out,
            stderr=out,
            env={**os.environ, "TF_CONFIG": cluster},
        )


def command(data, run, **settings):
    config = small_config({**SETTINGS, **settings})
    path = run.parent / f"{run.name}.yaml"
    config.save(path)
    words = ["train", "--data", str(data), "--out", str(run), "--config", str(path)]
    return [sys.executable, "-m", "tfr_moe.cli", *words]


def history(run):
    path = run / "history.json"
    return json.loads(path.read_text()) if path.exists() else []


def names(run):
    return {path.name for path in run.iterdir()}


@pytest.mark.slow
def test_two_workers_train_as_one(data, alone, tmp_path):
    run = tmp_path / "run"
    addresses = free_addresses(2)
    workers = [start(data, run, addresses, number) for number in (0, 1)]
    codes = [worker.wait(timeout=900) for worker in workers]
    said = [(tmp_path / f"worker-{number}.txt").read_text() for number in (0, 1)]
    assert codes == [0, 0], said[0][-3000:]
    assert "wrote" in said[0]
    assert "epoch" not in said[1]
    for one, two in zip(history(alone), history(run), strict=True):
        # Sums in another order differ in the last digits.
        assert two == pytest.approx(one, abs=1e-4)
    ours, theirs = (load_run(path).model.get_weights() for path in (run, alone))
    for one, two in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-4)
    assert names(run) == names(alone)


@pytest.mark.slow
def test_workers_started_again_after_one_was_killed_continue(data, tmp_path):
    run = tmp_path / "run"
    addresses = free_addresses(2)

    def both():
        longer = {"model": "dnn", "num_epochs": 8, "early_stopping_patience": 0}
        return [start(data, run, addresses, number, **longer) for number in (0, 1)]

    workers = both()
    try:
        deadline = time.monotonic() + 900
        while len(history(run)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers[1].send_signal(signal.SIGKILL)
        workers[1].wait()
        lost = workers[0].wait(timeout=900)
        before = history(run)
        assert 2 <= len(before) < 8
        workers = both()
        codes = [worker.wait(timeout=900) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    said = (tmp_path / "worker-0.txt").read_text()
    assert (lost, codes) == (EXIT_PEER_LOST, [0, 0]), said[-3000:]
    assert "lost other processes of the cluster" in said
    assert "re-run the same command" in said
    assert "resuming after epoch" in said
    after = history(run)
    assert [entry["epoch"] for entry in after] == list(range(1, 9))
    assert after[: len(before) - 1] == before[:-1]
    assert not {name for name in names(run) if name.startswith((".", "backup"))}


def test_a_strategy_is_for_neural_models():
    with pytest.raises(UserError, match="strategy is not used by model 'svm_rank'"):
        small_config({}, model="svm_rank", strategy="MirroredStrategy")


@pytest.mark.parametrize(
    "flags", [["--set", "strategy=MirroredStrategy"], ["--model", "svm_rank"], []]
)
def test_training_of_one_process_is_rejected_in_a_cluster(
    data, tmp_path, capsys, monkeypatch, flags
):
    from tfr_moe.cli import main

    task = {"type": "worker", "index": 0}
    cluster = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": task})
    monkeypatch.setenv("TF_CONFIG", cluster)

    with pytest.raises(SystemExit) as ended:
        main(["train", "--data", str(data), "--out", str(tmp_path / "run"), *flags])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: TF_CONFIG names several processes: set strategy=MultiWorkerMirroredStrategy, "
        "or unset it\n"
    )
    assert not (tmp_path / "run").exists()
