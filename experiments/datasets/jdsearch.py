"""Source `jdsearch`: searches of a marketplace with impressions and the history of the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import apache_beam as beam
from pydantic import Field

from experiments.datasets.files import first_line
from experiments.datasets.interactions import HistoryFeature, add_history, load_features
from tfr_moe.beam.sources import (
    Input,
    JoinColumns,
    RawRow,
    ReadFiles,
    ReadTable,
    SourceOptions,
    SourceRows,
    is_valid_text,
    lines,
    list_hash,
    match,
    register,
    schema_columns,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

HEADER = (
    "query",
    "candidate_wid_list",
    "candidate_label_list",
    "history_qry_list",
    "history_wid_list",
    "history_type_list",
    "history_time_list",
)
LEVELS = tuple(f"cate_id_{level}" for level in (1, 2, 3, 4))
_CATEGORIES = [f"cate_{kind}_{level}" for level in (1, 2, 3, 4) for kind in ("id", "name")]
PRODUCT = ("wid", "name", "brand_id", "brand_name", *_CATEGORIES, "shop_id")
QUERY_LEVELS = tuple(f"query_{level}" for level in LEVELS)
TYPES = ("CLICK", "CART", "ORD", "FLW")
_TERM = "\x18"
_TIME = "seconds"
_ROW = ("search", "user", "wid", "label", "query", "query_words", "name_words", "words_in_name")
_HISTORY_FEATURES = [
    {"name": "user_events", "kind": "count", "by": "user"},
    {"name": "user_orders", "kind": "count", "by": "user", "where": {"type": ["ORD"]}},
    {"name": "days_since_event", "kind": "days_since", "by": "user"},
    {"name": "history", "kind": "history", "by": "user", "of": "wid"},
    {"name": "brand_history", "kind": "history", "by": "user", "of": "brand_id", "distinct": True},
    {"name": "user_wid", "kind": "count", "by": ["user", "wid"]},
    {"name": "user_brand", "kind": "count", "by": ["user", "brand_id"]},
    {"name": "user_shop", "kind": "count", "by": ["user", "shop_id"]},
    {"name": "user_cate_1", "kind": "count", "by": ["user", "cate_id_1"]},
    {"name": "user_cate_3", "kind": "count", "by": ["user", "cate_id_3"]},
]


class JdsearchOptions(SourceOptions):
    """Options of `jdsearch`."""

    products: str = Field(
        "", description="product_meta_data file; by default the one beside the input"
    )
    history_features: str = Field(
        "", description="YAML file with history features that replace the default ones"
    )
    seed: int = Field(
        0, ge=0, description="seed of the order of the candidates; by default that of the build"
    )


def jdsearch_schema(pattern: str, options: JdsearchOptions) -> FeatureSchema:
    """Returns grades 0 to 3, hierarchy of the query (levels 3 and 1), history of the user."""
    words = {"kind": "categorical_list", "max_length": 20, "min_count": 2}
    features: list[dict[str, Any]] = [
        {"name": name, "scope": "context", "kind": "categorical"}
        for name in (QUERY_LEVELS[0], QUERY_LEVELS[2])
    ]
    features += [
        {"name": "query_words", "scope": "context", **words},
        {"name": "history", "scope": "context", "kind": "categorical_list", "min_count": 2},
        {"name": "brand_history", "scope": "context", "kind": "categorical_list"},
    ]
    features += [
        {"name": name, "scope": "context", "kind": "numeric", "transform": "log1p", **default}
        for name, default in (
            ("user_events", {}),
            ("user_orders", {}),
            ("days_since_event", {"default": 1000.0}),
        )
    ]
    features += [
        {"name": name, "scope": "example", "kind": "categorical"}
        for name in ("wid", "brand_id", "shop_id", LEVELS[0], LEVELS[2])
    ]
    features.append({"name": "name_words", "scope": "example", **words})
    features.append({"name": "words_in_name", "scope": "example", "kind": "numeric"})
    features += [
        {"name": f"user_{name}", "scope": "example", "kind": "numeric", "transform": "log1p"}
        for name in ("wid", "brand", "shop", "cate_1", "cate_3")
    ]
    return FeatureSchema.model_validate(
        {
            "list_id": "search",
            "labels": ["label"],
            "hierarchy": {"child": QUERY_LEVELS[2], "parent": QUERY_LEVELS[0]},
            "features": features,
        }
    )


@register("jdsearch", JdsearchOptions, jdsearch_schema)
def jdsearch(pattern: str, schema: FeatureSchema, options: JdsearchOptions) -> Input:
    """JDsearch: the input is the user_behavior_data file; a list is one search and its impressions.

    `label` is 0 for nothing, 1 for a click, 2 for a cart, 3 for a purchase. Queries have no
    category in the files: `query_cate_id_1` ... are the most frequent categories of the
    impressions, level by level from the top, which uses no label. Candidates are shuffled, since
    the files list the chosen ones first. History features cover the history of the same user, which
    lies before the search; times of different users are not comparable.

    Raises:
        UserError: if a file is missing or has other columns, or the schema names an unknown column.
    """
    searches = match(pattern)
    beside = ",".join(path.replace("user_behavior_data", "product_meta_data") for path in searches)
    products = match(options.products or beside, "products")
    for path, expected in [*((p, HEADER) for p in searches), *((p, PRODUCT) for p in products)]:
        fields = first_line(path).split("\t")
        if len(fields) != len(expected):
            raise UserError(
                f"{path}, line 1: expected {len(expected)} fields ({', '.join(expected)}), "
                f"got {len(fields)}"
            )
    history = (
        load_features(options.history_features)
        if options.history_features
        else [HistoryFeature.model_validate(feature) for feature in _HISTORY_FEATURES]
    )
    for feature in history:
        if feature.by[0] != "user":
            raise UserError(
                f"history_features {options.history_features}: feature {feature.name!r}: "
                "by must begin with user"
            )
    available = {*_ROW, *PRODUCT, *QUERY_LEVELS, *(feature.name for feature in history)}
    for column in schema_columns(schema):
        if column not in available:
            listed = ", ".join(sorted(available))
            raise UserError(f"schema: unknown column {column!r}; available: {listed}")
    sizes = {**searches, **products}
    return Input(
        _Searches(searches, products, history, options.seed), list(sizes), sum(sizes.values())
    )


class _Searches(beam.PTransform):
    """Pipeline -> `SourceRows` of candidates with their product and history features."""

    def __init__(
        self,
        searches: dict[str, int],
        products: dict[str, int],
        history: list[HistoryFeature],
        seed: int,
    ):
        super().__init__()
        self._searches, self._products, self._history = searches, products, history
        self._seed = seed

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Reads and joins."""
        columns = PRODUCT[1:]
        products = ReadFiles(self._products, _read_products, first=len(self._searches))
        table = (
            pipeline
            | "ReadProducts" >> products
            | "Products" >> ReadTable(("wid",), columns, "products")
        )
        read = ReadFiles(self._searches, partial(_read_searches, seed=self._seed), in_batches=True)
        searches = pipeline | "Searches" >> read
        joined = (searches, table.entries) | "JoinProducts" >> JoinColumns(("wid",), columns)
        candidates = joined | "Candidates" >> beam.Map(_candidates).with_output_types(list[RawRow])
        events = joined | "Events" >> beam.Map(_events).with_output_types(list[RawRow])
        rows, history_counts = add_history(
            candidates | "SomeCandidates" >> beam.Filter(len),
            events | "SomeEvents" >> beam.Filter(len),
            self._history,
            _TIME,
        )
        return SourceRows(
            rows, table.rejects, [table.counts, *history_counts] | "Counts" >> beam.Flatten()
        )


def _read_products(path: str, index: int) -> Iterator[RawRow]:
    for number, text in lines(path):
        fields = text.split("\t")
        if fields == list(PRODUCT):
            continue
        if not is_valid_text(text) or len(fields) != len(PRODUCT):
            reason = f"expected {len(PRODUCT)} fields, got {len(fields)}"
            yield RawRow(
                index, number, repr(text), reason if is_valid_text(text) else "not valid UTF-8"
            )
        else:
            yield RawRow(index, number, dict(zip(PRODUCT, fields, strict=True)))


def _read_searches(path: str, index: int, seed: int) -> Iterator[list[RawRow]]:
    """Yields a batch per line: first the impressions, then the history of the user."""
    name = path.rpartition("/")[2]
    for number, text in lines(path):
        fields = text.split("\t")
        if fields == list(HEADER):
            continue
        try:
            yield list(_rows(index, number, f"{name}-{number}", fields, seed))
        except ValueError as error:
            yield [RawRow(index, number, repr(text), str(error))]


def _rows(index: int, number: int, search: str, fields: list[str], seed: int) -> Iterator[RawRow]:
    if len(fields) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} fields, got {len(fields)}")
    if not all(map(is_valid_text, fields)):
        raise ValueError("not valid UTF-8")
    query, *texts = fields
    wids, labels, queries, items, types, pauses = (
        text.split("_") if text else [] for text in texts
    )
    if len(wids) != len(labels):
        raise ValueError(f"has {len(wids)} products and {len(labels)} labels")
    if not len(queries) == len(items) == len(types) == len(pauses) - 1:
        raise ValueError(
            f"has a history of {len(queries)} queries, {len(items)} products, {len(types)} types "
            f"and {len(pauses)} times, which must be one more"
        )
    unknown = sorted(set(types) - set(TYPES))
    if unknown:
        raise ValueError(f"history type must be one of {', '.join(TYPES)}, got {unknown[0]!r}")
    times = _times(pauses)
    shared = {"search": search, "user": search, "query": query, _TIME: times[-1]}
    results = sorted(
        zip(wids, labels, strict=True),
        key=lambda pair: list_hash(f"{search} {pair[0]}", seed, "order"),
    )
    for order, (wid, label) in enumerate(results):
        yield RawRow(index, number, {**shared, "wid": wid, "label": label}, order=order)
    for order, (query_before, wid, kind, time) in enumerate(
        zip(queries, items, types, times[:-1], strict=True), start=len(results)
    ):
        event = {"user": search, "wid": wid, "type": kind, "asked": query_before, _TIME: time}
        yield RawRow(index, number, event, order=order)


def _times(pauses: list[str]) -> list[float]:
    """Returns seconds since the first event, from the pauses between events."""
    if not all(pause.isascii() and pause.isdigit() for pause in pauses):
        wrong = next(pause for pause in pauses if not (pause.isascii() and pause.isdigit()))
        raise ValueError(f"history time must be whole seconds >= 0, got {wrong!r}")
    return [float(time) for time in accumulate(map(int, pauses))]


def _events(batch: list[RawRow]) -> list[RawRow]:
    return [row for row in batch if isinstance(row.values, Mapping) and "type" in row.values]


def _candidates(batch: list[RawRow]) -> list[RawRow]:
    """Returns the impressions with features of their names and the category of the query."""
    impressions: list[RawRow] = []
    for row in batch:
        if not isinstance(row.values, Mapping) or "search" in row.values:
            impressions.append(row)
    paths = [
        tuple(row.values.get(level) or "" for level in LEVELS)
        for row in impressions
        if isinstance(row.values, Mapping)
    ]
    category = dict(zip(QUERY_LEVELS, _most_frequent_path(paths), strict=True))
    return [_described(row, category) for row in impressions]


def _most_frequent_path(paths: Iterable[tuple[str, ...]]) -> list[str]:
    """Returns, level by level, the most frequent name of the paths that agree so far."""
    paths = [path for path in paths if path[0]]
    common: list[str] = []
    for level in range(len(LEVELS)):
        names = Counter(path[level] for path in paths)
        best = min(names, key=lambda name: (-names[name], name), default="")
        paths = [path for path in paths if path[level] == best]
        common.append(best)
    return common


def _described(row: RawRow, category: dict[str, str]) -> RawRow:
    if not isinstance(row.values, Mapping):
        return row
    query = [term for term in row.values["query"].split(_TERM) if term]
    name = [term for term in (row.values.get("name") or "").split(_TERM) if term]
    known = set(name)
    made = {
        "query_words": query,
        "name_words": name,
        "words_in_name": sum(term in known for term in query) / max(1, len(query)),
    }
    return row._replace(values={**row.values, **category, **made})
