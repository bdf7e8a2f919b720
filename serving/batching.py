"""Requests that wait for the same signature are run together.

Nothing waits for company: while a core is free a request runs at once and alone. Those that come while
all are busy are taken together when one is free again, which costs half as much a list and less.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
Answer = Arrays | Exception
Done = Callable[[Answer], None]

log = logging.getLogger(__name__)


def _never() -> bool:
    return False


class _Entry(NamedTuple):
    """A request that waits, whom to tell the answer, and whether anybody still wants it."""

    rows: np.ndarray
    done: Done
    gone: Callable[[], bool]


def _tell(entry: _Entry, answer: Answer) -> None:
    try:
        entry.done(answer)
    except Exception:  # the slot and the other requests of the batch are not its own
        log.exception("an answer could not be given")


class Batcher:
    """Calls `run` for one request or for several put together.

    It has no threads: whoever brings a request while a core is free runs it, and after it what came
    meanwhile. Answers are as wide as the longest list of the batch, as those of TensorFlow Serving are
    when it batches. A batch that is refused is run again request by request, so that one bad
    request fails alone.

    Args:
        run: rows [B] of all requests -> arrays [B, ...] by name; called in any thread.
        slots: how many calls of `run` may go on at once.
        largest: rows in a batch; a request with more is run alone.

    Example:
        >>> double = Batcher(lambda rows: {"twice": rows * 2}, slots=1, largest=8)
        >>> double(np.array([1, 2]), print)
        {'twice': array([2, 4])}
    """

    def __init__(self, run: Callable[[np.ndarray], Arrays], slots: int, largest: int):
        self._run = run
        self._largest = largest
        self._free = slots
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque()

    def __call__(self, rows: np.ndarray, done: Done, gone: Callable[[], bool] = _never) -> None:
        """Sees to it that a request is run, now or by whoever is running others. Any thread may call.

        Args:
            rows: [B], the request.
            done: is told the answer, or what `run` raised for this request. What it raises is logged.
            gone: whether nobody wants the answer any more; such a request may be left out.
        """
        with self._lock:
            self._waiting.append(_Entry(rows, done, gone))
            if not self._free:
                return
            self._free -= 1
        while batch := self._next_batch():
            answers = self._answers([entry.rows for entry in batch])
            for entry, answer in zip(batch, answers, strict=True):
                _tell(entry, answer)

    def _next_batch(self) -> list[_Entry]:
        """The first that waits and those that fit into its batch, or nothing and the slot is free."""
        batch: list[_Entry] = []
        size = 0
        with self._lock:
            while self._waiting and (
                not batch or size + len(self._waiting[0].rows) <= self._largest
            ):
                entry = self._waiting.popleft()
                if not entry.gone():
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
