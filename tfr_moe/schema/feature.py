"""Features and the category tree of a schema."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Scope = Literal["context", "example"]
"""Whether a feature has one value per list, `context`, or one per item, `example`."""
Kind = Literal["numeric", "categorical", "categorical_list"]
Transform = Literal["none", "log1p", "quantile"]

MASK = "example_list_mask"
"""Name of the mask of valid items, bool [B, L]."""
PADDING_LABEL = -1.0
PACKED = {"context": "context_numeric", "example": "example_numeric"}
"""Names of the packed numeric features by scope."""
PAIR_SEPARATOR = " > "
"""Between parent and child in the key of a category."""
ITEM = "item."
OF_ITEMS = "list_"
_MISSING = ("mean", "median")


class Feature(BaseModel):
    """One feature.

    Attributes:
        name: the column's name in the rows and, unless packed, in the records.
        scope: `context` for one value per list, `example` for one value per item.
        kind: `numeric` (float32, `width` values), `categorical` (one ID) or `categorical_list`
            (up to `max_length` IDs, such as a click history). IDs are strings; integers in the rows
            are written as decimal strings.
        width: number of values of a numeric feature.
        default: replaces a missing ID; without it a missing ID is the empty string, which is out
            of vocabulary.
        missing: what the model reads for a missing number: `mean` or `median` of the training
            items (lists, for a context feature), or a number.
        missing_indicator: adds an input that is 1 where a number is missing, else 0.
        required: rejects rows without a value.
        ratio: another numeric of the same scope by which this one is divided, before all else. The
            ratio is missing where the other number is 0 or missing.
        clip: `[low, high]`, applied before the transform; null for no limit.
        transform: `log1p` takes sign(x) log(1 + |x|) before normalisation, for prices and counts;
            `quantile` the position in the distribution of the training split, between 0 and 1.
        bucketize: ascending bounds `[b1, b2, ...]`; the model reads which of the buckets x < b1,
            b1 <= x < b2, ... a number is in, one input each. A missing one is in none of them.
        hash_buckets: number of buckets into which IDs are hashed; without it a vocabulary is built.
        max_vocabulary: maximum number of IDs in the vocabulary, the most frequent ones.
        min_count: IDs with fewer occurrences in the training split are out of vocabulary.
        embedding_dim: width of the embedding; by default the `embedding_dim` of the run.
        max_length: maximum number of IDs of a `categorical_list`, the last ones.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    scope: Scope
    kind: Kind
    width: int = Field(1, ge=1, le=65_536)
    default: str | None = None
    missing: float | str = "mean"
    missing_indicator: bool = False
    required: bool = False
    ratio: str | None = None
    clip: tuple[float | None, float | None] = (None, None)
    transform: Transform = "none"
    bucketize: tuple[FiniteFloat, ...] = ()
    hash_buckets: int | None = Field(None, ge=1)
    max_vocabulary: int | None = Field(None, ge=1)
    min_count: int = Field(1, ge=1)
    embedding_dim: int | None = Field(None, ge=1, le=65_536)
    max_length: int = Field(20, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _numeric_default(cls, data: Any) -> Any:
        """Reads the `default` of a number as its `missing`."""
        if isinstance(data, dict) and data.get("kind") == "numeric" and "missing" not in data:
            default = data.get("default")
            data = {key: value for key, value in data.items() if key != "default"}
            return data if default is None else {**data, "missing": default}
        return data

    @model_validator(mode="after")
    def _check_kind(self) -> Feature:
        given = self.model_fields_set
        numeric = self.kind == "numeric"
        ids_only = {"default", "hash_buckets", "max_vocabulary", "min_count", "embedding_dim"}
        numbers_only = {"width", "clip", "transform", "missing", "missing_indicator"}
        numbers_only |= {"ratio", "bucketize"}
        misplaced = given & (ids_only if numeric else numbers_only)
        if self.kind != "categorical_list":
            misplaced |= given & {"max_length"}
        if misplaced:
            raise ValueError(f"{', '.join(sorted(misplaced))} does not apply to kind {self.kind!r}")
        missing = self.missing
        if not (math.isfinite(missing) if isinstance(missing, float) else missing in _MISSING):
            raise ValueError(f"missing must be mean, median or a number, got {self.missing!r}")
        low, high = self.limits
        if not low < high:
            raise ValueError(f"clip must be [low, high] with low < high, got {list(self.clip)}")
        if any(low >= high for low, high in pairwise(self.bucketize)):
            raise ValueError(f"bucketize must be ascending, got {list(self.bucketize)}")
        if self.bucketize and self.transform != "none":
            raise ValueError("bucketize cannot be combined with transform")
        if self.hash_buckets and given & {"max_vocabulary", "min_count"}:
            raise ValueError("hash_buckets cannot be combined with max_vocabulary and min_count")
        if self.required and given & {"default", "missing", "missing_indicator", "ratio"}:
            raise ValueError(
                "required cannot be combined with default, missing, missing_indicator and ratio"
            )
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of `clip`, infinite where there is none."""
        low, high = self.clip
        return -math.inf if low is None else low, math.inf if high is None else high

    @property
    def missing_number(self) -> float:
        """What records and requests have for a missing number: NaN where the model replaces it.

        Padding has the same; 0 for a required feature.
        """
        if self.required:
            return 0.0
        if isinstance(self.missing, str) or self.missing_indicator or self.ratio:
            return math.nan
        return self.missing

    @property
    def has_vocabulary(self) -> bool:
        """Whether IDs are looked up in a vocabulary file (else numeric or hashed)."""
        return self.kind != "numeric" and self.hash_buckets is None

    @property
    def columns(self) -> list[str]:
        """Names of a numeric feature's values: its name, or `a[0]`, `a[1]`, ... if it is wide."""
        if self.width == 1:
            return [self.name]
        return [f"{self.name}[{i}]" for i in range(self.width)]

    @property
    def inputs(self) -> list[str]:
        """Names of the numbers that a model reads of a numeric feature.

        Example:
            >>> age = {"name": "age", "scope": "context", "kind": "numeric"}
            >>> Feature(**age, bucketize=[18, 65], missing_indicator=True).inputs
            ['age (below 18)', 'age (18 to 65)', 'age (from 65)', 'age (missing)']
        """
        names = self.columns
        if self.bucketize:
            bounds = [f"{bound:.12g}" for bound in self.bucketize]
            between = [f"{low} to {high}" for low, high in pairwise(bounds)]
            buckets = [f"below {bounds[0]}", *between, f"from {bounds[-1]}"]
            names = [f"{name} ({bucket})" for name in names for bucket in buckets]
        return names + [f"{self.name} (missing)"] * self.missing_indicator


class Hierarchy(BaseModel):
    """The category tree: `child` is the sub-category (SC), `parent` the top category (TC).

    Both are categorical context features. A child name may occur under several parents, so the pair
    `parent > child` is the key by which a child is looked up or hashed.

    Attributes:
        child: feature with the sub-category; `item.NAME`, with `from`, for a category of the
            items: a list has one of the pairs in context features `list_NAME`, which the schema
            adds.
        parent: the same for the top category.
        source: `from`: `majority` for the most frequent pair of the items of the list;
            `clicked_in_training` for the pair that was clicked most in other training lists of the
            query, and the majority for queries without clicks; or nothing.
        query: categorical context feature with the query, for `clicked_in_training`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    child: str
    parent: str
    source: Literal["majority", "clicked_in_training"] | None = Field(None, alias="from")
    query: str | None = None

    @model_validator(mode="after")
    def _check_query(self) -> Hierarchy:
        by_clicks = self.source == "clicked_in_training"
        if by_clicks != (self.query is not None):
            raise ValueError(
                "query: the feature of the query, for `from: clicked_in_training` and only for it; "
                f"got {self.query!r}"
            )
        if by_clicks and self.query in (self.child, self.parent):
            raise ValueError(f"query: must not be a category, got {self.query!r}")
        return self


def list_category(features: list[dict[str, Any]], role: str, column: str) -> dict[str, Any]:
    """Returns the context feature for a category of the items."""
    name = column.removeprefix(ITEM)
    for feature in features:
        kinds = feature.get("scope"), feature.get("kind")
        if feature.get("name") == name and kinds == ("example", "categorical"):
            of_item = {k: v for k, v in feature.items() if k not in ("required", "default")}
            return {**of_item, "name": f"{OF_ITEMS}{name}", "scope": "context"}
    raise ValueError(f"hierarchy.{role} must be a categorical item feature, got {column!r}")
