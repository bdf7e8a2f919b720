"""Requests that wait are run together, and each gets its own answer."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

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


def ask_while_busy(model: Model, requests: list[list[int]], largest: int):
    """The answers to requests that all come while the first is run."""
    batcher = Batcher(model, slots=1, largest=largest)
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        first = pool.submit(batcher, np.array([0]))
        assert model.begun.wait(SECONDS)
        waiting = [pool.submit(batcher, np.array(rows)) for rows in requests]
        while len(batcher._waiting) < len(requests):
            pass
        model.go.set()
        assert first.result(SECONDS)["squares"].tolist() == [0]
        return waiting


def squares(futures):
    return [future.result(SECONDS)["squares"].tolist() for future in futures]


def test_waiting_requests_run_together_and_get_their_own_rows():
    model = Model()
    found = ask_while_busy(model, [[1, 2], [3], [4, 5, 6]], largest=16)
    assert sorted(squares(found)) == [[1, 4], [9], [16, 25, 36]]
    assert model.sizes == [1, 6]


def test_a_batch_takes_no_more_than_its_limit():
    model = Model()
    found = ask_while_busy(model, [[i] for i in range(1, 6)], largest=2)
    assert sorted(squares(found)) == [[1], [4], [9], [16], [25]]
    assert model.sizes == [1, 2, 2, 1]


def test_a_request_beyond_the_limit_runs_alone():
    model = Model()
    found = ask_while_busy(model, [[1, 2, 3]], largest=2)
    assert squares(found) == [[1, 4, 9]]


def test_a_bad_request_fails_alone():
    model = Model()
    found = ask_while_busy(model, [[1], [-1], [3]], largest=16)
    errors = [future for future in found if future.exception(SECONDS)]
    assert len(errors) == 1
    with pytest.raises(RefusedError, match="negative"):
        errors[0].result()
    assert sorted(squares([f for f in found if f not in errors])) == [[1], [9]]


def test_outputs_that_are_not_by_row_are_asked_for_one_by_one():
    begun, go = threading.Event(), threading.Event()

    def total(rows):
        if not begun.is_set():
            begun.set()
            assert go.wait(SECONDS)
        return {"squares": np.array([rows.sum()])}

    batcher = Batcher(total, slots=1, largest=16)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(batcher, np.array([1, 1]))
        assert begun.wait(SECONDS)
        rest = [pool.submit(batcher, np.array([2, 2])), pool.submit(batcher, np.array([3, 3]))]
        while len(batcher._waiting) < 2:
            pass
        go.set()
        assert squares([first]) == [[2]]
        assert sorted(squares(rest)) == [[4], [6]]


def test_a_slot_is_free_again_after_an_error():
    model = Model()
    model.begun.set()
    batcher = Batcher(model, slots=1, largest=4)
    for _ in range(3):
        with pytest.raises(RefusedError):
            batcher(np.array([-1]))
    assert batcher(np.array([7]))["squares"].tolist() == [49]
