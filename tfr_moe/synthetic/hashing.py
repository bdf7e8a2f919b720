"""Attributes drawn from keys by hashing: an item has the same price wherever it is shown, and no
table of items is kept in memory."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Keys: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def _scramble(keys: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    keys = keys + _GOLDEN
    keys = (keys ^ (keys >> np.uint64(30))) * _FIRST
    keys = (keys ^ (keys >> np.uint64(27))) * _SECOND
    return keys ^ (keys >> np.uint64(31))


def combine(seed: int, *parts: Any) -> Keys:
    """One 64-bit key of several integers or integer arrays (broadcast together); wraps on purpose."""
    with np.errstate(over="ignore"):
        key = _scramble(np.atleast_1d(np.asarray(seed, dtype=np.uint64)))
        for part in parts:
            key = _scramble(key ^ np.asarray(part).astype(np.uint64))
    return key


def uniform(keys: Keys) -> Floats:
    """A number in [0, 1) for each key."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(keys: Keys) -> Floats:
    """A standard normal number for each key (Box and Muller's transform of two uniforms)."""
    with np.errstate(over="ignore"):
        radius = np.sqrt(-2.0 * np.log1p(-uniform(keys)))
        return radius * np.cos(2.0 * np.pi * uniform(_scramble(keys)))


def zipf_cdf(size: int, exponent: float) -> Floats:
    """Cumulative probabilities of ranks 0 .. size - 1 with weight 1 / (rank + 1)^exponent."""
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    cdf = np.cumsum(weights) / weights.sum()
    cdf[-1] = 1.0
    return cdf


def pick(cdf: Floats, numbers: Floats) -> NDArray[np.int64]:
    """The rank that each uniform number falls on."""
    return np.searchsorted(cdf, numbers, side="right").astype(np.int64)
