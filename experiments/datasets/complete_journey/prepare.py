"""Prepares The Complete Journey purchases: a log of lists with sampled negatives.

    python -m experiments.datasets.complete_journey.prepare --data FOLDER --out FOLDER

FOLDER holds transactions.csv.gz, products.csv.gz and demographics.csv.gz of the completejourney
package. The files hold purchases without impressions, so lists are generated: one per purchased
product, its only positive, with sampled products of the same category. The query of a list is the
category of its positive (department > product_category), as if the household had opened that shelf.
Metrics on such lists measure how well a model separates the purchased product from popular others,
not how well it re-orders a real result page.

Measures against leakage:

- Every feature covers strictly earlier purchases, for positives and negatives alike. Purchases of
the
  same time do not see each other.
- Candidates, positive or negative, were purchased at a strictly earlier time, and within the first
  `--train-share` of the purchases. Otherwise a product never purchased in training could be
  recognised by that: as a negative, or as the positive of a test list.
- Whether a product is a candidate depends on nothing later. Requiring in addition that each
candidate is
  a positive of some training list leaks the future: late in training, a product with one sale so
  far would be the positive five times as often as the others.
- Negatives are drawn without replacement, with probability proportional to (earlier sales)^0.75,
and
  never from the same basket. Products purchased earlier may be negatives: if they were excluded,
  "purchased before" would identify the positive.
- The candidates of a list are written in random order.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MIN_CANDIDATES = 10
DAY = 86400.0
HOUSEHOLD = ("age", "income", "household_size", "kids_count")


class Product(NamedTuple):
    """One product."""

    department: str
    category: str
    product_type: str
    brand: str
    manufacturer: str


class Sale(NamedTuple):
    """One purchase of a product."""

    time: float
    basket: str
    product: str
    household: str
    price: float


class History:
    """Aggregates over all purchases before the current time."""

    def __init__(self, products: dict[str, Product]):
        self.products = products
        self.sales: Counter[str] = Counter()
        self.revenue: dict[str, float] = defaultdict(float)
        self.last_sale: dict[str, float] = {}
        self.category: Counter[tuple[str, str]] = Counter()
        self.category_revenue: dict[tuple[str, str], float] = defaultdict(float)
        self.household: Counter[tuple[str, ...]] = Counter()

    def keys(self, household: str, product: str) -> dict[str, tuple[str, ...]]:
        """Returns feature name -> key of the purchases that it counts."""
        department, category, product_type, brand, manufacturer = self.products[product]
        return {
            "household_sales": (household,),
            "household_department": (household, "d", department),
            "household_category": (household, "c", department, category),
            "household_type": (household, "t", department, category, product_type),
            "household_brand": (household, "b", department, category, brand),
            "household_manufacturer": (household, "m", manufacturer),
            "household_item": (household, "i", product),
        }

    def add(self, sale: Sale) -> None:
        """Adds one purchase."""
        shelf = self.products[sale.product][:2]
        self.sales[sale.product] += 1
        self.revenue[sale.product] += sale.price
        self.last_sale[sale.product] = sale.time
        self.category[shelf] += 1
        self.category_revenue[shelf] += sale.price
        self.household.update(self.keys(sale.household, sale.product).values())

    def features(self, sale: Sale, product: str) -> dict[str, Any]:
        """Returns the row of one candidate in the list of one sale, without the label."""
        item = self.products[product]
        shelf = item[:2]
        price = self.revenue[product] / self.sales[product]
        usual = self.category_revenue[shelf] / self.category[shelf]
        return {
            "department": item.department,
            "product_category": item.category,
            "product_id": product,
            "product_type": item.product_type,
            "brand": item.brand,
            "manufacturer": item.manufacturer,
            "item_sales": self.sales[product],
            "item_share": round(self.sales[product] / self.category[shelf], 6),
            "days_since_sale": round((sale.time - self.last_sale[product]) / DAY, 3),
            "price": round(price, 4),
            "price_to_category": round(price / usual, 4) if usual else 1.0,
            **{n: self.household[k] for n, k in self.keys(sale.household, product).items()},
        }


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    """Yields the rows of a gzip CSV file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def read_products(path: Path) -> dict[str, Product]:
    """Returns the products by ID."""
    columns = ("department", "product_category", "product_type", "brand", "manufacturer_id")
    return {row["product_id"]: Product(*(row[c] for c in columns)) for row in read_csv(path)}


def read_sales(path: Path, products: dict[str, Product], counts: Counter[str]) -> list[Sale]:
    """Returns valid purchases, earliest first; dropped ones are counted by reason."""
    sales = []
    for row in read_csv(path):
        counts["rows read"] += 1
        product = products.get(row["product_id"])
        quantity = float(row["quantity"])
        if product is None:
            counts["left out: product unknown"] += 1
        elif not product.category:
            counts["left out: product without category"] += 1
        elif quantity <= 0:
            counts["left out: quantity 0"] += 1
        else:
            when = datetime.fromisoformat(row["transaction_timestamp"].replace("Z", "+00:00"))
            price = float(row["sales_value"]) / quantity
            key = (row["basket_id"], row["product_id"], row["household_id"])
            sales.append(Sale(when.timestamp(), *key, price))
    return sorted(sales)


def lists(
    sales: list[Sale], history: History, until: float, counts: Counter[str]
) -> Iterator[tuple[Sale, list[str]]]:
    """Yields each sale that makes a list with its candidate negatives, `history` being at its time.

    Products first sold after `until` never become candidates.
    """
    shelves: dict[tuple[str, str], set[str]] = defaultdict(set)
    for time, group in itertools.groupby(sales, key=lambda sale: sale.time):
        moment = list(group)
        baskets = defaultdict(set)
        for sale in moment:
            baskets[sale.basket].add(sale.product)
        for sale in moment:
            shelf = shelves[history.products[sale.product][:2]]
            others = shelf - baskets[sale.basket]
            if sale.product not in shelf:
                counts["left out: not sold before"] += 1
            elif len(others) < MIN_CANDIDATES - 1:
                counts[f"left out: fewer than {MIN_CANDIDATES} candidates"] += 1
            else:
                yield sale, sorted(others)
        for sale in moment:
            history.add(sale)
            if time < until:
                shelves[history.products[sale.product][:2]].add(sale.product)


def rows(
    sales: list[Sale],
    products: dict[str, Product],
    demographics: dict[str, dict[str, str]],
    until: float,
    negatives: int,
    seed: int,
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yields the rows, list by list in order of time."""
    random = np.random.default_rng(seed)
    history = History(products)
    for sale, others in lists(sales, history, until, counts):
        weights = np.array([history.sales[product] for product in others]) ** 0.75
        # The smallest of exponential variables with these rates: a draw without replacement.
        drawn = np.argsort(random.exponential(size=len(others)) / weights)[:negatives]
        candidates = [sale.product, *(others[i] for i in drawn)]
        person = demographics.get(sale.household, {})
        for i in random.permutation(len(candidates)):
            yield {
                "list_id": f"{sale.basket}-{sale.product}",
                "time": int(sale.time),
                "purchase": int(i == 0),
                **{name: person.get(name, "") for name in HOUSEHOLD},
                **history.features(sale, candidates[i]),
            }


def write(path: Path, log: Iterator[dict[str, Any]], until: float, counts: Counter[str]) -> None:
    """Writes under a temporary name, renames at the end, and counts rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    products, categories, trained = set(), set(), set()
    with gzip.open(partial, "wt", encoding="utf-8", newline="", compresslevel=4) as file:
        writer = None
        for row in log:
            writer = writer or csv.DictWriter(file, list(row))
            if not counts["rows written"]:
                writer.writeheader()
            writer.writerow(row)
            counts["rows written"] += 1
            products.add(row["product_id"])
            categories.add((row["department"], row["product_category"]))
            if row["purchase"]:
                counts["lists"] += 1
                counts["lists within --train-share"] += row["time"] < until
                counts["lists with a repeat purchase"] += row["household_item"] > 0
                if row["time"] < until:
                    trained.add(row["product_id"])
    counts["products"], counts["categories"] = len(products), len(categories)
    counts["products that are a positive within --train-share"] = len(trained)
    partial.rename(path)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the three .csv.gz files"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.csv.gz")
    parser.add_argument(
        "--negatives", type=int, default=25, help="maximum number of negatives per list"
    )
    parser.add_argument(
        "--train-share",
        type=float,
        default=0.7,
        help="fraction of the purchases, by time, that candidates come from: at most the training "
        "fraction",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.negatives < 1 or not 0 < arguments.train_share <= 1:
        parser.error("--negatives must be >= 1 and --train-share in (0, 1]")
    files = [arguments.data / f"{n}.csv.gz" for n in ("products", "transactions", "demographics")]
    for file in files:
        if not file.is_file():
            parser.error(f"--data: no file {file}")
    counts: Counter[str] = Counter()
    products = read_products(files[0])
    sales = read_sales(files[1], products, counts)
    demographics = {row["household_id"]: row for row in read_csv(files[2])}
    until = sales[int(arguments.train_share * (len(sales) - 1))].time
    log = rows(sales, products, demographics, until, arguments.negatives, arguments.seed, counts)
    write(arguments.out / "rows.csv.gz", log, until, counts)
    for name, count in counts.items():
        print(f"{count:>10,}  {name}")
    print(f"{arguments.out / 'rows.csv.gz'}: schema in {Path(__file__).with_name('schema.yaml')}")


if __name__ == "__main__":
    main()
