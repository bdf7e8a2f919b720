"""Tasks as processes: their lines are passed on, and one that fails ends the others."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tfr_moe.cluster import local_cluster
from tfr_moe.errors import UserError
from tfr_moe.local_workers import LOST, run_local_workers

WAITING = "from tfr_moe.children import end_with_parent; end_with_parent(); import time; "


def python(source):
    return [sys.executable, "-c", source]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_task_knows_its_place_and_its_lines_carry_its_name(capfd):
    said = "from tfr_moe.cluster import *; print('I am', cluster_of_environment().task)"
    run_local_workers(local_cluster(2), lambda task: python(said))
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == ["[worker 0] I am worker 0", "[worker 1] I am worker 1"]


def test_the_task_that_failed_is_named_and_not_the_one_that_lost_it(tmp_path):
    def command(task):
        if task.number == 0:
            return python(f"raise SystemExit({LOST})")
        mine = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); "
        return python(mine + "time.sleep(0.3); os.kill(os.getpid(), 9)")

    with pytest.raises(UserError, match=r"^worker 1 was ended by signal 9, so the others were"):
        run_local_workers(local_cluster(2), command)


def test_the_others_are_ended_when_one_fails(tmp_path):
    def command(task):
        if task.number == 0:
            write = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); "
            return python(WAITING + write + "time.sleep(600)")
        wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(.1)\n"
        return python(wait + "raise SystemExit(3)")

    with pytest.raises(UserError, match="worker 1 ended with exit code 3"):
        run_local_workers(local_cluster(2), command)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_they_end_with_a_parent_that_is_killed(tmp_path):
    child = WAITING + f"open({str(tmp_path)!r} + '/' + str(__import__('os').getpid()), 'w'); "
    source = (
        "from tfr_moe.local_workers import run_local_workers\n"
        "from tfr_moe.cluster import local_cluster\n"
        f"import sys\nrun_local_workers(local_cluster(2), lambda task: [sys.executable, '-c', "
        f"{child + 'time.sleep(600)'!r}])"
    )
    parent = subprocess.Popen(python(source))
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = [int(path.name) for path in tmp_path.iterdir()]
    assert len(children) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
