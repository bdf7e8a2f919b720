"""Calls that are taken from gRPC's queue: each gets its answer, whatever clients and handlers do."""

from __future__ import annotations

import random
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import pytest

from tests.serving.conftest import SECONDS, until
from tfr_moe.serving import calls
from tfr_moe.serving.calls import Call, CallQueue, UnsupportedError

pytestmark = pytest.mark.smoke

PATH = "/test.Service/Method"


class Running(NamedTuple):
    server: grpc.Server
    queue: CallQueue
    channel: grpc.Channel

    def ask(self, message: bytes) -> grpc.Future:
        return self.channel.unary_unary(PATH).future(message, timeout=SECONDS)


@contextmanager
def answering(handle: Callable[[Call], None], limit: int = 64) -> Iterator[Running]:
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", 1000)])
    queue = CallQueue(server, PATH, handle, limit)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    queue.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Running(server, queue, channel)
    assert server.stop(None).wait(SECONDS)
    queue.stop()


def reverse(call: Call) -> None:
    call.finish(grpc.StatusCode.OK, "", call.message[::-1])


def code_of(answer: grpc.Future) -> grpc.StatusCode:
    error = answer.exception()
    assert isinstance(error, grpc.RpcError)
    return error.code()


def threads_of_calls() -> int:
    return sum(thread.name == "calls" for thread in threading.enumerate())


def test_each_of_many_calls_gets_its_own_answer():
    with answering(reverse) as running:
        asked = [running.ask(b"%d." % number) for number in range(500)]
        found = [answer.result() for answer in asked]
    assert found == [(b"%d." % number)[::-1] for number in range(500)]


def test_calls_are_handled_at_once_and_the_next_is_taken_meanwhile():
    together = threading.Barrier(5)

    def handle(call: Call) -> None:
        if call.message != b"quick":
            together.wait(SECONDS)
        reverse(call)

    with answering(handle) as running:
        slow = [running.ask(b"slow") for _ in range(4)]
        assert running.ask(b"quick").result() == b"kciuq"
        assert not any(answer.done() for answer in slow)
        slow.append(running.ask(b"slow"))
        assert [answer.result() for answer in slow] == [b"wols"] * 5


def test_threads_are_no_more_than_their_limit_and_end_with_the_queue():
    before, most = threads_of_calls(), 0

    def handle(call: Call) -> None:
        nonlocal most
        most = max(most, threads_of_calls() - before)
        time.sleep(0.005)
        reverse(call)

    with answering(handle, limit=3) as running:
        found = [answer.result() for answer in [running.ask(b"ab") for _ in range(40)]]
    assert found == [b"ba"] * 40
    assert most == 3
    assert threads_of_calls() == before


def test_after_a_rush_a_single_caller_is_answered_by_few_threads():
    """Those that did it last, not each of them in turn."""
    rush, used = threading.Barrier(16), set()

    def handle(call: Call) -> None:
        if call.message == b"rush":
            rush.wait(SECONDS)
        else:
            used.add(threading.get_ident())
        reverse(call)

    with answering(handle) as running:
        for answer in [running.ask(b"rush") for _ in range(16)]:
            answer.result()
        assert threads_of_calls() >= 16
        for _ in range(100):
            running.ask(b"alone").result()
    assert len(used) < 8


def test_a_call_may_be_finished_later_and_elsewhere():
    waiting: list[Call] = []
    with answering(waiting.append) as running:
        first, second = running.ask(b"ab"), running.ask(b"cd")
        until(lambda: len(waiting) == 2)
        for call in reversed(waiting):
            reverse(call)
        assert (first.result(), second.result()) == (b"ba", b"dc")


def test_a_refusal_reaches_the_client_with_its_words():
    def refuse(call: Call) -> None:
        call.finish(grpc.StatusCode.INVALID_ARGUMENT, "nicht schön")

    with answering(refuse) as running:
        answer = running.ask(b"a")
        assert code_of(answer) == grpc.StatusCode.INVALID_ARGUMENT
        assert answer.details() == "nicht schön"


def test_an_exception_is_internal_and_the_next_call_is_answered():
    def handle(call: Call) -> None:
        if call.message == b"bad":
            raise ZeroDivisionError
        reverse(call)

    with answering(handle) as running:
        assert code_of(running.ask(b"bad")) == grpc.StatusCode.INTERNAL
        assert running.ask(b"good").result() == b"doog"


def test_only_the_first_answer_counts():
    def twice(call: Call) -> None:
        reverse(call)
        call.finish(grpc.StatusCode.UNKNOWN, "again")
        raise ZeroDivisionError

    with answering(twice) as running:
        assert [running.ask(b"ab").result() for _ in range(3)] == [b"ba"] * 3


@pytest.mark.parametrize("how", ["hangs up", "deadline"])
def test_a_call_knows_that_its_client_is_gone(how: str):
    waiting: list[Call] = []
    with answering(waiting.append) as running:
        timeout = 0.2 if how == "deadline" else SECONDS
        answer = running.channel.unary_unary(PATH).future(b"a", timeout=timeout)
        until(lambda: bool(waiting))
        if how == "hangs up":
            assert not waiting[0].gone
            answer.cancel()
        until(lambda: waiting[0].gone)
        reverse(waiting[0])  # into the void


def test_a_call_without_a_message_and_one_beyond_the_limit_are_refused():
    with answering(reverse) as running:
        none = running.channel.stream_unary(PATH).future(iter(()), timeout=SECONDS)
        assert code_of(none) == grpc.StatusCode.UNIMPLEMENTED
        assert code_of(running.ask(bytes(1001))) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert running.ask(b"ab").result() == b"ba"


def test_other_methods_are_left_to_the_server():
    with answering(reverse) as running:
        other = running.channel.unary_unary("/test.Service/Other").future(b"a", timeout=SECONDS)
        assert code_of(other) == grpc.StatusCode.UNIMPLEMENTED


def test_a_server_that_stops_lets_a_call_finish():
    waiting: list[Call] = []
    states: list[grpc.ChannelConnectivity] = []
    with answering(waiting.append) as running:
        answer = running.ask(b"ab")
        running.channel.subscribe(states.append)
        until(lambda: bool(waiting) and grpc.ChannelConnectivity.READY in states)
        stopped = running.server.stop(SECONDS)
        # A call that has set out before the client hears of it is CANCELLED, by any gRPC server.
        until(lambda: states[-1] != grpc.ChannelConnectivity.READY)
        late = running.ask(b"late")
        assert code_of(late) == grpc.StatusCode.UNAVAILABLE
        assert len(waiting) == 1
        assert not stopped.is_set()
        reverse(waiting[0])
        assert answer.result() == b"ba"
        waiting.clear()
        assert stopped.wait(SECONDS)


def test_an_answer_after_the_server_has_stopped_does_no_harm():
    """gRPC aborts the whole process when a queue is shut down too soon."""
    before, waiting = threads_of_calls(), []
    with answering(waiting.append) as running:
        answer = running.ask(b"ab")
        until(lambda: bool(waiting))
        assert running.server.stop(None).wait(SECONDS)
        assert code_of(answer) == grpc.StatusCode.UNAVAILABLE
        running.queue.stop(0.05)
        assert threads_of_calls() > before
        reverse(waiting.pop())
    assert threads_of_calls() == before


def test_hang_ups_deadlines_and_stops_at_random_lose_no_thread():
    chance = random.Random(1)

    def handle(call: Call) -> None:
        time.sleep(chance.random() * 0.003)
        if chance.random() < 0.05:
            raise ZeroDivisionError
        reverse(call)

    def ask(running: Running, stop: threading.Event) -> None:
        method = running.channel.unary_unary(PATH)
        while not stop.is_set():
            sent = [method.future(b"a", timeout=chance.choice([0.001, 0.003, 5])) for _ in range(9)]
            for answer in sent[::3]:
                answer.cancel()
            for answer in sent:
                until(answer.done)

    before = threads_of_calls()
    for grace in (None, 0, 0.05, 1):
        stop = threading.Event()
        with answering(handle, limit=4) as running:
            clients = [threading.Thread(target=ask, args=(running, stop)) for _ in range(3)]
            for client in clients:
                client.start()
            time.sleep(0.5)
            assert running.server.stop(grace).wait(SECONDS)
            stop.set()
            for client in clients:
                client.join(SECONDS)
        assert threads_of_calls() == before


def test_a_server_that_gets_no_more_threads_answers_with_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
):
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "calls":
            raise RuntimeError("can't start new thread")
        start(thread)

    with answering(reverse) as running:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            method = running.channel.unary_unary(PATH)
            assert [method(b"ab", timeout=SECONDS) for _ in range(3)] == [b"ba"] * 3
        assert len(running.queue._threads) == 1


def test_a_grpc_without_the_parts_is_named(monkeypatch: pytest.MonkeyPatch):
    """Of the package and of its server, for a queue that is made now; others go on."""
    with answering(reverse) as running:
        server = grpc.server(ThreadPoolExecutor(1))
        monkeypatch.setattr(calls, "_PARTS", (*calls._PARTS, "Missing"))
        with pytest.raises(UnsupportedError, match=rf"gRPC {grpc.__version__} has no Missing$"):
            CallQueue(server, PATH, reverse)
        monkeypatch.delattr(server, "_cy_server")
        with pytest.raises(UnsupportedError, match="has no Missing, register_completion_queue, "):
            CallQueue(server, PATH, reverse)
        assert running.ask(b"ab").result() == b"ba"


def test_without_the_module_that_grpc_servers_are_made_of_every_part_is_missing(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "grpc._cython", None)
    other = runpy.run_path(calls.__file__)  # a module of its own: queues of others use the real one
    with pytest.raises(other["UnsupportedError"], match="has no CompletionQueue, CompletionType, "):
        other["CallQueue"](grpc.server(ThreadPoolExecutor(1)), PATH, reverse)
