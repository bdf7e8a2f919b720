"""Two collections by key: by the runner's shuffle, or on disk where that would be in memory."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

import apache_beam as beam

from ..running import is_embedded
from ..shuffle import SortedRuns, groups

Use = Callable[[Any, list[Any], Iterable[Any]], Iterator[Any]]
_SIDE = itemgetter(0)


class Meet(beam.PTransform):
    """(known, asked), both of (key, value) -> what a function makes of each key.

    Args:
        use: function of a key, all its known values and an iterable of what is asked, which are not
            all in memory. Keys that nobody asks about are left out.
    """

    def __init__(self, use: Use):
        super().__init__()
        self._use = use

    def expand(self, sides: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Brings together and uses."""
        known, asked = sides
        pipeline = known.pipeline
        if not is_embedded(pipeline):
            return (
                {"known": known, "asked": asked}
                | beam.CoGroupByKey()
                | "Use" >> beam.FlatMap(_use_met, self._use)
            )
        folder = tempfile.mkdtemp(prefix="tfr-moe-join-")
        # Steps can't tell when the last of them is done; the pipeline's end can.
        weakref.finalize(pipeline, shutil.rmtree, folder, ignore_errors=True)
        tagged = [
            side | f"Tag{number}" >> beam.MapTuple(lambda key, value, n=number: (key, (n, value)))
            for number, side in enumerate(sides)
        ]
        return (
            tagged
            | beam.Flatten()
            | SortedRuns(folder, _order)
            | "Use" >> beam.FlatMap(_use_runs, self._use)
        )


def _order(entry: tuple[Any, tuple[int, Any]]) -> tuple[Any, int]:
    return entry[0], entry[1][0]


def _use_met(met: tuple[Any, dict[str, Iterable[Any]]], use: Use) -> Iterator[Any]:
    key, sides = met
    yield from use(key, list(sides["known"]), sides["asked"])


def _use_runs(runs: list[str], use: Use) -> Iterator[Any]:
    for key, values in groups(runs, _order):
        sides = itertools.groupby(values, key=_SIDE)
        known: list[Any] = []
        for side, entries in sides:
            if side == 0:
                known = [value for _, value in entries]
            else:
                yield from use(key, known, (value for _, value in entries))
