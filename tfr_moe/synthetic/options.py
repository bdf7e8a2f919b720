"""Options of the search-log generator."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_LIST_LENGTH = 40


class SearchLogOptions(BaseModel):
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

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: int = Field(4000, ge=1, le=10**12)
    seed: int = Field(0, ge=0, le=2**63 - 1)
    num_files: int = 4
    top_categories: int = Field(8, ge=1, le=10**12)
    sub_categories: int = 60
    shared_names: int = 2
    traffic_exponent: float = Field(1.0, ge=0, le=5)
    queries_per_category: int = Field(50, ge=1, le=10**12)
    items_per_category: int = Field(200, ge=1, le=10**12)
    users: int = Field(2000, ge=1, le=10**12)
    mean_list_length: float = Field(12.0, ge=2, le=MAX_LIST_LENGTH)
    off_category: float = Field(0.1, ge=0, le=1)
    days: int = Field(14, ge=1, le=10**4)
    category_strength: float = Field(1.0, ge=0, le=1)
    sub_category_deviation: float = Field(0.2, ge=0, le=10)
    combinations: float = Field(0.0, ge=0, le=1)
    interactions: float = Field(0.1, ge=0, le=1)
    noise: float = Field(0.6, ge=0.01, le=10)
    production_quality: float = Field(0.3, ge=0, le=1)
    position_bias: float = Field(0.3, ge=0, le=5)
    purchase_rate: float = 0.09
    cart_rate: float = 0.15
    click_rate: float = 0.25

    @model_validator(mode="after")
    def _check(self) -> SearchLogOptions:
        most_shared = self.sub_categories // 2 if self.top_categories > 1 else 0
        limits = {
            "sub_categories": (self.top_categories, 10**7),
            "shared_names": (0, most_shared),
            "num_files": (1, min(self.sessions, 99999)),
            "cart_rate": (0.001, self.click_rate),
            "purchase_rate": (0.001, self.cart_rate),
            "click_rate": (0.001, 0.9 * self.mean_examination),
        }
        for name, (low, high) in limits.items():
            if not low <= (value := getattr(self, name)) <= high:
                raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value}")
        return self

    @property
    def mean_examination(self) -> float:
        """The mean probability that an item of a list of mean length is seen."""
        length = int(self.mean_list_length)
        return sum(p**-self.position_bias for p in range(1, length + 1)) / length
