"""Rows of all batches -> lists, by the runner's shuffle or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import apache_beam as beam

from .shuffle import SortedRuns, groups
from .transforms.counting import COUNTS
from .transforms.grouping import Gathered, GatherList, MakeLists

_LIST_ID = itemgetter(0)


class GatherLists(beam.PTransform):
    """(list id, `Gathered`), some for each list -> what `MakeWholeLists` takes.

    Args:
        gather: joins the rows of a list and holds it to its cap.
        runs: folder for sorted runs, None for the runner's shuffle; see `shuffle.UseGroups`.
    """

    def __init__(self, gather: GatherList, runs: str | None):
        super().__init__()
        self._gather, self._runs = gather, runs

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        """Brings the parts of each list together."""
        if self._runs is None:
            return parts | beam.CombinePerKey(self._gather)
        return parts | SortedRuns(self._runs, _LIST_ID)


class MakeWholeLists(beam.PTransform):
    """What `GatherLists` gives -> `RankedList`s and, under `counts`, what `MakeLists` counts.

    Whoever needs the lists at two stages applies it twice: sorted runs are then read twice, where a
    runner that keeps what lies between stages in memory would hold all lists.

    Args:
        gather, runs: as for `GatherLists`.
        min_list_size: shorter lists are cut.
        after: a collection of one value that is to be there before the lists are made, because a later
            step waits for it: what is made earlier would wait in memory.
    """

    def __init__(
        self,
        gather: GatherList,
        runs: str | None,
        min_list_size: int,
        after: beam.PCollection | None = None,
    ):
        super().__init__()
        self._gather, self._runs, self._after = gather, runs, after
        self._make = MakeLists(min_list_size)

    def expand(self, gathered: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        """Makes the lists, tagged `lists` and `counts`."""
        gather = self._gather

        def merge(runs: list[str], _after: Any = None) -> Iterator[tuple[str, Gathered]]:
            for list_id, parts in groups(runs, _LIST_ID):
                yield list_id, gather.gather(parts)

        if self._runs is not None:
            waits = [] if self._after is None else [beam.pvalue.AsSingleton(self._after)]
            gathered = gathered | "Merge" >> beam.FlatMap(merge, *waits)
        return gathered | beam.ParDo(self._make).with_outputs(COUNTS, main="lists")
