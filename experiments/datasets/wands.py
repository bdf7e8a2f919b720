"""Source `wands`: the Wayfair annotation data set, human judgements of queries and products."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import apache_beam as beam

from experiments.datasets.interactions import path_of
from tfr_moe.beam.sources import (
    Input,
    JoinColumns,
    RawRow,
    ReadFiles,
    ReadTable,
    SourceOptions,
    SourceRows,
    check_columns,
    columns,
    match,
    read,
    register,
    schema_columns,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

GRADES = {"Exact": 2.0, "Partial": 1.0, "Irrelevant": 0.0}
_FILES = {
    "label": ("id", "query_id", "product_id", "label"),
    "product": (
        "product_id",
        "product_name",
        "product_class",
        "category_hierarchy",
        "product_description",
        "product_features",
        "rating_count",
        "average_rating",
        "review_count",
    ),
    "query": ("query_id", "query", "query_class"),
}
_PRODUCT = (*_FILES["product"][1:], "top_category", "sub_category")
_QUERY = ("query", "query_class")
_MADE = (
    "query_top_category",
    "relevance",
    "query_words",
    "name_words",
    "words_in_name",
    "same_class",
)
_WORD = re.compile(r"[^\W_]+")


def wands_schema(pattern: str, options: SourceOptions) -> FeatureSchema:
    """Returns label `relevance` (0, 1, 2), class of the query and its top category, features."""
    context = {"scope": "context", "kind": "categorical"}
    number = {"scope": "example", "kind": "numeric", "default": 0.0}
    words = {"kind": "categorical_list", "max_length": 12, "min_count": 2}
    features: list[dict[str, Any]] = [
        {"name": "query_top_category", **context},
        {"name": "query_class", **context},
        {"name": "query_words", "scope": "context", **words},
        {"name": "name_words", "scope": "example", **words},
        {"name": "product_class", "scope": "example", "kind": "categorical_list", "max_length": 4},
        {"name": "top_category", "scope": "example", "kind": "categorical"},
        {"name": "sub_category", "scope": "example", "kind": "categorical"},
        {"name": "words_in_name", **number},
        {"name": "same_class", **number},
        {"name": "average_rating", **number},
        {"name": "rating_count", "transform": "log1p", **number},
        {"name": "review_count", "transform": "log1p", **number},
    ]
    return FeatureSchema.model_validate(
        {
            "list_id": "query_id",
            "labels": ["relevance"],
            "hierarchy": {"child": "query_class", "parent": "query_top_category"},
            "features": features,
        }
    )


@register("wands", schema=wands_schema)
def wands(pattern: str, schema: FeatureSchema, options: SourceOptions) -> Input:
    """WANDS (Wayfair): the input is the folder with query.csv, product.csv and label.csv.

    A list is a query with its annotated products; `relevance` is 2 for Exact, 1 for Partial, 0 for
    Irrelevant. `top_category` and `sub_category` are the first and last name of category_hierarchy;
    `query_top_category` is the most frequent top category of the products of the query's class.
    `words_in_name` is the fraction of the words of the query in the product name, `same_class`
    whether query and product have the same class.

    Raises:
        UserError: if a file or a column is missing.
    """
    sizes: dict[str, int] = {}
    for name, needed in _FILES.items():
        matched = match(f"{pattern.rstrip('/')}/{name}.csv*")
        for path in matched:
            check_columns(path, columns(path, "tsv"), list(needed))
        sizes.update(matched)
    available = sorted({*_FILES["label"], *_PRODUCT, *_QUERY, *_MADE} - {"label"})
    for column in schema_columns(schema):
        if column not in available:
            raise UserError(f"schema: unknown column {column!r}; available: {', '.join(available)}")
    return Input(_Wands(sizes), list(sizes), sum(sizes.values()))


class _Wands(beam.PTransform):
    """Pipeline -> `SourceRows` of annotated pairs with their query and product."""

    def __init__(self, sizes: dict[str, int]):
        super().__init__()
        self._sizes = sizes

    def _rows(self, name: str, reader: Any) -> ReadFiles:
        """Returns the reader of one of the files."""
        paths = list(self._sizes)
        (path,) = (path for path in paths if path.rpartition("/")[2].startswith(f"{name}.csv"))
        return ReadFiles([path], reader, first=paths.index(path))

    def expand(self, pipeline: beam.Pipeline) -> SourceRows:
        """Joins the three files."""
        read_tsv = partial(read, kind="tsv")
        labels = pipeline | "Labels" >> self._rows("label", read_tsv)
        products = (
            pipeline
            | "ReadProducts" >> self._rows("product", _read_products)
            | "Products" >> ReadTable(("product_id",), _PRODUCT, "products")
        )
        queries = (
            pipeline
            | "ReadQueries" >> self._rows("query", read_tsv)
            | "Queries" >> ReadTable(("query_id",), _QUERY, "queries")
        )
        tops = (
            products.entries
            | "ClassTops" >> beam.FlatMap(_class_tops)
            | "TopsByClass" >> beam.GroupByKey()
            | "MostlyTop" >> beam.MapTuple(lambda name, tops: (name, (_most_frequent(tops),)))
        )
        rows = (labels, queries.entries) | "JoinQuery" >> JoinColumns(("query_id",), _QUERY)
        rows = (rows, products.entries) | "JoinProduct" >> JoinColumns(("product_id",), _PRODUCT)
        rows = (rows, tops) | "JoinTop" >> JoinColumns(("query_class",), ["query_top_category"])
        return SourceRows(
            rows | "Finish" >> beam.Map(_finished).with_output_types(list[RawRow]),
            (products.rejects, queries.rejects) | "Rejects" >> beam.Flatten(),
            (products.counts, queries.counts) | "Counts" >> beam.Flatten(),
        )


def _read_products(path: str, index: int) -> Iterator[RawRow]:
    for row in read(path, index, "tsv"):
        if isinstance(row.values, Mapping):
            names = path_of(row.values["category_hierarchy"], "/")
            levels = {"top_category": names[0], "sub_category": names[-1]} if names else {}
            row = row._replace(values={**row.values, **levels})
        yield row


def _class_tops(entry: tuple[str, tuple[Any, ...]]) -> Iterator[tuple[str, str]]:
    values = dict(zip(_PRODUCT, entry[1], strict=True))
    if values["top_category"]:
        for name in _classes(values["product_class"]):
            yield name, values["top_category"]


def _classes(value: Any) -> list[str]:
    return [name.strip() for name in (value or "").split("|") if name.strip()]


def _most_frequent(names: Iterable[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))


def _finished(batch: list[RawRow]) -> list[RawRow]:
    return [_finish(row) if row.error is None else row for row in batch]


def _finish(row: RawRow) -> RawRow:
    values: Mapping[str, Any] = row.values
    grade = GRADES.get(str(values["label"]).strip())
    if grade is None:
        allowed = ", ".join(GRADES)
        return row._replace(error=f"column 'label': expected {allowed}, got {values['label']!r}")
    for column, file in (("query", "query.csv"), ("product_name", "product.csv")):
        if values[column] is None:
            key = f"{file.removesuffix('.csv')}_id"
            return row._replace(error=f"column {key!r}: not in {file}, got {values[key]!r}")
    query = [word.lower() for word in _WORD.findall(values["query"])]
    name = [word.lower() for word in _WORD.findall(values["product_name"])]
    made = {
        "relevance": grade,
        "query_words": query,
        "name_words": name,
        "words_in_name": sum(word in name for word in query) / max(1, len(query)),
        "same_class": float(values["query_class"] in _classes(values["product_class"])),
    }
    return row._replace(values={**values, **made})
