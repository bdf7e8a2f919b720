"""Requests that wait are run together, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

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


def answers_while_busy(
    model: Model, requests: Sequence[Sequence[int]], largest: int = 16
) -> list[Any]:
    """The answers to requests that all come while [0] is run, or their errors."""

    async def ask() -> list[Any]:
        batcher = Batcher(model, slots=1, largest=largest)
        first = asyncio.ensure_future(batcher(np.array([0])))
        await asyncio.to_thread(model.begun.wait, SECONDS)
        waiting = [asyncio.ensure_future(batcher(np.array(rows))) for rows in requests]
        await asyncio.sleep(0)  # each of them begins, and waits
        model.go.set()
        assert (await first)["squares"].tolist() == [0]
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(ask())


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

    async def ask() -> None:
        batcher = Batcher(model, slots=1, largest=16)
        first = asyncio.ensure_future(batcher(np.array([0])))
        gone, stays = (asyncio.ensure_future(batcher(np.array([n]))) for n in (5, 6))
        await asyncio.to_thread(model.begun.wait, SECONDS)
        gone.cancel()
        await asyncio.sleep(0)
        model.go.set()
        await first
        assert squares([await stays]) == [[36]]

    asyncio.run(ask())
    assert model.sizes == [1, 1]


def test_many_busy_signatures_do_not_wait_for_each_other():
    """More than an event loop has threads for."""
    busy = [Model() for _ in range(40)]
    idle = Model()
    idle.begun.set()

    async def ask() -> None:
        running = [asyncio.ensure_future(Batcher(m, 1, 4)(np.array([1]))) for m in busy]
        try:
            found = await asyncio.wait_for(Batcher(idle, 1, 4)(np.array([3])), SECONDS)
            assert squares([found]) == [[9]]
        finally:
            for model in busy:
                model.go.set()
        assert squares(await asyncio.gather(*running)) == [[1]] * 40

    asyncio.run(ask())


def test_a_slot_is_free_again_after_an_error():
    model = Model()
    model.begun.set()

    async def ask() -> None:
        batcher = Batcher(model, slots=1, largest=4)
        for _ in range(3):
            with pytest.raises(RefusedError):
                await batcher(np.array([-1]))
        assert squares([await batcher(np.array([7]))]) == [[49]]

    asyncio.run(ask())
