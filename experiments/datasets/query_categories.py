"""Categories of queries, for logs that have none: a classifier, and a table to join to the log.

    python -m experiments.datasets.query_categories --labelled labelled.csv --queries queries.csv \
        --query query --child sub_category --parent top_category --out categories.csv
    tfr-moe build search-logs --input 'logs/*.csv.gz' --schema schema.yaml --out data \
        --set join=categories.csv --set join_by=query

The gate of Adv & HSC-MoE takes the category of the query, which the paper has from a query
classifier (Xiao et al. 2021, section III-A). This one is logistic regression over character
n-grams, which misspelt words still share. A tenth of the labelled queries, by a hash of their text,
is held out; accuracy and coverage on them are printed.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tfr_moe.errors import UserError
from tfr_moe.tables import read_table

THRESHOLDS = (0.0, 0.5, 0.7, 0.9)


def labelled_rows(path: Path, query: str, levels: Sequence[str]) -> tuple[list[str], list[Any]]:
    """The queries of a table and their categories, as tuples of the given columns.

    Raises:
        UserError: for a missing column, or fewer than two categories.
    """
    table = read_table(path)
    for name in (query, *levels):
        if name not in table.column_names:
            raise UserError(f"{path}: has no column {name!r}")
    text = pa.table({name: pc.cast(table[name], pa.string()) for name in (query, *levels)})
    rows = [row for row in text.to_pylist() if row[query] and row[levels[0]]]
    categories = [tuple(row[name] or "" for name in levels) for row in rows]
    if len(set(categories)) < 2:
        raise UserError(f"{path}: has {len(set(categories))} categories, at least 2 are needed")
    return [row[query] for row in rows], categories


def fit(queries: Sequence[str], classes: np.ndarray) -> Any:
    """A classifier of queries; classes are numbers."""
    words = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    return make_pipeline(words, LogisticRegression(C=30.0, max_iter=300)).fit(queries, classes)


def is_held_out(query: str) -> bool:
    """Whether a query is held out, the same for every occurrence of it."""
    return zlib.crc32(query.encode()) % 10 == 0


def report(model: Any, queries: Sequence[str], truth: np.ndarray) -> list[str]:
    """Lines on accuracy and coverage by the minimum probability of an answer."""
    probabilities = model.predict_proba(queries)
    correct = model.classes_[probabilities.argmax(axis=1)] == truth
    majority = np.bincount(truth).max() / len(truth)
    lines = [f"{len(queries)} held-out rows, majority-class baseline {majority:.3f}"]
    for least in THRESHOLDS:
        answered = probabilities.max(axis=1) >= least
        accuracy = f"{correct[answered].mean():.3f}" if answered.any() else "none"
        lines.append(f"probability {least}: coverage {answered.mean():.3f}, accuracy {accuracy}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains on the labelled queries and writes the categories of the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labelled", type=Path, required=True, help="queries with categories")
    parser.add_argument("--queries", type=Path, required=True, help="queries to classify")
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    parser.add_argument("--query", default="query", help="column of the query")
    parser.add_argument("--child", default="sub_category", help="column of the sub-category")
    parser.add_argument("--parent", help="column of the top category")
    parser.add_argument("--probability", type=float, default=0.0, help="minimum of an answer")
    given = parser.parse_args(arguments)
    levels = [given.child] if given.parent is None else [given.child, given.parent]
    queries, categories = labelled_rows(given.labelled, given.query, levels)
    names = sorted(set(categories))
    truth = np.array([names.index(category) for category in categories])
    held_out = np.array([is_held_out(query) for query in queries])
    if held_out.any() and len(set(truth[~held_out])) > 1:
        known = [query for query, out in zip(queries, held_out, strict=True) if not out]
        unseen = [query for query, out in zip(queries, held_out, strict=True) if out]
        print("\n".join(report(fit(known, truth[~held_out]), unseen, truth[held_out])))
    model = fit(queries, truth)
    column = pc.unique(pc.cast(read_table(given.queries)[given.query], pa.string()))
    queries_to_label = [query for query in column.to_pylist() if query]
    probabilities = model.predict_proba(queries_to_label)
    best = model.classes_[probabilities.argmax(axis=1)]
    sure = probabilities.max(axis=1) >= given.probability
    columns: dict[str, Any] = {given.query: pa.array(queries_to_label)}
    for index, level in enumerate(levels):
        columns[level] = pa.array([names[number][index] for number in best])
    csv.write_csv(pa.table(columns).filter(pa.array(sure)), given.out)


if __name__ == "__main__":
    main()
