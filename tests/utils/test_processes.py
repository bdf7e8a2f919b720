"""The supervisor: restarts, Ctrl-C, and children that exit with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tfr_moe.errors import UserError
from tfr_moe.utils.processes import supervise

WAITING = "from tfr_moe.utils.processes import exit_with_parent; exit_with_parent(); import time; "


def appending(path, then=""):
    """A command that adds a letter to a file at each start."""
    return [sys.executable, "-c", f"import os; open({str(path)!r}, 'a').write('x'); {then}"]


def run(progress=lambda: None, **commands):
    """The lines that are logged while commands run."""
    lines = []
    supervise(commands, progress, lines.append)
    return lines


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


def test_a_command_that_fails_is_restarted_alone(tmp_path):
    fails_twice = f"raise SystemExit(len(open({str(tmp_path / 'bad')!r}).read()) < 3)"
    lines = run(good=appending(tmp_path / "good"), bad=appending(tmp_path / "bad", fails_twice))
    assert (tmp_path / "good").read_text() == "x"
    assert lines[0] == "bad ended with exit code 1; restart 1 of 3"


def test_a_command_that_always_fails_is_named(tmp_path):
    bad = appending(tmp_path / "bad", "os.kill(os.getpid(), 9)")
    message = "^bad ended with signal 9 after 3 restarts without progress; re-run the same command"
    with pytest.raises(UserError, match=message):
        run(bad=bad)
    assert (tmp_path / "bad").read_text() == "xxxx"


def test_restarts_are_counted_since_the_last_progress(tmp_path):
    path = tmp_path / "bad"
    bad = appending(path, f"raise SystemExit(len(open({str(path)!r}).read()) < 6)")
    run(progress=lambda: len(path.read_text()) // 2, bad=bad)
    assert path.read_text() == "xxxxxx"


def test_a_user_error_is_not_retried(tmp_path):
    bad = appending(tmp_path / "bad", "raise SystemExit(2)")
    with pytest.raises(UserError, match=r"^bad ended with exit code 2$"):
        run(bad=bad)
    assert (tmp_path / "bad").read_text() == "x"


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
    program = (
        # A process started in the background may have inherited that SIGINT is ignored.
        "import signal, sys\nfrom tfr_moe.utils.processes import *\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"commands = {{name: [sys.executable, '-c', {source!r}] for name in 'ab'}}\n"
        "supervise(commands, lambda: None, print)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    return parent, [int(path.name) for path in folder.iterdir()]
