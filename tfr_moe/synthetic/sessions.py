"""Sessions of a synthetic log in vectorised chunks: items shown, utilities and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from .options import MAX_LIST_LENGTH, SearchLogOptions
from .world import COMPONENTS, PAIRS, Floats, World, combine, normal, pick, uniform, zipf_cdf

Ints: TypeAlias = NDArray[np.int64]

CHUNK_SESSIONS = 1000
HISTORY_LENGTH = 10
"""Maximum number of IDs in a user's click history."""
_BRANDS = 40  # of a top category
_POPULARITY = 0.8  # Zipf exponent of queries, items, brands and users
TASTE_BONUS = 0.2
HISTORY_BONUS = 0.3
START = 1_704_067_200  # 2024-01-01 UTC
# Each attribute has its own hash, by its position.
_ATTRIBUTES = (
    "ctr cvr price sales comments relevance brand quality age power activeness taste history "
    "history_length history_category"
)
_SALT = {name: salt for salt, name in enumerate(_ATTRIBUTES.split(), start=1)}


@dataclass(frozen=True)
class Chunk:
    """Rows of some sessions in the order in which they were shown.

    Attributes:
        columns: column name -> values of all rows; those of `click_history` are indices of
            `history`.
        history: click history of each session, item ids, latest last.
        session: [rows] index of the row's session inside the chunk.
        utility: [rows] the true utility u of each row; never written.
    """

    columns: dict[str, Any]
    history: list[list[int]]
    session: Ints
    utility: Floats


class SessionGenerator:
    """Draws sessions of one world, as a stream of chunks."""

    def __init__(self, options: SearchLogOptions, world: World):
        self._options = options
        self._world = world
        self._category_cdf = np.cumsum(world.traffic) / world.traffic.sum()
        self._category_cdf[-1] = 1.0
        self._query_cdf = zipf_cdf(options.queries_per_category, _POPULARITY)
        self._item_cdf = zipf_cdf(options.items_per_category, _POPULARITY)
        self._brand_cdf = zipf_cdf(_BRANDS, _POPULARITY)
        self._user_cdf = zipf_cdf(options.users, _POPULARITY)
        self._thresholds = thresholds(options)

    def chunks(self, part: int) -> Iterator[Chunk]:
        """Yields the sessions of one of the `num_files` parts, in order of time."""
        options = self._options
        rng = np.random.default_rng([options.seed, 2, part])
        first = part * options.sessions // options.num_files
        last = (part + 1) * options.sessions // options.num_files
        for start in range(first, last, CHUNK_SESSIONS):
            yield self._chunk(rng, start, min(CHUNK_SESSIONS, last - start))

    def _chunk(self, rng: np.random.Generator, start: int, count: int) -> Chunk:
        options, world = self._options, self._world
        category = pick(self._category_cdf, rng.random(count))
        query = category * options.queries_per_category + pick(self._query_cdf, rng.random(count))
        user = pick(self._user_cdf, rng.random(count))
        session, item = self._impressions(rng, category)
        item_category = self._category(item)
        z = self._components(item, query[session])
        persons = {
            name: normal(combine(options.seed, _SALT[name], user))
            for name in ("age", "power", "activeness")
        }
        taste = normal(combine(options.seed, _SALT["taste"], user[session], item_category))
        history = self._history(user, category)
        in_history = np.any(self._brand(history)[session] == self._brand(item)[:, None], axis=1)
        utility = self._utility(z, item_category, session, persons, taste, in_history)
        order, position = self._display(rng, z, session)
        session, item_category, item = session[order], item_category[order], item[order]
        z, utility, taste = z[order], utility[order], taste[order]
        click, cart, purchase = decide(rng, utility, position, self._thresholds, options)
        days = (start + np.arange(count) + rng.random(count)) / options.sessions * options.days
        columns = {
            "session_id": (start + np.arange(count))[session],
            "timestamp": (START + days * 86400).astype(np.int64)[session],
            "query_id": query[session],
            "user_id": user[session],
            "top_category": world.parent[category][session],
            "sub_category": category[session],
            "user_age": np.clip(40 + 12 * persons["age"], 16, 90).astype(np.int64)[session],
            "user_purchase_power": np.round(persons["power"], 3)[session],
            "user_activeness": np.round(np.exp(1.5 + 0.8 * persons["activeness"]), 2)[session],
            "click_history": session,
            "item_id": item,
            "brand": self._brand(item),
            "item_top_category": world.parent[item_category],
            "item_sub_category": item_category,
            **_observed(z, world.price_level[item_category]),
            "user_sub_category_ctr": np.round(expit(-2.5 + 0.6 * taste), 4),
            "position": position,
            "click": click,
            "cart": cart,
            "purchase": purchase,
        }
        ids = [[int(i) for i in row if i >= 0] for row in history]
        return Chunk(columns, ids, session, utility)

    def _impressions(self, rng: np.random.Generator, category: Ints) -> tuple[Ints, Ints]:
        """Distinct items of each session: session index and item ID, both flat."""
        options, world = self._options, self._world
        count = len(category)
        lengths = np.clip(2 + rng.poisson(options.mean_list_length - 2, count), 2, MAX_LIST_LENGTH)
        # Draw twice as many items as are shown, then drop repeated ones.
        shape = (count, 2 * int(lengths.max()))
        same = np.broadcast_to(category[:, None], shape)
        top = world.parent[same]
        siblings = world.first[top + 1] - world.first[top]
        sibling = world.first[top] + (rng.random(shape) * siblings).astype(np.int64)
        foreign = pick(self._category_cdf, rng.random(shape))
        other = np.where(rng.random(shape) < 0.5, sibling, foreign)
        chosen = np.where(rng.random(shape) < options.off_category, other, same)
        item = chosen * options.items_per_category + pick(self._item_cdf, rng.random(shape))
        order = np.argsort(item, axis=1, kind="stable")
        ordered = np.take_along_axis(item, order, axis=1)
        repeated: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        in_list = ~repeated & (np.cumsum(~repeated, axis=1) <= lengths[:, None])
        return np.nonzero(in_list)[0], item[in_list]

    def _category(self, item: Ints) -> Ints:
        return item // self._options.items_per_category

    def _brand(self, item: Ints) -> Ints:
        """The brands of items, -1 for no item."""
        rank = pick(self._brand_cdf, uniform(combine(self._options.seed, _SALT["brand"], item)))
        return np.where(item < 0, -1, self._world.parent[self._category(item)] * _BRANDS + rank)

    def _components(self, item: Ints, query: Ints) -> Floats:
        """z [rows, M]: one standard normal number per component of the utility."""
        seed = self._options.seed
        drawn = {
            name: normal(combine(seed, _SALT[name], item))
            for name in ("ctr", "cvr", "price", "sales", "comments")
        }
        drawn["relevance"] = normal(combine(seed, _SALT["relevance"], query, item))
        drawn["brand"] = normal(combine(seed, _SALT["quality"], self._brand(item)))
        return np.stack([drawn[name] for name in COMPONENTS], axis=1)

    def _history(self, user: Ints, category: Ints) -> Ints:
        """[sessions, HISTORY_LENGTH] item IDs, -1 for none; most of the session's sub-category."""
        options = self._options
        slots = np.arange(HISTORY_LENGTH)
        u, c = user[:, None], category[:, None]
        length = uniform(combine(options.seed, _SALT["history_length"], user))
        drawn = uniform(combine(options.seed, _SALT["history_category"], u, c, slots))
        foreign = pick(self._category_cdf, drawn / 0.3 % 1.0)
        chosen = np.where(drawn < 0.3, foreign, c)
        rank = pick(
            self._item_cdf, uniform(combine(options.seed, _SALT["history"], u, chosen, slots))
        )
        item = chosen * options.items_per_category + rank
        return np.where(slots < (length * (HISTORY_LENGTH + 1))[:, None], item, -1)

    def _utility(
        self,
        z: Floats,
        category: Ints,
        session: Ints,
        persons: dict[str, Floats],
        taste: Floats,
        in_history: NDArray[np.bool_],
    ) -> Floats:
        share, paired = self._options.interactions, self._options.combinations
        weighted = np.einsum("rm,rm->r", z, self._world.weights[category])
        products = z[:, PAIRS[0]] * z[:, PAIRS[1]]
        of_pairs = np.einsum("rp,rp->r", products, self._world.combinations[category])
        weighted = np.sqrt(1 - paired) * weighted + np.sqrt(paired) * of_pairs
        price, comments = COMPONENTS.index("price"), COMPONENTS.index("comments")
        crossed = z[:, price] * persons["power"][session] + z[:, comments] * persons["age"][session]
        extra = TASTE_BONUS * (persons["activeness"][session] + taste) + HISTORY_BONUS * in_history
        return np.sqrt(1 - share) * weighted + np.sqrt(share / 2) * crossed + extra

    def _display(
        self, rng: np.random.Generator, z: Floats, session: Ints
    ) -> tuple[NDArray[np.intp], Ints]:
        quality = self._options.production_quality
        score = quality * (z @ self._world.common)
        score += np.sqrt(1 - quality**2) * rng.standard_normal(len(z))
        order: NDArray[np.intp] = np.lexsort((-score, session))
        starts: Ints = np.searchsorted(session, np.arange(session.max() + 1))
        return order, np.arange(len(z)) - starts[session] + 1


def _observed(z: Floats, price_level: Floats) -> dict[str, Any]:
    """The columns of the log that show z, each monotone in one component."""
    value = dict(zip(COMPONENTS, z.T, strict=True))
    return {
        "product_ctr": np.round(expit(-3.0 + 0.7 * value["ctr"]), 5),
        "product_cvr": np.round(expit(-3.5 + 0.7 * value["cvr"]), 5),
        "price": np.round(np.exp(3.5 + price_level + 0.8 * value["price"]), 2),
        "sales_volume": np.exp(5.0 + 1.5 * value["sales"]).astype(np.int64),
        "good_comments_ratio": np.round(expit(2.0 + 0.8 * value["comments"]), 4),
        "relevance_score": np.round(expit(0.5 + value["relevance"]), 4),
    }


def thresholds(options: SearchLogOptions) -> tuple[float, float, float]:
    """The utilities above which an examined item is clicked, put into the cart, and bought.

    Solves, for u normal with variance 1 + 2 * 0.2^2 (the linear part, activeness and taste) and
    each rate r,

        E_u[sigmoid((u - threshold) / noise)] * mean examination = r

    over a quadrature of the normal density.
    """
    u = np.linspace(-6, 6, 2001)
    density = np.exp(-0.5 * u**2)
    density /= density.sum()
    u *= np.sqrt(1 + 2 * TASTE_BONUS**2)

    def excess(threshold: float, rate: float) -> float:
        share = density @ expit((u - threshold) / options.noise)
        return share - rate / options.mean_examination

    rates = (options.click_rate, options.cart_rate, options.purchase_rate)
    clicked, carted, bought = (brentq(excess, -30, 30, (rate,), xtol=1e-15) for rate in rates)
    return clicked, carted, bought


def decide(
    rng: np.random.Generator,
    utility: Floats,
    position: Ints,
    limits: tuple[float, float, float],
    options: SearchLogOptions,
) -> tuple[Ints, Ints, Ints]:
    """Clicks, carts and purchases, 0 or 1: one draw serves all, so that a purchase has a click."""
    seen = rng.random(len(utility)) < position.astype(np.float64) ** -options.position_bias
    noisy = utility + options.noise * rng.logistic(size=len(utility))
    clicked, carted, bought = ((seen & (noisy > limit)).astype(np.int64) for limit in limits)
    return clicked, carted, bought
