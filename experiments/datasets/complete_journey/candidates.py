"""The lists of a week, and the candidates of each.

A list is the choice of one basket on one shelf. Its pool are the products of the shelf that were
sold anywhere in the chain in the `POOL_WEEKS` weeks before. A purchased product outside the pool is
no candidate: otherwise "no recent sales" would identify it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from experiments.datasets.complete_journey.hashing import DRAW, ORDER, hash_bits, uniform
from experiments.datasets.complete_journey.source import Catalogue, Purchases

POOL_WEEKS = 8
MIN_NEGATIVES = 4
_CELLS = 1 << 21
"""Number of (list, product) pairs that are hashed at a time."""

Array = np.ndarray


@dataclass(frozen=True)
class Lists:
    """The lists of one week, sorted by shelf, then by basket.

    Attributes:
        week: the week.
        shelf, basket, household, store, hour, weekday: one value for each list.
        starts: list i has the positives `positives[starts[i]:starts[i + 1]]`.
        positives: positions in the catalogue, sorted within each list.
    """

    week: int
    shelf: Array
    basket: Array
    household: Array
    store: Array
    hour: Array
    weekday: Array
    starts: Array
    positives: Array

    def __len__(self) -> int:
        return len(self.shelf)

    def select(self, mask: Array) -> Lists:
        """Returns the lists where the mask is set."""
        sizes = np.diff(self.starts)
        names = ("shelf", "basket", "household", "store", "hour", "weekday")
        return replace(
            self,
            **{name: getattr(self, name)[mask] for name in names},
            starts=np.concatenate([[0], np.cumsum(sizes[mask])]),
            positives=self.positives[np.repeat(mask, sizes)],
        )


@dataclass(frozen=True)
class Candidates:
    """Candidates of lists, list by list.

    Attributes:
        list_index: position of the list of each candidate.
        product: position of the product in the catalogue.
        purchased: the label.
    """

    list_index: Array
    product: Array
    purchased: Array

    def __len__(self) -> int:
        return len(self.product)


@dataclass(frozen=True)
class DrawOptions:
    """How candidates are drawn.

    Attributes:
        seed: of the draw and of the order within lists.
        size: candidates of a list, positives included; None for the whole pool.
        exponent: a negative is drawn with probability proportional to its sales in the pool's weeks
            to this power; 0 draws uniformly.
    """

    seed: int = 0
    size: int | None = 20
    exponent: float = 0.0

    @property
    def max_positives(self) -> int | None:
        """Half of the list; the positives beyond are not candidates."""
        return None if self.size is None else self.size // 2


def recent_sales(purchases: Purchases, catalogue: Catalogue, week: int) -> Array:
    """Returns the purchase rows of each product in the weeks that define the pool."""
    rows = purchases.of_weeks(week - POOL_WEEKS, week)
    return np.bincount(purchases.product[rows], minlength=len(catalogue))


def find_lists(
    purchases: Purchases, catalogue: Catalogue, week: int, recent: Array
) -> tuple[Lists, dict[str, int]]:
    """Returns the lists of a week with at least `MIN_NEGATIVES` possible negatives, and counts.

    Args:
        purchases: all purchases.
        catalogue: all products.
        week: the week of the lists.
        recent: `recent_sales` before that week.
    """
    of_week = purchases.of_weeks(week, week + 1)
    product, basket = purchases.product[of_week], purchases.basket[of_week]
    order = np.lexsort((product, basket, catalogue.shelf[product]))
    same_product = np.diff(product[order], prepend=-1) == 0
    same_basket = np.diff(basket[order], prepend=-1) == 0
    order = order[~(same_product & same_basket)]
    in_pool = recent[product[order]] > 0
    counts = {"positives": len(order), "positives outside the pool": int((~in_pool).sum())}
    order = order[in_pool]
    shelf = catalogue.shelf[product[order]]
    begins = np.diff(shelf, prepend=-1) != 0
    begins |= np.diff(basket[order], prepend=-1) != 0
    starts = np.flatnonzero(begins)
    rows = of_week.start + order[starts]
    lists = Lists(
        week=week,
        shelf=shelf[starts],
        basket=purchases.basket[rows],
        household=purchases.household[rows],
        store=purchases.store[rows],
        hour=purchases.hour[rows],
        weekday=purchases.weekday[rows],
        starts=np.append(starts, len(order)),
        positives=product[order],
    )
    pool_size = np.bincount(catalogue.shelf[recent > 0], minlength=len(catalogue.parents))
    large = pool_size[lists.shelf] >= np.diff(lists.starts) + MIN_NEGATIVES
    counts["lists with too small a pool"] = int((~large).sum())
    return lists.select(large), counts


def draw_candidates(
    lists: Lists, catalogue: Catalogue, recent: Array, options: DrawOptions
) -> Candidates:
    """Returns the candidates of lists, each list in the order of a hash.

    The draw is without replacement, by the smallest of exponential variables whose rates are the
    weights (Efraimidis and Spirakis 2006). The variables are hashes of seed, basket and product, so
    the candidates of a list do not depend on which other lists are drawn.
    """
    parts = []
    shelves, first = np.unique(lists.shelf, return_index=True)
    for shelf, start, end in zip(shelves, first, [*first[1:], len(lists)], strict=True):
        of_shelf = catalogue.of_shelf(shelf)
        pool = of_shelf.start + np.flatnonzero(recent[of_shelf] > 0)
        step = max(1, _CELLS // len(pool))
        for chunk in range(start, end, step):
            rows = np.arange(chunk, min(chunk + step, end))
            parts.append(_draw(lists, rows, pool, catalogue, recent, options))
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)] if parts else None
    if joined is None:
        return Candidates(*(np.zeros(0, kind) for kind in (np.int64, np.int64, bool)))
    list_index, product, purchased = joined
    ids = lists.basket[list_index], catalogue.product_id[product]
    order = np.lexsort((hash_bits(options.seed, ORDER, *ids), list_index))
    return Candidates(list_index[order], product[order], purchased[order])


def _draw(
    lists: Lists,
    rows: Array,
    pool: Array,
    catalogue: Catalogue,
    recent: Array,
    options: DrawOptions,
) -> tuple[Array, Array, Array]:
    """List, product and label of the candidates of some lists of one shelf."""
    ids = lists.basket[rows][:, None], catalogue.product_id[pool][None, :]
    keys = uniform(hash_bits(options.seed, DRAW, *ids))
    if options.exponent:
        keys = -np.log(keys) / recent[pool].astype(np.float64) ** options.exponent
    start, end = lists.starts[rows[0]], lists.starts[rows[-1] + 1]
    row = np.repeat(np.arange(len(rows)), np.diff(lists.starts)[rows])
    column = np.asarray(np.searchsorted(pool, lists.positives[start:end]))
    positive_keys = keys[row, column]
    # All positives leave the draw of the negatives, also those beyond the maximum.
    keys[row, column] = np.inf
    row, column = _smallest(row, column, positive_keys, options.max_positives)
    size = min(options.size or len(pool), len(pool))
    chosen = np.argpartition(keys, size - 1, axis=1)[:, :size]
    chosen_keys = np.take_along_axis(keys, chosen, axis=1)
    by_key = np.argsort(chosen_keys, axis=1)
    room = (options.size or len(pool)) - np.bincount(row, minlength=len(rows))
    negative = np.isfinite(np.take_along_axis(chosen_keys, by_key, axis=1))
    negative &= np.arange(size) < room[:, None]
    negative_row = np.nonzero(negative)[0]
    negative_column = np.take_along_axis(chosen, by_key, axis=1)[negative]
    return (
        rows[np.concatenate([row, negative_row])],
        pool[np.concatenate([column, negative_column])],
        np.repeat([True, False], [len(row), len(negative_row)]),
    )


def _smallest(row: Array, column: Array, keys: Array, limit: int | None) -> tuple[Array, Array]:
    """The pairs with the `limit` smallest keys of each row; rows are sorted."""
    order = np.lexsort((keys, row))
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    order = order[rank < limit] if limit is not None else order
    return row[order], column[order]
