"""Options of the search-log generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.utils.settings import split_pair

MAX_LIST_LENGTH = 40


def _between(low: float, high: float, default: Any) -> Any:
    return field(default=default, metadata={"between": (low, high)})


@dataclass(frozen=True)
class SearchLogOptions:
    """Sizes and strengths of a synthetic search log. The equations are in `docs/data.md`.

    Attributes:
        sessions: number of lists. Rows are about `sessions * mean_list_length`.
        seed: random seed; the same options and seed give the same bytes.
        num_files: log files; the sessions are cut into as many consecutive parts.
        top_categories: number of top categories (38 in Table II of the paper).
        sub_categories: number of sub-categories over all top categories (3,479 in Table II).
        shared_names: number of pairs of sub-categories of different parents with the same name.
        traffic_exponent: the r-th top category and the r-th sub-category inside one get traffic
            proportional to 1 / r^exponent; 0 is uniform.
        queries_per_category: distinct queries of one sub-category.
        items_per_category: distinct items of one sub-category.
        users: distinct users.
        mean_list_length: mean number of items shown in a session, of which there are at most 40.
        off_category: share of shown items that come from another sub-category.
        days: number of days over which the sessions are spread evenly.
        category_strength: 0: one common utility for all categories; 1: each top category has its
            own weights. The variance of the utility is the same for any value.
        sub_category_deviation: length of a sub-category's own direction beside its top category's.
        combinations: share of the category's part of the utility that lies in products of two
            components, weighted by category as the components themselves are.
        interactions: share of the utility's variance that is not linear in the features, the same
            in all categories.
        noise: scale of the logistic noise between utility (unit variance) and decision.
        production_quality: correlation between the common utility and the score that put the items
            in the order in which they were shown.
        position_bias: an item at position p is seen with probability p^-position_bias.
        purchase_rate: expected share of shown items that are bought.
        cart_rate: expected share of shown items that are put into the cart.
        click_rate: expected share of shown items that are clicked.
    """

    sessions: int = _between(1, 10**12, 4000)
    seed: int = _between(0, 2**63 - 1, 0)
    num_files: int = 4
    top_categories: int = _between(1, 10**12, 8)
    sub_categories: int = 60
    shared_names: int = 2
    traffic_exponent: float = _between(0, 5, 1.0)
    queries_per_category: int = _between(1, 10**12, 50)
    items_per_category: int = _between(1, 10**12, 200)
    users: int = _between(1, 10**12, 2000)
    mean_list_length: float = _between(2, MAX_LIST_LENGTH, 12.0)
    off_category: float = _between(0, 1, 0.1)
    days: int = _between(1, 10**4, 14)
    category_strength: float = _between(0, 1, 1.0)
    sub_category_deviation: float = _between(0, 10, 0.2)
    combinations: float = _between(0, 1, 0.0)
    interactions: float = _between(0, 1, 0.1)
    noise: float = _between(0.01, 10, 0.6)
    production_quality: float = _between(0, 1, 0.3)
    position_bias: float = _between(0, 5, 0.3)
    purchase_rate: float = 0.09
    cart_rate: float = 0.15
    click_rate: float = 0.25

    def __post_init__(self) -> None:
        """Checks the ranges of all values."""
        for option in fields(self):
            if option.metadata:
                _check(self, option.name, *option.metadata["between"])
        _check(self, "sub_categories", self.top_categories, 10**7)
        _check(self, "shared_names", 0, self.sub_categories // 2 if self.top_categories > 1 else 0)
        _check(self, "num_files", 1, min(self.sessions, 99999))
        _check(self, "cart_rate", 0.001, self.click_rate)
        _check(self, "purchase_rate", 0.001, self.cart_rate)
        _check(self, "click_rate", 0.001, 0.9 * self.mean_examination)

    @property
    def mean_examination(self) -> float:
        """The mean probability that an item of a list of mean length is seen."""
        length = int(self.mean_list_length)
        return sum(p**-self.position_bias for p in range(1, length + 1)) / length


def _check(options: SearchLogOptions, name: str, low: float, high: float) -> None:
    value = getattr(options, name)
    if not low <= value <= high:
        raise UserError(f"{name} must be between {low:g} and {high:g}. Received: {value}")


def parse_options(pairs: Sequence[str], **options: Any) -> SearchLogOptions:
    """Makes options from keyword arguments and `key=value` strings."""
    types: dict[str, Any] = {o.name: type(o.default) for o in fields(SearchLogOptions)}
    for pair in pairs:
        key, text = split_pair(pair)
        if key not in types:
            raise UserError(f"option {pair!r}: unknown key; allowed: {', '.join(types)}")
        try:
            options[key] = types[key](text)
        except ValueError:
            raise UserError(f"option {pair!r}: must be of type {types[key].__name__}") from None
    return SearchLogOptions(**options)
