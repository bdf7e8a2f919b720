"""The supervisor: restarts, groups, limits, Ctrl-C, output, and children that exit with it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from tfr_moe.errors import EXIT_PEER_LOST, UserError
from tfr_moe.utils.processes import (
    ChildCommand,
    ChildProcess,
    Supervisor,
    exit_with_parent,
)

WAITING = "from tfr_moe.utils.processes import exit_with_parent; exit_with_parent(); import time; "


def python(name, source):
    return ChildCommand(name, [sys.executable, "-c", source])


def appending(name, path, then=""):
    """Adds a letter to a file at each start."""
    return python(name, f"import os, time; open({str(path)!r}, 'a').write('x'); {then}")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(happened, seconds=60):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_output_is_prefixed_with_the_name(capfd):
    commands = [python("one", "print(1)"), python("two", "import sys; print(2, file=sys.stderr)")]
    with Supervisor(commands, prefix_output=True) as supervisor:
        supervisor.run()
    assert sorted(capfd.readouterr().err.splitlines()) == ["[one] 1", "[two] 2"]


def test_at_most_max_processes_run_at_a_time(tmp_path):
    source = (
        "import os, time; mine = {0!r} + str(os.getpid()); open(mine, 'w').close(); "
        "time.sleep(0.3); print(len(os.listdir({0!r}))); os.unlink(mine)"
    ).format(f"{tmp_path}/")
    commands = [python(str(number), source) for number in range(4)]
    highest = 0
    with Supervisor(commands, max_processes=2) as supervisor:
        while not supervisor.poll():
            highest = max(highest, len(list(tmp_path.iterdir())))
            time.sleep(0.02)
    assert highest == 2


def test_a_command_that_fails_is_restarted_alone(tmp_path):
    fails_twice = f"raise SystemExit(len(open({str(tmp_path / 'bad')!r}).read()) < 3)"
    commands = [
        appending("good", tmp_path / "good"),
        appending("bad", tmp_path / "bad", fails_twice),
    ]
    failed, lines = [], []
    with Supervisor(commands, on_failure=failed.append, log=lines.append) as supervisor:
        supervisor.run()
    assert (tmp_path / "good").read_text() == "x"
    assert failed == ["bad", "bad"]
    assert lines[0] == "bad ended with exit code 1; restart 1 of 3"


def test_a_command_that_always_fails_is_named(tmp_path):
    bad = appending("bad", tmp_path / "bad", "os.kill(os.getpid(), 9)")
    with (
        pytest.raises(
            UserError, match=r"^bad ended with signal 9 after 3 restarts without progress"
        ),
        Supervisor([bad]) as supervisor,
    ):
        supervisor.run()
    assert (tmp_path / "bad").read_text() == "xxxx"


def test_restarts_are_counted_since_the_last_progress(tmp_path):
    path = tmp_path / "bad"
    bad = appending("bad", path, f"raise SystemExit(len(open({str(path)!r}).read()) < 6)")
    with Supervisor([bad], progress=lambda: len(path.read_text()) // 2) as supervisor:
        supervisor.run()
    assert path.read_text() == "xxxxxx"


def test_a_user_error_is_not_retried(tmp_path):
    bad = appending("bad", tmp_path / "bad", "raise SystemExit(2)")
    with pytest.raises(UserError, match=r"^bad ended with exit code 2$"), Supervisor([bad]) as one:
        one.run()
    assert (tmp_path / "bad").read_text() == "x"


def test_a_group_is_restarted_together(tmp_path):
    once = f"os.kill(os.getpid(), 9) if open({str(tmp_path / 'two')!r}).read() == 'x' else None"
    wait = f"\nwhile open({str(tmp_path / 'two')!r}).read() < 'xx': time.sleep(0.05)"
    leader = python("one", f"import time\nopen({str(tmp_path / 'one')!r}, 'a').write('x'){wait}")
    (tmp_path / "two").touch()
    lines = []
    with Supervisor(
        [leader, appending("two", tmp_path / "two", once)], leader="one", log=lines.append
    ) as group:
        group.run()
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text() == "xx"
    assert lines == ["two ended with signal 9; restart 1 of 3"]


def test_the_others_are_stopped_when_one_of_a_group_fails(tmp_path):
    pid = str(tmp_path / "pid")
    waits = WAITING + f"import os; open({pid!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    fails = (
        f"import os, time\nwhile not os.path.exists({pid!r}): time.sleep(.1)\nraise SystemExit(3)"
    )
    commands = [python("one", waits), python("two", fails)]
    with (
        pytest.raises(UserError, match=r"^two ended with exit code 3; re-run the same command"),
        Supervisor(commands, leader="one", max_restarts=0) as group,
    ):
        group.run()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_the_process_that_failed_is_blamed_and_not_the_one_that_lost_it():
    lost = python("one", f"raise SystemExit({EXIT_PEER_LOST})")
    killed = python("two", "import os, time; time.sleep(0.3); os.kill(os.getpid(), 9)")
    with (
        pytest.raises(UserError, match=r"^two ended with signal 9"),
        Supervisor([lost, killed], leader="one", max_restarts=0) as group,
    ):
        group.run()


def test_a_group_is_done_with_its_leader(monkeypatch):
    monkeypatch.setattr("tfr_moe.utils.processes._LEADER_GRACE_SECONDS", 0.2)
    commands = [python("one", "pass"), python("two", WAITING + "time.sleep(600)")]
    began = time.monotonic()
    with Supervisor(commands, leader="one") as group:
        group.run()
    assert time.monotonic() - began < 60


def test_ctrl_c_stops_all_children(tmp_path):
    child = WAITING + f"open({str(tmp_path)!r} + '/' + str(__import__('os').getpid()), 'w'); "
    parent, children = supervising(child + "time.sleep(600)", tmp_path)
    parent.send_signal(signal.SIGINT)
    assert parent.wait() != 0
    assert not any(map(alive, children))


def test_children_end_with_a_parent_that_is_killed(tmp_path):
    child = WAITING + f"open({str(tmp_path)!r} + '/' + str(__import__('os').getpid()), 'w'); "
    parent, children = supervising(child + "time.sleep(600)", tmp_path)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not any(map(alive, children)))


def supervising(source, folder):
    """A process that supervises two children, which write their ids into a folder."""
    supervise = (
        # A process started in the background may have inherited that SIGINT is ignored.
        "import signal, sys\nfrom tfr_moe.utils.processes import *\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"commands = [ChildCommand(n, [sys.executable, '-c', {source!r}]) for n in 'ab']\n"
        "with Supervisor(commands) as both: both.run()"
    )
    parent = subprocess.Popen([sys.executable, "-c", supervise], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    return parent, [int(path.name) for path in folder.iterdir()]


def test_a_child_reads_its_first_line():
    source = "import sys; raise SystemExit(int(sys.stdin.readline()))"
    child = ChildProcess(python("child", source), first_line="7")
    child.wait(60)
    assert child.exit_code == 7
    child.stop()


def test_workers_of_a_pool_can_exit_with_their_parent():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=exit_with_parent) as pool:
        assert pool.submit(abs, -3).result() == 3
