"""Tasks of a local cluster as processes: their environment, output, restarts and failures."""

import sys

import pytest

from tfr_moe.errors import UserError
from tfr_moe.training.distribute import local_cluster
from tfr_moe.training.local_cluster import run_local_workers


def python(source):
    return [sys.executable, "-c", source]


def test_each_task_has_its_own_environment_and_prefix(capfd):
    source = (
        "from tfr_moe.training.distribute import *; print('I am', cluster_from_environment().task)"
    )
    run_local_workers(local_cluster(2), lambda task: python(source))
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == ["[worker 0] I am worker 0", "[worker 1] I am worker 1"]


def test_all_tasks_are_restarted_when_one_is_killed(tmp_path, capfd):
    killed = str(tmp_path / "1")

    def command(task):
        start = f"import os, time; open({str(tmp_path / str(task.number))!r}, 'a').write('x')\n"
        if task.number == 1:
            return python(start + f"if open({killed!r}).read() == 'x': os.kill(os.getpid(), 9)")
        restarted = f"os.path.exists({killed!r}) and open({killed!r}).read() == 'xx'"
        return python(start + f"while not ({restarted}): time.sleep(0.05)")

    run_local_workers(local_cluster(2), command)
    assert [(tmp_path / name).read_text() for name in "01"] == ["xx", "xx"]
    assert "worker 1 ended with signal 9; restart 1 of 3" in capfd.readouterr().err


def test_the_task_that_failed_is_named():
    with pytest.raises(UserError, match=r"^worker [01] ended with exit code 3; re-run the same"):
        run_local_workers(local_cluster(2), lambda task: python("raise SystemExit(3)"), 0)
