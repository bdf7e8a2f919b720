"""Bringing together what has the same key: by the runner's shuffle, or on disk.

Beam's runner in this process keeps whatever is shuffled in memory, several times over. There an external
merge sort takes its place: sorted runs on disk, then one pass over all of them, so that memory does not
grow with the data. On any other runner the shuffle is the runner's.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam

from .transforms.counting import at_the_end

RUN_BYTES = 64 << 20
"""So much waits in memory before it is written as a run."""

_LENGTH = struct.Struct("<I")
_ENTRY_BYTES = 200  # what an entry costs in memory besides its own bytes
Order = Callable[[Any], Any]
Use = Callable[[Any, Iterable[Any]], Any]


class _WriteRuns(beam.DoFn):
    """(key, value) -> paths of sorted runs."""

    def __init__(self, folder: str, order: Order):
        self._folder = folder
        self._order = order

    def start_bundle(self) -> None:
        """Starts with nothing waiting."""
        self._waiting: list[tuple[Any, bytes]] = []
        self._size = 0

    def process(self, entry: tuple[Any, Any]) -> Iterator[str]:
        """Keeps one entry."""
        data = pickle.dumps(entry, pickle.HIGHEST_PROTOCOL)
        self._waiting.append((self._order(entry), data))
        self._size += len(data) + _ENTRY_BYTES
        if self._size > RUN_BYTES:
            yield self._write()

    def finish_bundle(self) -> Iterator[Any]:
        """Writes what still waits."""
        if self._waiting:
            yield at_the_end(self._write())

    def _write(self) -> str:
        Path(self._folder).mkdir(exist_ok=True)
        self._waiting.sort(key=itemgetter(0))
        handle, path = tempfile.mkstemp(dir=self._folder)
        with open(handle, "wb") as file:
            for _, data in self._waiting:
                file.write(_LENGTH.pack(len(data)) + data)
        self.start_bundle()
        return path


def _read_run(path: str) -> Iterator[tuple[Any, Any]]:
    with open(path, "rb") as file:
        while head := file.read(_LENGTH.size):
            yield pickle.loads(file.read(*_LENGTH.unpack(head)))


class SortedRuns(beam.PTransform):
    """(key, value) -> one list of paths, of files in which the entries stand sorted; none for no entries.

    Args:
        folder: where the files are to be; whoever made it removes it.
        order: function of an entry that gives what to sort by, the key first.
    """

    def __init__(self, folder: str, order: Order):
        super().__init__()
        self._write = _WriteRuns(folder, order)

    def expand(self, entries: beam.PCollection) -> beam.PCollection:
        """Sorts and writes."""
        return (
            entries
            | "WriteRuns" >> beam.ParDo(self._write).with_output_types(str)
            | "OneKey" >> beam.Map(lambda path: (None, path))
            | "AllRuns" >> beam.GroupByKey()
            | "Paths" >> beam.MapTuple(lambda _, paths: sorted(paths))
        )


def groups(runs: Iterable[str], order: Order) -> Iterator[tuple[Any, Iterator[Any]]]:
    """(key, its values in order) of all runs, as `itertools.groupby` gives them: use one group before
    the next."""
    merged = heapq.merge(*map(_read_run, runs), key=order)
    for key, entries in itertools.groupby(merged, key=itemgetter(0)):
        yield key, map(itemgetter(1), entries)


class UseGroups(beam.PTransform):
    """(key, value) -> what a function makes of each key and its values in order.

    Args:
        use: function of a key and an iterable of its values, which are not all in memory.
        order: function of a value that gives what to sort by.
        folder: folder for sorted runs; None for the runner's shuffle.
    """

    def __init__(self, use: Use, order: Order, folder: str | None):
        super().__init__()
        self._use, self._order, self._folder = use, order, folder

    def expand(self, entries: beam.PCollection) -> beam.PCollection:
        """Brings together, sorts and uses."""
        use, order = self._use, self._order
        if self._folder is None:
            return (
                entries
                | "Group" >> beam.GroupByKey()
                | "Use" >> beam.MapTuple(lambda key, found: use(key, sorted(found, key=order)))
            )

        def by(entry: tuple[Any, Any]) -> tuple[Any, Any]:
            return entry[0], order(entry[1])

        def use_all(runs: list[str]) -> Iterator[Any]:
            for key, values in groups(runs, by):
                yield use(key, values)

        return entries | SortedRuns(self._folder, by) | "Use" >> beam.FlatMap(use_all)
