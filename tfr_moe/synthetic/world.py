"""The fixed part of a synthetic log: the category tree, its weights, and hashed attributes.

Attributes are drawn from keys by hashing: an item has the same price wherever it is shown, without
a table of items in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .options import SearchLogOptions
from .words import sub_name, top_name

Keys: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]

COMPONENTS = ("ctr", "cvr", "price", "sales", "comments", "relevance", "brand")
"""Components of the utility; `brand` is a brand's quality, observed through its ID only."""

PAIRS = np.triu_indices(len(COMPONENTS), 1)
"""First and second component of each product in the utility."""

_PRICE = COMPONENTS.index("price")
_CONCENTRATION = 0.4
_SHARED = ["Accessories", "Gifts", "Outlet", "Bundles", "Refurbished"]


@dataclass(frozen=True)
class World:
    """The tree and its weights. Sub-categories are numbered; the pair of names is their key.

    Attributes:
        top_names: [T] names of the top categories.
        sub_names: [C] names of the sub-categories; a name may occur under two parents.
        parent: [C] index of each sub-category's top category.
        traffic: [C] probability that a session is in the sub-category.
        weights: [C, M] weights of the components, each row of length 1.
        combinations: [C, M (M - 1) / 2] weights of the products of two components (`PAIRS`), each
            row of length 1.
        common: [M] the common weights, of length 1.
        price_level: [C] shift of the logarithm of prices.
        siblings: [C] number of sub-categories under the same parent.
        first: [T] index of a top category's first sub-category.
    """

    top_names: list[str]
    sub_names: list[str]
    parent: NDArray[np.int64]
    traffic: Floats
    weights: Floats
    combinations: Floats
    common: Floats
    price_level: Floats
    siblings: NDArray[np.int64]
    first: NDArray[np.int64]


def build_world(options: SearchLogOptions) -> World:
    """Draws the tree and the weights of one log from its seed."""
    rng = np.random.default_rng([options.seed, 1])
    sizes = _sizes(options)
    parent: NDArray[np.int64] = np.repeat(np.arange(options.top_categories), sizes)
    rank = np.concatenate([np.arange(size) for size in sizes])
    common, weights = _weights(rng, options, parent)
    level = options.category_strength * rng.standard_normal(len(parent))
    top_names = [top_name(number) for number in range(options.top_categories)]
    return World(
        top_names=top_names,
        sub_names=_sub_names(options, top_names, parent, rank),
        parent=parent,
        traffic=_traffic(options, parent, rank),
        weights=weights,
        combinations=_combinations(options, parent),
        common=common,
        price_level=level,
        siblings=sizes[parent],
        first=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
    )


def _sizes(options: SearchLogOptions) -> NDArray[np.int64]:
    """Sub-categories per top category: one each, the rest shared out evenly, large ones first."""
    even, rest = divmod(options.sub_categories, options.top_categories)
    sizes: NDArray[np.int64] = np.full(options.top_categories, even, dtype=np.int64)
    sizes[:rest] += 1
    return sizes


def _traffic(
    options: SearchLogOptions, parent: NDArray[np.int64], rank: NDArray[np.int64]
) -> Floats:
    top = np.diff(zipf_cdf(options.top_categories, options.traffic_exponent), prepend=0.0)
    inside = (rank + 1.0) ** -options.traffic_exponent
    return top[parent] * inside / np.bincount(parent, inside)[parent]


def _unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _by_category(
    options: SearchLogOptions, common: Floats, top: Floats, direction: Floats
) -> Floats:
    """unit((1 - s) common + s unit(top + d unit(direction))) of each sub-category."""
    category = _unit(top + options.sub_category_deviation * _unit(direction))
    strength = options.category_strength
    return _unit((1.0 - strength) * common + strength * category)


def _weights(
    rng: np.random.Generator, options: SearchLogOptions, parent: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """w_c = unit((1 - s) w_0 + s unit(v_t(c) + d g_c))."""
    size = len(COMPONENTS)
    common = _unit(np.ones(size))
    top = np.sqrt(rng.dirichlet(np.full(size, _CONCENTRATION), options.top_categories))
    top[:, _PRICE] *= rng.choice([-1.0, 1.0], options.top_categories)
    direction = rng.standard_normal((len(parent), size))
    return common, _by_category(options, common, top[parent], direction)


def _combinations(options: SearchLogOptions, parent: NDArray[np.int64]) -> Floats:
    """A_c = unit((1 - s) A_0 + s unit(A_t(c) + d B_c))."""
    rng = np.random.default_rng([options.seed, 3])
    size = len(PAIRS[0])
    common = _unit(rng.standard_normal(size))
    top = _unit(rng.standard_normal((options.top_categories, size)))
    direction = rng.standard_normal((len(parent), size))
    return _by_category(options, common, top[parent], direction)


def _sub_names(
    options: SearchLogOptions,
    top_names: list[str],
    parent: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> list[str]:
    names = [sub_name(top_names[t], int(r)) for t, r in zip(parent, rank, strict=True)]
    # The last sub-categories of neighbouring parents get a name in common, the first are left
    # alone.
    free = [np.flatnonzero(parent == t)[::-1].tolist() for t in range(options.top_categories)]
    for pair in range(options.shared_names):
        left, right = sorted(range(len(free)), key=lambda t: -len(free[t]))[:2]
        shared = _SHARED[pair] if pair < len(_SHARED) else f"Other {pair + 1}"
        if not free[left] or not free[right]:
            break
        names[free[left].pop(0)] = names[free[right].pop(0)] = shared
    return names


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
    """Hashes integers or integer arrays, broadcast together, to 64-bit keys."""
    with np.errstate(over="ignore"):
        key = _scramble(np.atleast_1d(np.asarray(seed, dtype=np.uint64)))
        for part in parts:
            key = _scramble(key ^ np.asarray(part).astype(np.uint64))
    return key


def uniform(keys: Keys) -> Floats:
    """Uniform numbers in [0, 1), one per key."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(keys: Keys) -> Floats:
    """Standard normal numbers, one per key, by the Box-Muller transform."""
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
    """The ranks of uniform numbers under a cumulative distribution."""
    return np.searchsorted(cdf, numbers, side="right").astype(np.int64)
