"""Requests that wait for the same signature are run together.

Nothing waits for company: while a core is free a request runs at once and alone. Those that come while
all are busy are taken together by the next that is free, which costs half as much a list and less.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from .refusals import RefusedError

Arrays = dict[str, np.ndarray]


class _Entry:
    """A request that is run or waits: `batch` is set for the one that runs others with it."""

    def __init__(self, rows: np.ndarray):
        self.rows = rows
        self.batch: list[_Entry] = []
        self.woken = threading.Event()
        self.answer: Arrays = {}
        self.error: Exception | None = None


class Batcher:
    """Calls `run` for one request or for several put together.

    Answers are as wide as the longest list of the batch, as those of TensorFlow Serving are when it
    batches. A batch that is refused is run again request by request, so that one bad request
    fails alone.

    Args:
        run: rows [B] of all requests -> arrays [B, ...] by name.
        slots: how many calls of `run` may go on at once.
        largest: rows in a batch; a request with more is run alone.

    Example:
        >>> double = Batcher(lambda rows: {"twice": rows * 2}, slots=1, largest=8)
        >>> double(np.array([1, 2]))["twice"].tolist()
        [2, 4]
    """

    def __init__(self, run: Callable[[np.ndarray], Arrays], slots: int, largest: int):
        self._run = run
        self._largest = largest
        self._free = slots
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque()

    def __call__(self, rows: np.ndarray) -> Arrays:
        """Runs one request, and maybe others that wait.

        Raises:
            Exception: what `run` raises for this request.
        """
        mine = _Entry(rows)
        with self._lock:
            if self._free:
                self._free -= 1
                mine.batch = [mine]
            else:
                self._waiting.append(mine)
        if not mine.batch:
            mine.woken.wait()
        if mine.batch:
            try:
                self._answer(mine.batch)
            finally:
                self._pass_on()
        if mine.error is not None:
            raise mine.error
        return mine.answer

    def _pass_on(self) -> None:
        """Gives the slot to the first that waits, and to it those that fit into its batch."""
        batch: list[_Entry] = []
        size = 0
        with self._lock:
            while self._waiting and (
                not batch or size + len(self._waiting[0].rows) <= self._largest
            ):
                size += len(self._waiting[0].rows)
                batch.append(self._waiting.popleft())
            if not batch:
                self._free += 1
                return
        batch[0].batch = batch
        batch[0].woken.set()

    def _answer(self, batch: Sequence[_Entry]) -> None:
        try:
            if not self._together(batch):
                for entry in batch:
                    self._alone(entry)
        finally:
            for entry in batch[1:]:
                entry.woken.set()

    def _together(self, batch: Sequence[_Entry]) -> bool:
        """Whether the batch could be run as one."""
        if len(batch) == 1:
            return False
        try:
            found = self._run(np.concatenate([entry.rows for entry in batch]))
        except RefusedError:
            return False
        ends = np.cumsum([len(entry.rows) for entry in batch])
        if any(array.ndim == 0 or len(array) != ends[-1] for array in found.values()):
            return False
        for end, entry in zip(ends, batch, strict=True):
            own = slice(end - len(entry.rows), end)
            entry.answer = {name: array[own] for name, array in found.items()}
        return True

    def _alone(self, entry: _Entry) -> None:
        try:
            entry.answer = self._run(entry.rows)
        except Exception as error:
            entry.error = error
