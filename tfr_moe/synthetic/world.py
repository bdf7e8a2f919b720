"""The fixed part of a synthetic log: categories, their weights and names, and hashed attributes.

Attributes are drawn from keys by hashing: an item has the same price wherever it is shown, without
a table of items in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .options import SearchLogOptions

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
        first: [T + 1] index of a top category's first sub-category, and C.
    """

    top_names: list[str]
    sub_names: list[str]
    parent: NDArray[np.int64]
    traffic: Floats
    weights: Floats
    combinations: Floats
    common: Floats
    price_level: Floats
    first: NDArray[np.int64]


def build_world(options: SearchLogOptions) -> World:
    """Draws the tree and the weights of one log from its seed."""
    rng = np.random.default_rng([options.seed, 1])
    # Sub-categories are shared out evenly.
    parent = np.sort(np.arange(options.sub_categories) % options.top_categories)
    first = np.searchsorted(parent, np.arange(options.top_categories + 1))
    rank = np.arange(options.sub_categories) - first[parent]
    common, weights = _weights(rng, options, parent)
    level = options.category_strength * rng.standard_normal(len(parent))
    others = (f"Category {number}" for number in itertools.count(len(_SUB_NAMES) + 1))
    names = itertools.chain(_SUB_NAMES, others)
    top_names = list(itertools.islice(names, options.top_categories))
    return World(
        top_names=top_names,
        sub_names=_sub_names(options, top_names, parent, rank),
        parent=parent,
        traffic=_traffic(options, parent, rank),
        weights=weights,
        combinations=_combinations(options, parent),
        common=common,
        price_level=level,
        first=first,
    )


def _traffic(
    options: SearchLogOptions, parent: NDArray[np.int64], rank: NDArray[np.int64]
) -> Floats:
    top = np.diff(zipf_cdf(options.top_categories, options.traffic_exponent), prepend=0.0)
    inside = (rank + 1.0) ** -options.traffic_exponent
    return top[parent] * inside / np.bincount(parent, inside)[parent]


def _unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _by_category(
    rng: np.random.Generator,
    options: SearchLogOptions,
    parent: NDArray[np.int64],
    common: Floats,
    top: Floats,
) -> Floats:
    """w_c = unit((1 - s) w_0 + s unit(v_t(c) + d unit(g_c))), with g_c drawn, of [C, size]."""
    direction = rng.standard_normal((len(parent), len(common)))
    category = _unit(top[parent] + options.sub_category_deviation * _unit(direction))
    strength = options.category_strength
    return _unit((1.0 - strength) * common + strength * category)


def _weights(
    rng: np.random.Generator, options: SearchLogOptions, parent: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The common weights of the components, and those of each sub-category."""
    size = len(COMPONENTS)
    common = _unit(np.ones(size))
    top = np.sqrt(rng.dirichlet(np.full(size, _CONCENTRATION), options.top_categories))
    top[:, _PRICE] *= rng.choice([-1.0, 1.0], options.top_categories)
    return common, _by_category(rng, options, parent, common, top)


def _combinations(options: SearchLogOptions, parent: NDArray[np.int64]) -> Floats:
    """The weights of the products of two components, of each sub-category."""
    rng = np.random.default_rng([options.seed, 3])
    size = len(PAIRS[0])
    common = _unit(rng.standard_normal(size))
    top = _unit(rng.standard_normal((options.top_categories, size)))
    return _by_category(rng, options, parent, common, top)


def _sub_names(
    options: SearchLogOptions,
    top_names: list[str],
    parent: NDArray[np.int64],
    rank: NDArray[np.int64],
) -> list[str]:
    names = [sub_name(top_names[t], int(r)) for t, r in zip(parent, rank, strict=True)]
    # The last sub-categories of two parents get a name in common, the first are left alone.
    free = [np.flatnonzero(parent == t).tolist() for t in range(options.top_categories)]
    for pair in range(options.shared_names):
        left, right = sorted(range(len(free)), key=lambda t: -len(free[t]))[:2]
        shared = _SHARED[pair] if pair < len(_SHARED) else f"Other {pair + 1}"
        names[free[left].pop()] = names[free[right].pop()] = shared
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


# Names are functions of numbers: none is drawn, so that a log does not depend on them.

_split = str.split
_SUB_NAMES = {
    "Clothing": "Jackets Shirts Blouses Sweaters Coats Skirts Socks Ponchos Hats Belts",
    "Books": "Novels Thrillers Cookbooks Biographies Almanacs Comics "
    "Textbooks Diaries Guidebooks Poems",
    "Foods": "Teas Biscuits Soups Olives Nuts Spices Noodles Cheeses Jams Crackers",
    "Electronics": "Televisions Speakers Cameras Radios Projectors Turntables "
    "Batteries Chargers Drones Amplifiers",
    "Computers": "Laptops Keyboards Monitors Printers Routers Tablets "
    "Scanners Webcams Microphones Servers",
    "Sports": "Bicycles Rackets Helmets Tents Balls Sleds Kayaks Dumbbells Snorkels Gloves",
    "Phones": "Smartphones Headsets Covers Earbuds Holders Smartwatches "
    "Powerbanks Cables Antennas Landlines",
    "Toys": "Puzzles Dolls Robots Kites Trains Marionettes Tricycles Marbles Rockets Castles",
    "Beauty": "Perfumes Lipsticks Creams Shampoos Soaps Lotions Mirrors Combs Serums Razors",
    "Garden": "Shovels Rakes Hoses Lanterns Arbours Fountains Planters Hammocks Parasols Fences",
    "Kitchen": "Kettles Pans Peelers Toasters Blenders Mugs Bowls Mixers Grills Trays",
    "Office": "Desks Chairs Pens Folders Staplers Calendars "
    "Envelopes Notebooks Shredders Whiteboards",
    "Shoes": "Sneakers Boots Sandals Loafers Slippers Heels Moccasins Trainers Clogs Ballerinas",
    "Jewellery": "Rings Necklaces Bracelets Earrings Amulets Pendants "
    "Anklets Cufflinks Chains Tiaras",
    "Pets": "Baskets Aquariums Collars Cages Kennels Feeders Cushions Terrariums Saddles Litters",
    "Music": "Guitars Pianos Drums Flutes Violins Trumpets Ukuleles Harps Cellos Accordions",
    "Baby": "Strollers Pacifiers Bibs Cots Rattles Blankets Bottles Playpens Diapers Highchairs",
    "Tools": "Drills Hammers Saws Spanners Levels Ladders Screwdrivers Chisels Sanders Clamps",
}

_ADJECTIVES = _split(
    "Black White Red Blue Green Grey Beige Classic Modern Simple Light Heavy Small Large Slim Wide "
    "Soft Strong Foldable Portable Waterproof Washable Organic Recycled Handmade Vintage Premium "
    "Basic Compact Silent Quick Easy Bright Dark Warm Cool Fresh Smooth Sturdy Elegant Sporty Cosy "
    "Robust Durable Colourful Patterned Natural Precise Reliable Festive"
)
_PURPOSES = _split(
    "beginners children travel winter summer work school home men women camping parties weekends "
    "seniors offices holidays students evenings mornings birthdays"
)
_STARTS = _split("Al Bel Cor Dan El Far Gil Hav Ir Jor Kal Lor Mer Nor Ol Per Quin Ros Sol Tam")
_MIDDLES = _split("a an e en i in o on u un ar er ir or ur el")
_ENDS = _split("da la mo na ra ro sta ta va vio")
_STEP = 1237  # without a divisor in common with the number of names: neighbours look different


def sub_name(top: str, rank: int) -> str:
    """Returns the name of a sub-category of a top category."""
    names = _SUB_NAMES.get(top, "").split()
    return names[rank] if rank < len(names) else f"{top} {rank + 1}"


def brand_name(number: int) -> str:
    """Returns the name of a brand, another one for each number."""
    size = len(_STARTS) * len(_MIDDLES) * len(_ENDS)
    series, rest = divmod(number, size)
    rest = rest * _STEP % size
    rest, start = divmod(rest, len(_STARTS))
    end, middle = divmod(rest, len(_MIDDLES))
    return _numbered(f"{_STARTS[start]}{_MIDDLES[middle]}{_ENDS[end]}", series)


def _numbered(name: str, series: int) -> str:
    return f"{name} {series + 1}" if series else name


def _singular(name: str) -> str:
    return name[:-3] + "y" if name.endswith("ies") else name.removesuffix("s")


class Words:
    """The names of brands, queries and products in one log, functions of a number."""

    def __init__(self, options: SearchLogOptions, world: World):
        parents = [world.top_names[parent] for parent in world.parent]
        count = Counter(world.sub_names)
        # A name under two parents is not the name of a thing: Clothing Accessories.
        self._things = [
            f"{parent} {name}" if count[name] > 1 else name
            for parent, name in zip(parents, world.sub_names, strict=True)
        ]
        self._queries, self._items = options.queries_per_category, options.items_per_category
        self.brand = cache(brand_name)
        self.query = cache(self._query)
        self.product = cache(self._product)

    def _query(self, number: int) -> str:
        category, rank = divmod(number, self._queries)
        rest, adjective = divmod(rank, len(_ADJECTIVES))
        series, purpose = divmod(rest, len(_PURPOSES) + 1)
        text = f"{_ADJECTIVES[adjective]} {self._things[category]}".lower()
        return _numbered(f"{text} for {_PURPOSES[purpose - 1]}" if purpose else text, series)

    def _product(self, number: int) -> str:
        category, rank = divmod(number, self._items)
        adjective = _ADJECTIVES[rank % len(_ADJECTIVES)]
        return f"{adjective} {_singular(self._things[category])} {rank + 1}"
