"""Vocabularies from counts of IDs, which merge over data sets."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from tfr_moe.schema import Feature

IdCounts = Iterable[tuple[str, int]]
"""(ID, count) in order of the IDs; an ID may occur several times, and its counts are added."""


def summed(entries: IdCounts) -> Iterator[tuple[str, int]]:
    """Yields each ID once, with the sum of its counts."""
    for text, group in itertools.groupby(entries, key=itemgetter(0)):
        yield text, sum(count for _, count in group)


def vocabulary_of(feature: Feature, entries: IdCounts) -> list[str]:
    """Returns the IDs of a vocabulary, the most frequent first, then in order of their text.

    IDs below `min_count` or beyond `max_vocabulary` of the feature are left out.

    Example:
        >>> brand = Feature(name="brand", scope="example", kind="categorical", max_vocabulary=2)
        >>> vocabulary_of(brand, [("a", 1), ("b", 2), ("c", 2)])
        ['b', 'c']
    """
    sums = ((-count, text) for text, count in summed(entries))
    frequent = (entry for entry in sums if -entry[0] >= feature.min_count)
    limit = feature.max_vocabulary
    ordered = heapq.nsmallest(limit, frequent) if limit else sorted(frequent)
    return [text for _, text in ordered]


def write_vocabulary(path: Path, words: Iterable[str]) -> None:
    """Writes a vocabulary, one ID in each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8", newline="\n")


def write_counts(path: Path, entries: IdCounts) -> IdCounts:
    """Writes a line `count<TAB>ID` for each ID, in order of the IDs; returns the counts."""
    sums = list(summed(entries))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{count}\t{text}\n" for text, count in sums)
    return sums


def read_counts(path: Path) -> Iterator[tuple[str, int]]:
    """Yields what `write_counts` has written; nothing where there is no file."""
    if not path.is_file():  # no training list has an ID of the feature
        return
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            count, _, text = line[:-1].partition("\t")
            yield text, int(count)


def merged_counts(paths: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """Yields the counts of several files in order of the IDs.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = write_counts(folder / "monday", [("a", 2), ("c", 1)])
        >>> _ = write_counts(folder / "tuesday", [("a", 3), ("b", 1)])
        >>> list(summed(merged_counts([folder / "monday", folder / "tuesday"])))
        [('a', 5), ('b', 1), ('c', 1)]
    """
    return heapq.merge(*map(read_counts, paths))
