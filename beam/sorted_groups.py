"""Group by key: by the runner's shuffle, or by an external merge sort on disk.

Beam's embedded runner keeps everything it shuffles in memory, several times over. Where a pipeline
runs on it, sorted runs on disk and one merging pass take the place of the shuffle, so that memory
does not grow with the data. Each transform decides when it is applied.
"""

from __future__ import annotations

import heapq
import itertools
import os
import pickle
import struct
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tfr_moe.beam.rows import at_the_end

RUN_BYTES = 64 << 20
"""Size in memory at which entries are written as a run."""

_LENGTH = struct.Struct("<I")
_BUFFER = 1 << 17
_ENTRY_BYTES = 200  # memory of an entry besides its own bytes
Order = Callable[[Any], Any]
Use = Callable[[Any, Iterable[Any]], Iterable[Any] | None]
UseBoth = Callable[[Any, list[Any], Iterable[Any]], Iterator[Any]]

_FOLDERS: weakref.WeakKeyDictionary[beam.Pipeline, str] = weakref.WeakKeyDictionary()


def sort_in(pipeline: beam.Pipeline, folder: str) -> None:
    """Sets the folder for the sorted runs of a pipeline, whose owner removes it."""
    _FOLDERS[pipeline] = folder


def is_embedded(pipeline: beam.Pipeline) -> bool:
    """Returns whether the pipeline runs on the embedded runner, which shuffles in memory."""
    return isinstance(pipeline.runner, FnApiRunner)


class _WriteRuns(beam.DoFn):
    """(key, value) -> (part, path of a sorted run); a part has all entries of its keys."""

    def __init__(self, folder: str, order: Order, parts: int):
        self._folder, self._order, self._parts = folder, order, parts

    def start_bundle(self) -> None:
        self._waiting: list[list[tuple[Any, bytes]]] = [[] for _ in range(self._parts)]
        self._size = 0

    def process(self, entry: tuple[Any, Any]) -> Iterator[tuple[int, str]]:
        data = pickle.dumps(entry, pickle.HIGHEST_PROTOCOL)
        part = _number(entry[0]) % self._parts if self._parts > 1 else 0
        self._waiting[part].append((self._order(entry), data))
        self._size += len(data) + _ENTRY_BYTES
        if self._size > RUN_BYTES:
            yield from self._write()

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_the_end, self._write())

    def _write(self) -> Iterator[tuple[int, str]]:
        for part, waiting in enumerate(self._waiting):
            if waiting:
                waiting.sort(key=itemgetter(0))
                handle, path = tempfile.mkstemp(dir=self._folder)
                with open(handle, "wb", _BUFFER) as file:
                    for _, data in waiting:
                        file.write(_LENGTH.pack(len(data)) + data)
                yield part, path
        self.start_bundle()


def _number(key: Any) -> int:
    """A number that chooses the part of a key; a few keys that are numbers are spread evenly."""
    return key if isinstance(key, int) else zlib.crc32(repr(key).encode())


def _read_run(path: str) -> Iterator[tuple[Any, Any]]:
    with open(path, "rb", _BUFFER) as file:
        while head := file.read(_LENGTH.size):
            yield pickle.loads(file.read(*_LENGTH.unpack(head)))


def num_processes(pipeline: beam.Pipeline) -> int:
    """Number of processes in which the embedded runner works."""
    return pipeline.options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1


@beam.ptransform_fn
def sorted_runs(entries: beam.PCollection, order: Order) -> beam.PCollection:
    """(key, value) -> lists of paths of files with sorted entries; no element for no entries.

    All entries of a key are in the files of one list. There is a list for each process. The sort
    key `order` of an entry must begin with the entry's key.
    """
    pipeline = entries.pipeline
    write = _WriteRuns(_FOLDERS[pipeline], order, num_processes(pipeline))
    return (
        entries
        | "WriteRuns" >> beam.ParDo(write).with_output_types(tuple[int, str])
        | "AllRuns" >> beam.GroupByKey()
        | "Paths" >> beam.MapTuple(lambda _, paths: sorted(paths))
    )


def groups(runs: Iterable[str], order: Order) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yields (key, its values in order) over all runs; as with `itertools.groupby`, a group must be
    consumed before the next one."""
    merged = heapq.merge(*map(_read_run, runs), key=order)
    for key, entries in itertools.groupby(merged, key=itemgetter(0)):
        yield key, map(itemgetter(1), entries)


@beam.ptransform_fn
def use_groups(entries: beam.PCollection, use: Use, order: Order) -> beam.PCollection:
    """(key, value) -> the elements of `use(key, values)`, the values sorted by `order`.

    On the embedded runner the values need not fit into memory. `use` returns an iterable, or None.
    """

    def by(entry: tuple[Any, Any]) -> tuple[Any, Any]:
        return entry[0], order(entry[1])

    def use_runs(runs: list[str]) -> Iterator[Any]:
        for key, values in groups(runs, by):
            yield from use(key, values) or ()

    def use_group(key: Any, values: Iterable[Any]) -> Iterable[Any]:
        return use(key, sorted(values, key=order)) or ()

    if is_embedded(entries.pipeline):
        return entries | sorted_runs(by) | "Use" >> beam.FlatMap(use_runs)
    return entries | "Group" >> beam.GroupByKey() | "Use" >> beam.FlatMapTuple(use_group)


class CoGroupSorted(beam.PTransform):
    """(known, queries), two collections of (key, value) -> `use(key, known values, queries)`.

    Keys without a query are dropped. `use` gets the known values as a list, the queries as an
    iterable.
    """

    def __init__(self, use: UseBoth):
        super().__init__()
        self._use = use

    def expand(self, sides: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Joins and applies `use`."""
        tagged = [
            side | f"Tag{number}" >> beam.MapTuple(lambda key, value, n=number: (key, (n, value)))
            for number, side in enumerate(sides)
        ]
        use = use_groups(partial(_use_both, use=self._use), itemgetter(0))
        return tagged | beam.Flatten() | "Join" >> use


def _use_both(key: Any, values: Iterable[tuple[int, Any]], use: UseBoth) -> Iterator[Any]:
    known: list[Any] = []
    for side, entries in itertools.groupby(values, key=itemgetter(0)):
        if side == 0:
            known = [value for _, value in entries]
        else:
            yield from use(key, known, (value for _, value in entries))
