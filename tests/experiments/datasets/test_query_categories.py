"""The query classifier, and the table that a build joins by the query."""

import csv

import pytest

from experiments.datasets.query_categories import is_held_out, labelled_rows, main
from tests.beam.sourcing import rows_of
from tfr_moe.errors import UserError

TREE = {
    ("furniture", "sofas"): ["sofa", "couch", "loveseat", "sectional"],
    ("furniture", "tables"): ["table", "desk", "nightstand", "console"],
    ("lighting", "lamps"): ["lamp", "sconce", "chandelier", "lantern"],
}
STYLES = ["red", "modern", "oak", "small", "vintage", "outdoor", "grey", "round", "tall", "cheap"]
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


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_log_without_categories_gets_those_of_its_queries(tmp_path, capsys):
    labelled = [
        {"query": f"{style} {noun}", "sub": sub, "top": top}
        for (top, sub), nouns in TREE.items()
        for noun in nouns
        for style in STYLES
    ]
    log = [
        {"search": "a", "query": "chartreuse couch", "click": 1, "price": 3},
        {"search": "b", "query": "very tall chandeleir", "click": 0, "price": 4},
    ]
    out = tmp_path / "categories.csv"
    main([
        "--labelled", str(write(tmp_path / "labelled.csv", labelled)),
        "--queries", str(write(tmp_path / "log.csv", log)), "--child", "sub", "--parent", "top",
        "--out", str(out),
    ])  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    held_out = sum(is_held_out(row["query"]) for row in labelled)
    assert lines[0].startswith(f"{held_out} held-out rows, majority-class baseline 0.")
    assert float(lines[1].rsplit()[-1]) > 0.9
    settings = (f"join={out}", "join_by=query")
    rows, _, _ = rows_of(tmp_path, "search-logs", tmp_path / "log.csv", SCHEMA, *settings)
    actual = [(row.values["sub"], row.values["top"]) for row in rows]
    assert actual == [("sofas", "furniture"), ("lamps", "lighting")]


def test_unusable_tables_are_rejected(tmp_path):
    path = write(tmp_path / "one.csv", [{"query": "sofa", "sub": "sofas"}])
    with pytest.raises(UserError, match="has 1 categories, at least 2 are needed"):
        labelled_rows(path, "query", ["sub"])
    with pytest.raises(UserError, match="has no column 'top'"):
        labelled_rows(path, "query", ["sub", "top"])
