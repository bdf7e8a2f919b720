"""Which split a list belongs to: by time or by a hash of its id, never by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import apache_beam as beam

from tfr_moe.schema import SPLITS

from .grouping import RankedList


def list_hash(list_id: str, seed: int, purpose: str) -> int:
    """64 bits of a list id that are the same on every machine; another purpose, other bits."""
    text = f"{purpose}:{seed}:{list_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


class Bounds(NamedTuple):
    """Where validation and test begin, as a share of the hash range or as a time.

    Lists below `validation` are for training, those from `test` on for testing.
    """

    validation: float
    test: float

    def split(self, place: float) -> str:
        """The split of a list at this time, or with this hash."""
        return SPLITS[(place >= self.validation) + (place >= self.test)]


class TimeBounds(beam.CombineFn):
    """Times of all lists -> `Bounds` that leave the wanted shares, with no time on both sides.

    Times are counted in buckets of 2^k seconds, k the smallest number >= -10 with at most
    `max_buckets` buckets in use. The result is exact up to that resolution and does not depend on the
    order in which times arrive.

    Args:
        validation_fraction: share of the lists for validation.
        test_fraction: share of the lists for the test, the latest ones.
        max_buckets: bound on the memory of the combiner.
    """

    def __init__(
        self, validation_fraction: float, test_fraction: float, max_buckets: int = 1 << 16
    ):
        self._shares = (1.0 - validation_fraction - test_fraction, 1.0 - test_fraction)
        self._max_buckets = max_buckets

    def create_accumulator(self) -> tuple[int, dict[int, int]]:
        """(k, bucket -> number of lists)."""
        return -10, {}

    def add_input(
        self, counted: tuple[int, dict[int, int]], time: float
    ) -> tuple[int, dict[int, int]]:
        """Counts one time."""
        level, counts = counted
        bucket = math.floor(math.ldexp(time, -level))
        counts[bucket] = counts.get(bucket, 0) + 1
        return self._coarsened(level, counts, level)

    def merge_accumulators(
        self, accumulators: Iterable[tuple[int, dict[int, int]]]
    ) -> tuple[int, dict[int, int]]:
        """Joins counts at the coarsest resolution among them."""
        level, merged = self.create_accumulator()
        for other_level, other in accumulators:
            coarse = max(level, other_level)
            _, merged = self._coarsened(level, merged, coarse)
            _, counts = self._coarsened(other_level, other, coarse)
            for bucket, count in counts.items():
                merged[bucket] = merged.get(bucket, 0) + count
            level, merged = self._coarsened(coarse, merged, coarse)
        return level, merged

    def _coarsened(
        self, level: int, counts: dict[int, int], wanted: int
    ) -> tuple[int, dict[int, int]]:
        while level < wanted or len(counts) > self._max_buckets:
            level += 1
            halved: dict[int, int] = {}
            for bucket, count in counts.items():
                halved[bucket >> 1] = halved.get(bucket >> 1, 0) + count
            counts = halved
        return level, counts

    def extract_output(self, counted: tuple[int, dict[int, int]]) -> Bounds:
        """The two times; training has at least one bucket."""
        level, counts = counted
        buckets = sorted(counts)
        below = [0]
        for bucket in buckets:
            below.append(below[-1] + counts[bucket])

        def bound(share: float, least: int) -> float:
            wanted = share * below[-1]
            cuts = range(min(least, len(buckets)), len(below))
            cut = min(cuts, key=lambda i: abs(below[i] - wanted))
            return math.inf if cut == len(buckets) else math.ldexp(buckets[cut], level)

        validation = bound(self._shares[0], 1)
        return Bounds(validation, max(validation, bound(self._shares[1], 1)))


class AssignSplit(beam.DoFn):
    """`RankedList` -> (split, `RankedList`), by time.

    Takes the `Bounds` as a side input.
    """

    def process(self, ranked: RankedList, bounds: Bounds) -> Iterator[tuple[str, RankedList]]:
        """Assigns one list."""
        assert ranked.time is not None
        yield bounds.split(ranked.time), ranked


def assign_by_hash(
    ranked: RankedList, seed: int, validation_fraction: float, test_fraction: float
) -> tuple[str, RankedList]:
    """(split, `RankedList`), by a hash of the list id: the same list, the same split, always."""
    bounds = Bounds(1.0 - validation_fraction - test_fraction, 1.0 - test_fraction)
    share = (list_hash(ranked.list_id, seed, "split") >> 11) * 2.0**-53
    return bounds.split(share), ranked


def split_by_file(ranked: RankedList, split_of: Callable[[str], str]) -> tuple[str, RankedList]:
    """(split, `RankedList`), where the list id tells the file that it came from."""
    return split_of(ranked.list_id), ranked


def as_json(bounds: Bounds) -> dict[str, Any]:
    """The bounds for the manifest; None where a split is empty."""
    return {
        name: value if math.isfinite(value) else None for name, value in bounds._asdict().items()
    }
