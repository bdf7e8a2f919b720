"""Requests that wait are run together, and each gets its own answer."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from tfr_moe.serving.batching import Batcher
from tfr_moe.serving.refusals import RefusedError

SECONDS = 20.0


class Model:
    """Squares numbers; the first call waits until it is let go. Refuses negative numbers."""

    def __init__(self):
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, rows):
        self.sizes.append(len(rows))
        if not self.begun.is_set():
            self.begun.set()
            assert self.go.wait(SECONDS)
        if (rows < 0).any():
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "negative")
        return {"squares": rows**2}


def answers_while_busy(
    model: Model, requests: Sequence[Sequence[int]], largest: int = 16, gone: Collection[int] = ()
) -> list[Any]:
    """The answers to requests that all come while [0] is run, or their errors.

    Nobody waits any more for those whose numbers are in `gone`.
    """
    batcher = Batcher(model, slots=1, largest=largest)
    first, found = [], {}
    running = threading.Thread(target=lambda: batcher(np.array([0]), first.append))
    running.start()
    assert model.begun.wait(SECONDS)
    for i, rows in enumerate(requests):
        batcher(np.array(rows), functools.partial(found.__setitem__, i), lambda i=i: i in gone)
    assert not found
    model.go.set()
    running.join(SECONDS)
    assert squares(first) == [[0]]
    return [found.get(i) for i in range(len(requests))]


def squares(answers: Sequence[Any]) -> list[list[int]]:
    return [answer["squares"].tolist() for answer in answers]


def test_waiting_requests_run_together_and_get_their_own_rows():
    model = Model()
    found = answers_while_busy(model, [[1, 2], [3], [4, 5, 6]])
    assert squares(found) == [[1, 4], [9], [16, 25, 36]]
    assert model.sizes == [1, 6]


def test_a_batch_takes_no_more_than_its_limit():
    model = Model()
    found = answers_while_busy(model, [[i] for i in range(1, 6)], largest=2)
    assert squares(found) == [[1], [4], [9], [16], [25]]
    assert model.sizes == [1, 2, 2, 1]


def test_a_request_beyond_the_limit_runs_alone():
    model = Model()
    found = answers_while_busy(model, [[1, 2, 3], [4]], largest=2)
    assert squares(found) == [[1, 4, 9], [16]]
    assert model.sizes == [1, 3, 1]


def test_a_bad_request_fails_alone():
    one, bad, three = answers_while_busy(Model(), [[1], [-1], [3]])
    assert isinstance(bad, RefusedError)
    assert bad.message == "negative"
    assert squares([one, three]) == [[1], [9]]


def test_outputs_that_are_not_by_row_are_asked_for_one_by_one():
    class Total(Model):
        def __call__(self, rows):
            super().__call__(rows)
            return {"squares": np.array([rows.sum()])}

    model = Total()
    assert squares(answers_while_busy(model, [[2, 2], [3, 3]])) == [[4], [6]]
    assert model.sizes == [1, 4, 2, 2]


def test_whoever_no_longer_waits_is_not_run():
    model = Model()
    gone, stays = answers_while_busy(model, [[5], [6]], gone=[0])
    assert gone is None
    assert squares([stays]) == [[36]]
    assert model.sizes == [1, 1]


def test_whoever_brings_a_request_runs_it_while_a_slot_is_free():
    batcher = Batcher(lambda rows: {"threads": rows * 0 + threading.get_ident()}, 1, largest=4)
    found: list[Any] = []
    batcher(np.array([1]), found.append)
    assert found[0]["threads"].tolist() == [threading.get_ident()]


def test_no_more_run_at_once_than_there_are_slots():
    lock, running, most = threading.Lock(), 0, 0

    def run(rows):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return {"squares": rows**2}

    batcher = Batcher(run, slots=2, largest=1)
    found: list[Any] = []
    with ThreadPoolExecutor(8) as threads:
        for i in range(40):
            threads.submit(batcher, np.array([i]), found.append)
    assert sorted(squares(found)) == [[i**2] for i in range(40)]
    assert most == 2


def test_a_slot_is_free_again_after_an_error():
    model = Model()
    model.begun.set()
    batcher = Batcher(model, slots=1, largest=4)
    found: list[Any] = []
    for rows in ([-1], [-1], [7]):
        batcher(np.array(rows), found.append)
    assert [str(error) for error in found[:2]] == ["negative", "negative"]
    assert squares(found[2:]) == [[49]]


def test_an_answer_that_cannot_be_given_takes_neither_the_slot_nor_the_other_answers(caplog):
    model, found = Model(), []

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    batcher = Batcher(model, slots=1, largest=16)
    first = threading.Thread(target=lambda: batcher(np.array([1]), fail))
    first.start()
    assert model.begun.wait(SECONDS)
    batcher(np.array([2]), fail)
    batcher(np.array([3]), found.append)
    model.go.set()
    first.join(SECONDS)
    assert model.sizes == [1, 2]
    batcher(np.array([4]), found.append)
    assert squares(found) == [[9], [16]]
    assert caplog.text.count("an answer could not be given") == 2
