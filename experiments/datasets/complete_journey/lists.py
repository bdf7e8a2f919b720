"""Makes the lists week by week and writes them as Parquet files with their schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from experiments.datasets.complete_journey.candidates import (
    Candidates,
    DrawOptions,
    Lists,
    draw_candidates,
    find_lists,
    recent_sales,
)
from experiments.datasets.complete_journey.features import (
    CONTEXT_FEATURES,
    EXAMPLE_FEATURES,
    History,
    Numeric,
)
from experiments.datasets.complete_journey.hashing import SUBSET, hash_bits
from experiments.datasets.complete_journey.source import (
    DEMOGRAPHICS,
    UNKNOWN,
    Catalogue,
    Promotions,
    Purchases,
)
from tfr_moe.schema import SPLITS, FeatureSchema

FIRST_MONDAY = date(2016, 12, 26)
"""Monday of week 1."""
IDS = ("list_id", "time", "purchase", "product_id", "household_id", "store_id")
NOTES = (
    "Negatives are sampled from what the chain sold in the eight weeks before: a metric on these "
    "lists says how well a model finds the bought products, not how well it orders a page.",
    "The package's README calls the data simulated; the preparation script of its origin, the R "
    "package completejourney, shows one re-dated year of dunnhumby's The Complete Journey.",
)

Array = np.ndarray


@dataclass(frozen=True)
class ListOptions:
    """Which lists are made, and what is in them.

    Attributes:
        draw: of the candidates.
        first_week, last_train_week, first_test_week, last_week: weeks of the lists; those between
            training and test are for validation.
        num_lists: maximum number of lists of each split, chosen by a hash: a smaller subset is part
            of a larger one. A split that is not named has all.
        num_full_pool_lists: number of test lists that are written a second time with all products
            of their pool as candidates.
    """

    draw: DrawOptions = field(default_factory=DrawOptions)
    first_week: int = 9
    last_train_week: int = 42
    first_test_week: int = 46
    last_week: int = 53
    num_lists: tuple[tuple[str, int], ...] = ()
    num_full_pool_lists: int = 0

    def weeks(self) -> range:
        """Returns the weeks of the lists."""
        return range(self.first_week, self.last_week + 1)

    def files(self) -> list[tuple[int, bool]]:
        """Returns the files to write: (week of the lists, whether they are the whole pools)."""
        tests = [week for week in self.weeks() if self.split(week) == "test"]
        full = tests if self.num_full_pool_lists else []
        return [(week, False) for week in self.weeks()] + [(week, True) for week in full]

    def split(self, week: int) -> str:
        """Returns the split of a week."""
        return SPLITS[(week > self.last_train_week) + (week >= self.first_test_week)]


class ListMaker:
    """Makes the lists of any week.

    Args:
        purchases: all purchases.
        catalogue: all products.
        promotions: displays and mailers.
        demographics: the package's table.
        options: which lists, and what is in them.
    """

    def __init__(
        self,
        purchases: Purchases,
        catalogue: Catalogue,
        promotions: Promotions,
        demographics: pd.DataFrame,
        options: ListOptions,
    ):
        self._purchases, self._catalogue, self._promotions = purchases, catalogue, promotions
        self._options = options
        self._history = History(purchases, catalogue)
        people = demographics.set_index("household_id").reindex(purchases.household_ids)
        self._demographics = {
            name: people[name].fillna(UNKNOWN).astype(str).to_numpy(object) for name in DEMOGRAPHICS
        }
        self.counts: Counter[str] = Counter(purchases.counts)
        self._limits = self._find_limits()

    def _priority(self, lists: Lists) -> Array:
        """Hashes by which subsets of the lists are chosen."""
        return hash_bits(self._options.draw.seed, SUBSET, lists.basket, lists.shelf)

    def _find_limits(self) -> dict[str, np.uint64]:
        """Counts all lists; returns the largest hash of the chosen lists of each limited split."""
        hashes: dict[str, list[Array]] = {split: [] for split in SPLITS}
        for week in self._options.weeks():
            recent = recent_sales(self._purchases, self._catalogue, week)
            lists, counts = find_lists(self._purchases, self._catalogue, week, recent)
            self.counts.update(counts)
            hashes[self._options.split(week)].append(self._priority(lists))
        joined = {split: np.concatenate(parts) for split, parts in hashes.items() if parts}
        self.counts.update({f"{split} lists": len(values) for split, values in joined.items()})
        wanted = {**dict(self._options.num_lists), "full pool": self._options.num_full_pool_lists}
        joined["full pool"] = joined.get("test", np.zeros(0, np.uint64))
        return {
            split: np.partition(joined[split], number - 1)[number - 1]
            for split, number in wanted.items()
            if 0 < number < len(joined[split])
        }

    def week(self, week: int, full_pool: bool = False) -> pa.Table:
        """Returns the rows of the lists of a week.

        Args:
            week: the week.
            full_pool: make the lists of the second test set, with all products of their pools.
        """
        recent = recent_sales(self._purchases, self._catalogue, week)
        lists, _ = find_lists(self._purchases, self._catalogue, week, recent)
        limit = self._limits.get("full pool" if full_pool else self._options.split(week))
        if limit is not None:
            lists = lists.select(self._priority(lists) <= limit)
        draw = replace(self._options.draw, size=None) if full_pool else self._options.draw
        candidates = draw_candidates(lists, self._catalogue, recent, draw)
        return self._table(lists, candidates)

    def _table(self, lists: Lists, candidates: Candidates) -> pa.Table:
        context = self._history.context(lists)
        examples = self._history.examples(lists, context, candidates, self._promotions)
        columns: dict[str, pa.Array] = {}
        for name, array in self._list_columns(lists, context).items():
            columns[name] = _repeated(array, candidates.list_index)
        columns["product_id"] = pa.array(self._catalogue.product_id[candidates.product])
        columns["purchase"] = pa.array(candidates.purchased.astype(np.int8))
        for name, array in examples.items():
            columns[name] = pa.array(array.astype(np.float32))
        return pa.table(columns)

    def _list_columns(self, lists: Lists, context: dict[str, Array]) -> dict[str, Array]:
        monday = FIRST_MONDAY + timedelta(weeks=lists.week - 1)
        parents, children = self._catalogue.parents, self._catalogue.children
        pairs = zip(lists.basket.tolist(), lists.shelf.tolist(), strict=True)
        text = {
            "list_id": np.array([f"{basket}-{shelf}" for basket, shelf in pairs], object),
            "time": np.full(len(lists), monday.isoformat(), object),
            "top_category": parents[lists.shelf],
            "sub_category": children[lists.shelf],
            "hour": lists.hour.astype(str).astype(object),
            "weekday": lists.weekday.astype(str).astype(object),
            **{name: values[lists.household] for name, values in self._demographics.items()},
        }
        return {
            **text,
            "household_id": self._purchases.household_ids[lists.household],
            "store_id": self._purchases.store_ids[lists.store],
            **{name: array.astype(np.float32) for name, array in context.items()},
        }


def _repeated(values: Array, list_index: Array) -> pa.Array:
    """The value of each candidate's list; text as a dictionary, which stores it once."""
    if values.dtype != object:
        return pa.array(values[list_index])
    codes, names = pd.factorize(values)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes[list_index].astype(np.int32)), pa.array(names, pa.string())
    )


def write_lists(maker: ListMaker, options: ListOptions, out: Path) -> Iterator[str]:
    """Writes `rows/`, `full_pool/` and `schema.json` to a folder, and yields each file's name.

    There is one file per week; the rows of a list are consecutive.
    """
    for week, is_full in options.files():
        split = options.split(week)
        folder, prefix = ("full_pool", "") if is_full else ("rows", f"{split}-")
        path = out / folder / f"{prefix}week-{week:02}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = maker.week(week, full_pool=is_full)
        _write(table, path)
        _count(maker.counts, "full pool" if is_full else split, table)
        yield f"{folder}/{path.name}"
    schema().save(out / "schema.json")


def _write(table: pa.Table, path: Path) -> None:
    parquet.write_table(table, path, compression="zstd", row_group_size=1 << 16)


def _count(counts: Counter[str], name: str, table: pa.Table) -> None:
    counts[f"{name} lists written"] += len(set(table["list_id"].chunk(0).indices.to_numpy()))
    counts[f"{name} rows written"] += len(table)
    counts[f"{name} positives written"] += int(table["purchase"].to_numpy().sum())


def schema() -> FeatureSchema:
    """Returns the schema of the rows."""

    def numeric(feature: Numeric, scope: str) -> dict[str, Any]:
        transform = {"transform": "log1p"} if feature.log1p else {}
        return {"name": feature.name, "scope": scope, "kind": "numeric", **transform}

    def category(name: str, **values: Any) -> dict[str, Any]:
        return {"name": name, "scope": "context", "kind": "categorical", **values}

    features = [category("top_category"), category("sub_category")]
    features += [category(n, embedding_dim=4) for n in (*DEMOGRAPHICS, "hour", "weekday")]
    features += [numeric(feature, "context") for feature in CONTEXT_FEATURES]
    features += [numeric(feature, "example") for feature in EXAMPLE_FEATURES]
    return FeatureSchema.model_validate(
        {
            "list_id": "list_id",
            "time": "time",
            "labels": ["purchase"],
            "hierarchy": {"child": "sub_category", "parent": "top_category"},
            "features": features,
        }
    )
