"""Requests that wait for the same signature are run together.

Nothing waits for company: while a core is free a request runs at once and alone. Those that come while
all are busy are taken together when one is free again, which costs half as much a list and less.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
Answer = Arrays | Exception


class _Entry(NamedTuple):
    """A request that is run or waits, and its answer to come."""

    rows: np.ndarray
    answer: asyncio.Future[Arrays]


class Batcher:
    """Calls `run` for one request or for several put together, in threads of its own.

    Answers are as wide as the longest list of the batch, as those of TensorFlow Serving are when it
    batches. A batch that is refused is run again request by request, so that one bad request
    fails alone.

    Args:
        run: rows [B] of all requests -> arrays [B, ...] by name; called in any thread.
        slots: how many calls of `run` may go on at once.
        largest: rows in a batch; a request with more is run alone.

    Example:
        >>> double = Batcher(lambda rows: {"twice": rows * 2}, slots=1, largest=8)
        >>> asyncio.run(double(np.array([1, 2])))["twice"].tolist()
        [2, 4]
    """

    def __init__(self, run: Callable[[np.ndarray], Arrays], slots: int, largest: int):
        self._run = run
        self._largest = largest
        self._free = slots
        # Of its own, or the requests of a busy model would keep those of others waiting for a thread.
        self._threads = ThreadPoolExecutor(slots, "model")
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque()

    async def __call__(self, rows: np.ndarray) -> Arrays:
        """Runs one request, and maybe others that wait. All callers are of one event loop.

        Raises:
            Exception: what `run` raises for this request.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(rows, loop.create_future())
        with self._lock:
            self._waiting.append(entry)
            slot_is_free = self._free > 0
            if slot_is_free:
                self._free -= 1
        if slot_is_free:
            loop.run_in_executor(self._threads, self._work, loop)
        return await entry.answer

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs what waits, in one slot, until nothing does.

        The thread takes the next batch itself: the loop may be busy with other callers.
        """
        while batch := self._next_batch():
            answers = self._answers([entry.rows for entry in batch])
            loop.call_soon_threadsafe(_deliver, batch, answers)

    def _next_batch(self) -> list[_Entry]:
        """The first that waits and those that fit into its batch, or nothing and the slot is free.

        Whoever no longer waits is left out.
        """
        batch: list[_Entry] = []
        size = 0
        with self._lock:
            while self._waiting and (
                not batch or size + len(self._waiting[0].rows) <= self._largest
            ):
                entry = self._waiting.popleft()
                if not entry.answer.done():
                    size += len(entry.rows)
                    batch.append(entry)
            if not batch:
                self._free += 1
        return batch

    def _answers(self, requests: Sequence[np.ndarray]) -> Sequence[Answer]:
        return self._together(requests) or [self._alone(rows) for rows in requests]

    def _together(self, requests: Sequence[np.ndarray]) -> list[Answer]:
        """The answers of all, or nothing if they can't be run as one."""
        if len(requests) == 1:
            return []
        try:
            found = self._run(np.concatenate(requests))
        except Exception:  # whose fault it is shows when each is run alone
            return []
        ends = np.cumsum([len(rows) for rows in requests])
        if any(array.ndim == 0 or len(array) != ends[-1] for array in found.values()):
            return []
        return [
            {name: array[end - len(rows) : end] for name, array in found.items()}
            for rows, end in zip(requests, ends, strict=True)
        ]

    def _alone(self, rows: np.ndarray) -> Answer:
        try:
            return self._run(rows)
        except Exception as error:
            return error


def _deliver(batch: Sequence[_Entry], answers: Sequence[Answer]) -> None:
    for entry, answer in zip(batch, answers, strict=True):
        if entry.answer.done():
            continue
        if isinstance(answer, Exception):
            entry.answer.set_exception(answer)
        else:
            entry.answer.set_result(answer)
