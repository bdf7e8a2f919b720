"""Source `amazon`: raw Amazon review and metadata files of 2014 or 2018, as interactions.

The features are those of section IV-A-2 of the paper on adversarial mixtures of experts with
category hierarchies, with one difference: its aggregates count all reviews of an item or a
reviewer, these count the reviews before the one to be predicted. Later ones would leak the label.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from experiments.datasets.files import first_line
from experiments.datasets.interactions import (
    HistoryFeature,
    Interactions,
    SamplingOptions,
    load_features,
    path_of,
    sampling_design,
)
from tfr_moe.beam.sources import (
    Input,
    RawRow,
    ReadFiles,
    is_valid_text,
    lines,
    match,
    register,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

USER, ITEM, TIME, STARS = "reviewerID", "asin", "unixReviewTime", "overall"
LEVELS = ("top_category", "sub_category")
EVENT = frozenset({USER, ITEM, TIME, STARS})
PRODUCT = frozenset({ITEM, "title", "brand", "price", *LEVELS})
_STARS = (1, 2, 3, 4, 5)
_NAME = re.compile(r"[^\s<>][^<>]{0,49}")
_MARKUP = re.compile(r"<[a-z/!]", re.IGNORECASE)


def _counts(prefix: str, by: str) -> list[dict[str, Any]]:
    name = f"{prefix}_overall_cnt"
    return [
        {"name": name, "kind": "count", "by": by},
        *(
            {"name": f"{name}_{n}", "kind": "count", "by": by, "where": {STARS: [n]}}
            for n in _STARS
        ),
    ]


_HISTORIES = [
    {"name": "asin_hist", "kind": "history", "by": USER, "of": ITEM},
    {"name": "brand_hist", "kind": "history", "by": USER, "of": "brand"},
]
_HISTORY_FEATURES = [*_counts("asin", ITEM), *_counts("reviewer", USER), *_HISTORIES]


class AmazonOptions(SamplingOptions):
    """Options of `amazon`."""

    meta: str = Field(description="file or pattern of the metadata, such as 'meta_*.json.gz'")
    history_features: str = Field(
        "", description="YAML file with history features that replace those of the paper"
    )


def amazon_schema(pattern: str, options: AmazonOptions) -> FeatureSchema:
    """Returns the features of the paper; with level=2 the hierarchy is part of the context."""
    shared, of_item = LEVELS[: options.level], LEVELS[options.level :]
    ids = {"kind": "categorical", "min_count": 2}
    number = {"kind": "numeric", "transform": "log1p"}
    features: list[dict[str, Any]] = [
        *({"name": name, "scope": "context", "kind": "categorical"} for name in shared),
        {"name": USER, "scope": "context", **ids},
        {"name": "asin_hist", "scope": "context", "kind": "categorical_list", "min_count": 2},
        {"name": "brand_hist", "scope": "context", "kind": "categorical_list", "min_count": 2},
        *({"name": f["name"], "scope": "context", **number} for f in _counts("reviewer", USER)),
        *({"name": name, "scope": "example", "kind": "categorical"} for name in of_item),
        {"name": ITEM, "scope": "example", **ids},
        {"name": "title", "scope": "example", **ids},
        {"name": "brand", "scope": "example", **ids},
        *({"name": f["name"], "scope": "example", **number} for f in _counts("asin", ITEM)),
    ]
    tree = {"hierarchy": {"child": LEVELS[1], "parent": LEVELS[0]}} if not of_item else {}
    return FeatureSchema.model_validate(
        {"list_id": "review", "time": TIME, "labels": ["reviewed"], "features": features, **tree}
    )


@register("amazon", AmazonOptions, amazon_schema)
def amazon(pattern: str, schema: FeatureSchema, options: AmazonOptions) -> Input:
    """Amazon review data of 2014 or 2018: the input holds reviews, `meta` the metadata.

    A list is one review (its item is the positive, whatever the stars) and sampled negatives of its
    top category, with level=2 of its leaf category as well. Metadata lines are JSON or, in 2014,
    Python literals. Category names are cleaned (HTML entities, blanks); a path ends before the
    first part that is no name (markup, a sentence); of several paths (2014) the first one counts.
    The first name is the top category, the last one the sub-category. Duplicate metadata are merged
    and counted.

    Raises:
        UserError: if a file is missing or its first line is neither a review nor metadata.
    """
    reviews, meta = match(pattern), match(options.meta, "meta")
    for path in reviews:
        _check(path, (USER, ITEM, TIME, STARS), "input", "reviews")
    for path in meta:
        _check(path, (ITEM,), "meta", "metadata")
        if USER in _mapping(first_line(path)):
            raise UserError(f"meta: {path} holds reviews, expected metadata")
    history = (
        load_features(options.history_features)
        if options.history_features
        else [HistoryFeature.model_validate(feature) for feature in _HISTORY_FEATURES]
    )
    columns = (USER, ITEM, TIME)
    design = sampling_design(
        schema, options, set(EVENT), set(PRODUCT), columns, LEVELS, tuple(history)
    )
    return Input(
        Interactions(
            ReadFiles(reviews, _read_reviews), ReadFiles(meta, _read_meta, len(reviews)), design
        ),
        [*reviews, *meta],
        sum(reviews.values()) + sum(meta.values()),
        design.notes(),
    )


def _check(path: str, columns: tuple[str, ...], argument: str, what: str) -> None:
    first = _mapping(first_line(path))
    missing = [column for column in columns if column not in first]
    if missing:
        raise UserError(f"{argument}: {path}, line 1: no {missing[0]!r}; Amazon {what} have one")


def _mapping(text: str) -> Mapping[str, Any]:
    """Returns the object of a line, JSON or a Python literal; empty where it is neither."""
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            value = None
    return value if isinstance(value, dict) else {}


def _read(path: str, index: int) -> Iterator[RawRow]:
    for number, text in lines(path):
        values = _mapping(text) if is_valid_text(text) else {}
        if values:
            yield RawRow(index, number, values)
        else:
            reason = "neither a JSON object nor a Python literal of one"
            yield RawRow(
                index, number, repr(text), reason if is_valid_text(text) else "not valid UTF-8"
            )


def _read_reviews(path: str, index: int) -> Iterator[RawRow]:
    for row in _read(path, index):
        if isinstance(row.values, Mapping):
            # Review texts are most of the bytes, and unused.
            row = row._replace(values={key: row.values.get(key) for key in EVENT})
        yield row


def _read_meta(path: str, index: int) -> Iterator[RawRow]:
    for row in _read(path, index):
        if isinstance(row.values, Mapping):
            get = row.values.get
            values = {key: _plain(get(key)) for key in PRODUCT - {*LEVELS}}
            names = category_path(get("category") or get("categories"))
            levels = {LEVELS[0]: names[0], LEVELS[1]: names[-1]} if names else {}
            row = row._replace(values={**values, **levels})
        yield row


def _plain(value: Any) -> Any:
    """Returns the value; None for fragments of HTML."""
    return None if isinstance(value, str) and _MARKUP.search(value) else value


def category_path(value: Any) -> list[str]:
    """Returns the category names of a product, top first, not yet cleaned.

    Example:
        >>> category_path(["Toys &amp; Games", "Puzzles", "</span>", "Made of wood."])
        ['Toys &amp; Games', 'Puzzles']
        >>> category_path([["Books", "History"], ["Gifts"]])
        ['Books', 'History']
    """
    if isinstance(value, list) and value and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list):
        return []
    names: list[str] = []
    for part in map(str, value):
        cleaned = path_of([part], "")
        if _MARKUP.search(part) or (cleaned and _is_sentence(cleaned[0])):
            break
        names += [part] if cleaned else []
    return names


def _is_sentence(name: str) -> bool:
    return name.endswith(".") or not _NAME.fullmatch(name)
