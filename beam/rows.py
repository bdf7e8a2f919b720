"""Rows that sources make, and counters that leave a pipeline as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from tfr_moe.elwc.columns import Columns

COUNTS = "counts"
REJECTS = "rejects"

at_the_end = GlobalWindows.windowed_value_at_end_of_window
"""Wraps an element for `finish_bundle`, which has to name its window."""

RowKey = tuple[int, int, int]
"""(file, line, order) of a row: where it comes from."""
Reject = tuple[int, int, str, Any]
"""(index of the file, line, reason, row)"""


class RawRow(NamedTuple):
    """One row as read from a file.

    Attributes:
        file: index of the file in `Input.files`.
        line: line of the row, from 1 (row number for formats without lines).
        values: column name -> raw value; the raw text of a row that cannot be parsed.
        error: why the row cannot be parsed, or None.
        order: index among several rows made of one line; breaks ties in a list.
    """

    file: int
    line: int
    values: Mapping[str, Any] | str
    error: str | None = None
    order: int = 0

    @property
    def key(self) -> RowKey:
        """Where the row comes from."""
        return self.file, self.line, self.order

    def reject(self, reason: str) -> Reject:
        """The entry of the row in a file of rejects."""
        return self.file, self.line, reason, self.values


class RowColumns(NamedTuple):
    """Rows of consecutive lines of a file from `line` on, all parsed, by column."""

    file: int
    line: int
    rows: Columns


class SourceRows(NamedTuple):
    """Rows of a source together with rejects and counts.

    Attributes:
        batches: collection of lists of `RawRow`, or of `RowColumns`.
        rejects: collection of `Reject` that never became rows.
        counts: collection of (("source", thing, outcome), number), such as ("source", "events",
            "read"). For each thing, `read` must equal the sum of its other outcomes.
    """

    batches: beam.PCollection
    rejects: beam.PCollection
    counts: beam.PCollection


class CountingDoFn(beam.DoFn):
    """A DoFn whose `tally` is emitted to the output `counts` at the end of each bundle.

    Counting in the data is exact on every runner; one element per event would cost as much as the
    work itself.
    """

    tally: Counter[Hashable]

    def start_bundle(self) -> None:
        """Resets the counters: a bundle that is retried counts again."""
        self.tally = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        """Yields (key, count) of the bundle."""
        for entry in self.tally.items():
            yield beam.pvalue.TaggedOutput(COUNTS, at_the_end(entry))
