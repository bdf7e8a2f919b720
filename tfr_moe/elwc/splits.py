"""Which split a list belongs to: by time, or by a hash of its ID. Shared by `build` and frames."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfr_moe.schema import SPLITS

FINEST_LEVEL = -10
MAX_BUCKETS = 1 << 16

Counts = tuple[int, Counter[int]]
"""(k, bucket -> number of lists), in buckets of 2^k seconds."""


def list_hash(list_id: str, seed: int, purpose: str) -> int:
    """Returns 64 bits of a list ID, the same on every machine and different for each purpose."""
    text = f"{purpose}:{seed}:{list_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


class Bounds(NamedTuple):
    """Where validation and test begin, as a fraction of the hash range or as a time.

    Lists below `validation` are for training, those from `test` on for testing.
    """

    validation: float
    test: float

    def split(self, value: float) -> str:
        """Returns the split of a list with this time, or hash."""
        return SPLITS[(value >= self.validation) + (value >= self.test)]


def hash_bounds(validation_fraction: float, test_fraction: float) -> Bounds:
    """Returns the bounds of `hash_fraction`."""
    return Bounds(1.0 - validation_fraction - test_fraction, 1.0 - test_fraction)


def hash_fraction(list_id: str, seed: int) -> float:
    """Returns a number from [0, 1) by which a list is assigned to a split."""
    return (list_hash(list_id, seed, "split") >> 11) * 2.0**-53


def coarsened(level: int, counts: Counter[int], wanted: int) -> Counts:
    """Returns the counts in buckets of at least 2^wanted seconds, at most `MAX_BUCKETS` of them."""
    while level < wanted or len(counts) > MAX_BUCKETS:
        level += 1
        halved = Counter[int]()
        for bucket, count in counts.items():
            halved[bucket >> 1] += count
        counts = halved
    return level, counts


def bounds_of_counts(
    level: int, counts: Mapping[int, int], validation_fraction: float, test_fraction: float
) -> Bounds:
    """Returns the two times between buckets; training has at least one bucket."""
    buckets = sorted(counts)
    below = [0]
    for bucket in buckets:
        below.append(below[-1] + counts[bucket])

    def bound(share: float, least: int) -> float:
        wanted = share * below[-1]
        cuts = range(min(least, len(buckets)), len(below))
        cut = min(cuts, key=lambda i: abs(below[i] - wanted))
        return math.inf if cut == len(buckets) else math.ldexp(buckets[cut], level)

    validation = bound(1.0 - validation_fraction - test_fraction, 1)
    return Bounds(validation, max(validation, bound(1.0 - test_fraction, 1)))


def time_bounds(
    times: NDArray[np.float64], validation_fraction: float, test_fraction: float
) -> Bounds:
    """Returns the bounds of lists with these times, those that `build` finds.

    Example:
        >>> time_bounds(np.arange(10.0), 0.2, 0.1)
        Bounds(validation=7.0, test=9.0)
    """
    level, buckets = FINEST_LEVEL, np.floor(np.ldexp(times, -FINEST_LEVEL))
    while len(np.unique(buckets)) > MAX_BUCKETS:
        level, buckets = level + 1, np.floor(buckets / 2)
    counts = Counter(map(int, buckets))
    return bounds_of_counts(level, counts, validation_fraction, test_fraction)
