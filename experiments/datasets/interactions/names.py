"""Category names as shops export them: with HTML entities, tags and stray blanks."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfr_moe.beam.sources import CountingDoFn, RawRow
from tfr_moe.elwc import is_missing

_TAG = re.compile(r"<[^>]*>")


def clean_name(name: str) -> str:
    """Returns a category name without HTML entities (however often escaped), tags, extra blanks.

    Example:
        >>> clean_name("Literary,&amp;nbsp; Sci-Fi &amp;amp; Mystery ")
        'Literary, Sci-Fi & Mystery'
    """
    while (resolved := html.unescape(name)) != name:
        name = resolved
    return " ".join(_TAG.sub(" ", name).split())


def path_of(value: Any, separator: str) -> list[str]:
    """Returns the names of a category path, top first, from a list or separated text."""
    if is_missing(value):
        return []
    parts = value.split(separator) if isinstance(value, str) else value
    if isinstance(parts, (Mapping, bytes)) or not isinstance(parts, Iterable):
        return []
    names = [clean_name(part) for part in map(str, parts)]
    return [name for name in names if name]


class CleanNames(CountingDoFn):
    """Batches of rows -> batches with clean category names, None for empty ones; counts changes.

    Args:
        levels: columns with category names.
    """

    def __init__(self, levels: Sequence[str]):
        self._levels = list(levels)

    def process(self, batch: list[RawRow]) -> Iterator[list[RawRow]]:
        """Cleans a batch."""
        yield [self._cleaned(row) for row in batch]

    def _cleaned(self, row: RawRow) -> RawRow:
        if row.error is not None:
            return row
        values = dict(row.values)
        for level in self._levels:
            if is_missing(values.get(level)):
                continue
            name = clean_name(str(values[level]))
            if name != values[level]:
                self.tally["noted", "category names cleaned"] += 1
            values[level] = name or None
        return row._replace(values=values)
