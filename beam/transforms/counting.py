"""Counts that leave the pipeline as data, so that they are exact on every runner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

COUNTS = "counts"
_WINDOW = GlobalWindow()
_END = _WINDOW.max_timestamp()


def at_the_end(element: Any) -> WindowedValue:
    """An element as `finish_bundle` must give it: with the window that it belongs to."""
    return WindowedValue(element, _END, (_WINDOW,))


class CountingDoFn(beam.DoFn):
    """A DoFn with `self.tally`, whose entries go to the output tagged `counts` once a bundle.

    An element for each thing that is counted would cost as much as the work itself.
    """

    tally: Counter[Hashable]

    def start_bundle(self) -> None:
        """Starts counting at zero: a bundle that is run again counts again."""
        self.tally = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        """Yields (key, count) of what the bundle has counted."""
        for entry in self.tally.items():
            yield beam.pvalue.TaggedOutput(COUNTS, at_the_end(entry))
