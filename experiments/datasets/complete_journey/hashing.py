"""Random numbers that depend on IDs alone: the same in any order, chunk or subset of the rows."""

from __future__ import annotations

import numpy as np

DRAW, ORDER, SUBSET = 1, 2, 3
"""Purposes; the hashes of two purposes are independent."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(bits: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2714064)."""
    bits = bits + _GAMMA
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


def hash_bits(seed: int, purpose: int, *ids: np.ndarray) -> np.ndarray:
    """Returns 64 bits for each combination of IDs; the arrays broadcast.

    Example:
        >>> both = hash_bits(0, DRAW, np.array([7, 8]), np.array([3, 3]))
        >>> bool(both[1] == hash_bits(0, DRAW, np.array([8]), np.array([3]))[0])
        True
    """
    bits = _mix(_mix(np.array([seed], np.uint64)) ^ np.uint64(purpose))
    for values in ids:
        bits = _mix(bits ^ np.asarray(values).astype(np.uint64))
    return bits


def uniform(bits: np.ndarray) -> np.ndarray:
    """Returns numbers in (0, 1), of 53 bits."""
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
