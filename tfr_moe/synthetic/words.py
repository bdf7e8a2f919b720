"""Readable names of the sub-categories, brands, queries and products of a synthetic log.

Names are functions of numbers: none is drawn, so that the numbers of a log do not depend on them.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from .options import SearchLogOptions

if TYPE_CHECKING:
    from .world import World


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


def top_name(number: int) -> str:
    """Returns the name of a top category."""
    names = list(_SUB_NAMES)
    return names[number] if number < len(names) else f"Category {number + 1}"


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
    """The names in one log, functions of a number.

    Attributes:
        brand: name of a brand.
        query: text of a query, such as `waterproof jackets for travel`.
        product: name of a product, such as `Waterproof Jacket 21`.
    """

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
