"""Features of lists and candidates, from weeks before the list's week.

The only value of the list's own week is the promotion, which the retailer set before. Nothing of
the list's basket is used: not its size, not the prices paid in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from experiments.datasets.complete_journey.candidates import POOL_WEEKS, Candidates, Lists
from experiments.datasets.complete_journey.history import WeeklySums, ratio
from experiments.datasets.complete_journey.source import (
    DISPLAY,
    FRONT_PAGE,
    MAILER,
    Catalogue,
    Promotions,
    Purchases,
)

STORE_WEEKS = 12
RECENCY_WEEKS = 8.0

Array = np.ndarray


class Numeric(NamedTuple):
    """A numeric feature: whether it is a count or price for log1p, and whether it is 0 or 1."""

    name: str
    log1p: bool = False
    binary: bool = False


CONTEXT_FEATURES = (
    Numeric("household_category_sales", log1p=True),
    Numeric("household_private_share"),
)
EXAMPLE_FEATURES = (
    Numeric("item_sales_1w", log1p=True),
    Numeric("item_sales_8w", log1p=True),
    Numeric("store_sales_12w", log1p=True),
    Numeric("price", log1p=True),
    Numeric("discount"),
    Numeric("display", binary=True),
    Numeric("mailer", binary=True),
    Numeric("front_page", binary=True),
    Numeric("household_item", log1p=True),
    Numeric("household_item_recency"),
    Numeric("household_manufacturer", log1p=True),
    Numeric("household_type", log1p=True),
    Numeric("household_package_size", log1p=True),
    Numeric("private_label", binary=True),
    Numeric("private_label_match"),
    Numeric("price_distance"),
    Numeric("product_age", log1p=True),
)


class History:
    """Aggregates of all purchases by week; each query names the week before which it looks.

    Args:
        purchases: all purchases.
        catalogue: all products.
    """

    def __init__(self, purchases: Purchases, catalogue: Catalogue):
        self._catalogue = catalogue
        self._sizes = {
            "shelf": len(catalogue.parents),
            "product": len(catalogue),
            **{
                name: int(getattr(catalogue, name).max(initial=0)) + 1
                for name in ("manufacturer", "product_type", "package_size")
            },
        }
        product, week = purchases.product, purchases.week
        household, shelf = purchases.household, catalogue.shelf[product]
        paid = {"paid": purchases.paid, "units": purchases.units}
        self._items = WeeklySums(product, week, regular=purchases.regular, **paid)
        self._stores = WeeklySums(self._key(purchases.store, product=product), week)
        private = catalogue.private_label[product].astype(np.int64)
        self._households = WeeklySums(household, week, private=private)
        self._everyone = WeeklySums(np.zeros_like(week), week, private=private)
        self._shelves = WeeklySums(self._key(household, shelf=shelf), week, **paid)
        self._household_items = WeeklySums(self._key(household, product=product), week)
        self._within_shelf = {
            name: WeeklySums(self._shelf_key(household, product, name), week)
            for name in ("manufacturer", "product_type", "package_size")
        }

    def _key(self, first: Array, **codes: Array) -> Array:
        for name, values in codes.items():
            first = first * self._sizes[name] + values
        return first

    def _shelf_key(self, household: Array, product: Array, name: str) -> Array:
        codes = {"shelf": self._catalogue.shelf, name: getattr(self._catalogue, name)}
        return self._key(household, **{key: array[product] for key, array in codes.items()})

    def context(self, lists: Lists) -> dict[str, Array]:
        """Returns the features of each list, in float64."""
        week = lists.week
        shelves = self._shelves.span(self._key(lists.household, shelf=lists.shelf), 0, week)
        everyone = self._everyone.span(np.zeros(1, np.int64), 0, week)
        all_sales = self._everyone.total(everyone)
        share = ratio(self._everyone.total(everyone, "private"), all_sales, 0.0)[0]
        household = self._households.span(lists.household, 0, week)
        return {
            "household_category_sales": self._shelves.total(shelves).astype(np.float64),
            "household_private_share": ratio(
                self._households.total(household, "private"),
                self._households.total(household),
                share,
            ),
        }

    def examples(
        self,
        lists: Lists,
        context: dict[str, Array],
        candidates: Candidates,
        promotions: Promotions,
    ) -> dict[str, Array]:
        """Returns the features of each candidate, in float64.

        Args:
            lists: the lists of one week.
            context: their `context`.
            candidates: their candidates, which all had sales in the pool's weeks.
            promotions: displays and mailers.
        """
        week, product = lists.week, candidates.product
        flags = promotions.flags(product, lists.store[candidates.list_index], week)
        private = self._catalogue.private_label[product]
        items = self._of_items(week)
        features = {name: array[product] for name, array in items.items()}
        features |= {
            name: (flags & flag) != 0
            for name, flag in (("display", DISPLAY), ("mailer", MAILER), ("front_page", FRONT_PAGE))
        }
        features |= self._of_households(lists, candidates, features["price"])
        features["private_label"] = private
        share = context["household_private_share"][candidates.list_index]
        features["private_label_match"] = private * share
        return {f.name: features[f.name].astype(np.float64) for f in EXAMPLE_FEATURES}

    def _of_items(self, week: int) -> dict[str, Array]:
        """Features of each product of the catalogue, whatever the list."""
        products, items = np.arange(len(self._catalogue)), self._items
        pool = items.span(products, week - POOL_WEEKS, week)
        paid = items.total(pool, "paid")
        ever = items.span(products, 0, week)
        oldest = items.first_week(ever)
        return {
            "item_sales_1w": items.total(items.span(products, week - 1, week)),
            "item_sales_8w": items.total(pool),
            "price": ratio(paid, 100 * items.total(pool, "units"), 0.0),
            "discount": 1.0 - ratio(paid, items.total(pool, "regular"), 1.0),
            "product_age": np.where(oldest < 0, 0, week - oldest),
        }

    def _of_households(
        self, lists: Lists, candidates: Candidates, price: Array
    ) -> dict[str, Array]:
        """Features of a candidate that depend on the household or its store."""
        week, product = lists.week, candidates.product
        household = lists.household[candidates.list_index]
        store = lists.store[candidates.list_index]
        at_store = self._stores.span(self._key(store, product=product), week - STORE_WEEKS, week)
        of_household = self._household_items.span(self._key(household, product=product), 0, week)
        latest = self._household_items.latest_week(of_household)
        shelves = self._shelves.span(self._key(lists.household, shelf=lists.shelf), 0, week)
        usual = ratio(
            self._shelves.total(shelves, "paid"), 100 * self._shelves.total(shelves, "units"), 0.0
        )[candidates.list_index]
        known = (usual > 0) & (price > 0)
        distance = np.log(np.where(known, price, 1.0)) - np.log(np.where(known, usual, 1.0))
        counts = {}
        for name, sums in self._within_shelf.items():
            span = sums.span(self._shelf_key(household, product, name), 0, week)
            counts[f"household_{name.removeprefix('product_')}"] = sums.total(span)
        return {
            "store_sales_12w": self._stores.total(at_store),
            "household_item": self._household_items.total(of_household),
            "household_item_recency": np.where(
                latest < 0, 0.0, np.exp((latest - week) / RECENCY_WEEKS)
            ),
            "price_distance": np.abs(distance),
            **counts,
        }
