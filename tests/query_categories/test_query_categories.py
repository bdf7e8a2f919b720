"""The query classifier, and the categories that a build gives to rows by it."""

import csv
import gzip
import json
import random

import pytest

from tests.beam.sourcing import rows_of
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.query_categories import Columns, train_query_categories

TREE = {
    ("furniture", "sofas"): ["sofa", "couch", "loveseat", "sectional"],
    ("furniture", "tables"): ["table", "desk", "nightstand", "console"],
    ("lighting", "lamps"): ["lamp", "sconce", "chandelier", "lantern"],
}
STYLES = ["red", "modern", "oak", "small", "vintage", "outdoor", "grey", "round", "tall", "cheap"]
COLUMNS = Columns("query", "sub", "top")
SCHEMA = {
    "list_id": "search",
    "labels": ["click"],
    "hierarchy": {"child": "sub", "parent": "top"},
    "features": [
        {"name": "sub", "scope": "context", "kind": "categorical"},
        {"name": "top", "scope": "context", "kind": "categorical"},
        {"name": "price", "scope": "example", "kind": "numeric"},
    ],
}


def labelled_queries():
    """A query for each two styles and each noun, with its category."""
    return [
        {"query": f"{a} {b} {noun}", "sub": sub, "top": top}
        for (top, sub), nouns in TREE.items()
        for noun in nouns
        for a in STYLES
        for b in STYLES[:5]
        if a != b
    ]


def write(path, rows, fields=("query", "sub", "top"), delimiter=","):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("queries")
    rows = labelled_queries()
    random.Random(1).shuffle(rows)
    rows += [{"query": " ", "sub": "sofas", "top": "furniture"}, {"query": "sofa", "sub": ""}]
    table = write(folder / "queries.csv.gz", rows)
    report = train_query_categories(table, folder / "model", COLUMNS)
    return folder / "model", report


def test_queries_never_seen_get_the_category_of_their_noun(model):
    folder, report = model
    assert report["rows"] == len(labelled_queries()) and report["rows_left_out"] == 2
    assert report["categories"] == 3
    assert report["accuracy"] > 0.98 > 0.5 > report["accuracy_of_most_frequent"]
    assert report["by_least_probability"][0]["answered"] == 1.0
    assert json.loads((folder / "report.json").read_text()) == report


def test_the_saved_model_takes_misspelt_and_empty_queries(model):
    loaded = tf.saved_model.load(str(model[0])).signatures["serving_default"]
    texts = ["Tall CHANDELEIR!", "sofas", "", "???"]
    found = loaded(queries=tf.constant(texts))
    assert found["child"].numpy()[:2].tolist() == [b"lamps", b"sofas"]
    assert found["parent"].numpy()[:2].tolist() == [b"lighting", b"furniture"]
    sure = found["probability"].numpy()
    assert ((sure >= 1 / 3 - 1e-6) & (sure <= 1)).all()
    # No letter is left of the last two: they are one query to the model.
    assert sure[2] == sure[3]


LOG = [
    {"search": "a", "query": "red couch", "sub": "", "top": "", "click": 1, "price": 3},
    {
        "search": "b",
        "query": "red couch",
        "sub": "tables",
        "top": "furniture",
        "click": 0,
        "price": 3,
    },
    {"search": "c", "query": "", "sub": "", "top": "lighting", "click": 0, "price": 4},
    {"search": "d", "query": "oak lantern", "sub": "", "top": "old", "click": 0, "price": 5},
]


def categories_of(tmp_path, model, rows, *settings):
    fields = list(dict.fromkeys(name for row in rows for name in row))
    path = write(tmp_path / "log.csv", rows, fields)
    found, counts, _ = rows_of(
        tmp_path, "search-logs", path, SCHEMA, f"query_model={model}", *settings
    )
    return [(row.values["sub"] or "", row.values["top"] or "") for row in found], counts


def test_rows_without_a_category_get_that_of_their_query(model, tmp_path):
    found, counts = categories_of(tmp_path, model[0], LOG)
    assert found == [
        ("sofas", "furniture"),
        ("tables", "furniture"),
        ("", "lighting"),
        ("lamps", "lighting"),
    ]
    assert counts["noted", "rows without a category"] == 2


def test_a_log_without_the_columns_gets_them(model, tmp_path):
    bare = [{k: v for k, v in row.items() if k not in ("sub", "top")} for row in LOG]
    found, _ = categories_of(tmp_path, model[0], bare)
    assert found == [("sofas", "furniture")] * 2 + [("", ""), ("lamps", "lighting")]


def test_a_category_below_the_least_probability_is_not_taken(model, tmp_path):
    found, _ = categories_of(tmp_path, model[0], LOG, "query_probability=1")
    assert found[0] == ("", "") and found[3] == ("", "old")


@pytest.mark.parametrize(
    ("name", "rows", "columns", "message"),
    [
        ("q.json", [], COLUMNS, "q.json: must be .csv or .tsv"),
        ("q.csv", [], COLUMNS, "0 categories of queries, at least 2"),
        ("q.csv", [], Columns("text", "sub"), "no column 'text'; columns: query, sub, top"),
        ("q.csv", labelled_queries()[:1], Columns("query", "sub"), "1 categories of queries"),
        (
            "q.tsv",
            [{"query": "sofa", "sub": "a"}, {"query": "sofa", "sub": "b"}],
            Columns("query", "sub"),
            "too few queries",
        ),
    ],
)
def test_an_unusable_table_is_rejected(tmp_path, name, rows, columns, message):
    delimiter = "\t" if name.endswith(".tsv") else ","
    path = write(tmp_path / name, rows, delimiter=delimiter)
    with pytest.raises(UserError, match=message):
        train_query_categories(path, tmp_path / "out", columns)
    assert not (tmp_path / "out").exists()


def test_a_broken_table_is_named(tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text('query,sub,top\nsofa,"a,b\n')
    with pytest.raises(UserError, match=r"broken\.csv: Reached end of file without closing quote"):
        train_query_categories(path, tmp_path / "out", COLUMNS)


def test_a_missing_table_and_a_missing_model_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.csv: cannot be read"):
        train_query_categories(tmp_path / "nothing.csv", tmp_path / "out", COLUMNS)
    with pytest.raises(UserError, match=r"has no saved_model\.pb"):
        categories_of(tmp_path, tmp_path / "none", LOG)
