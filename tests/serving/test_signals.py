"""A program that waits for its end hears of it, whenever the signal comes and whatever thread gets it.

Each runs in a process of its own: one that does not hear could not be told to stop either.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serving.conftest import SECONDS

pytestmark = pytest.mark.smoke

_IMPORTS = """
import os, random, signal, threading, time
from tfr_moe.serving import signals
from tfr_moe.serving.signals import stop_signals
"""


@pytest.fixture
def printed_by(run_python) -> Callable[[str], list[str]]:
    def printed(script: str) -> list[str]:
        done = run_python(_IMPORTS + script, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return printed


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_before_the_wait_ends_it(name, printed_by):
    script = f"""
with stop_signals() as wait:
    os.kill(os.getpid(), signal.{name})
    wait()
    print("heard")
"""
    assert printed_by(script) == ["heard"]


def test_a_signal_that_another_thread_gets_ends_the_wait(printed_by):
    """The system may give it to any."""
    script = """
with stop_signals() as wait:
    other = threading.Thread(target=time.sleep, args=(1,))
    other.start()
    def send():
        time.sleep(0.2)  # until the wait has begun
        signal.pthread_kill(other.ident, signal.SIGTERM)
    threading.Thread(target=send).start()
    wait()
    print("heard")
"""
    assert printed_by(script) == ["heard"]


def test_a_signal_at_any_moment_of_the_wait_ends_it(printed_by):
    """One from a timer can be had after microseconds, so it is a timer's that stops here."""
    script = """
signals.STOP_SIGNALS = (signal.SIGALRM,)
for _ in range(5000):
    with stop_signals() as wait:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 4e-5))
        wait()
print("heard")
"""
    assert printed_by(script) == ["heard"]


def test_other_signals_do_not_end_the_wait(printed_by):
    script = """
signal.signal(signal.SIGUSR1, lambda *_: print("usr1"))
def send():
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.2)
    print("still")
    os.kill(os.getpid(), signal.SIGTERM)
with stop_signals() as wait:
    threading.Thread(target=send).start()
    wait()
print("heard")
"""
    assert printed_by(script) == ["usr1", "still", "heard"]


def test_afterwards_signals_are_handled_as_before(printed_by):
    script = """
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
with stop_signals():
    os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGTERM)
print(signal.set_wakeup_fd(-1))
"""
    assert printed_by(script) == ["mine", "-1"]
