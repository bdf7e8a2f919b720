"""A text classifier from search queries to categories, for logs that have no category of their queries.

Xiao et al. (section III-A) gate by the category that a query is assigned to by a classifier of its own.
This is a small one: the mean of the embeddings of the query's words and word pairs, beside that of its
character trigrams (which a misspelt word still shares), under one softmax layer over the categories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, write_json
from tfr_moe.query_categories.classifier import Classifier, fit, judge, make_model
from tfr_moe.query_categories.table import (
    Columns,
    count_categories,
    is_held_out,
    label_rows,
    read_rows,
)

__all__ = ["Columns", "train_query_categories"]

REPORT_FILE = "report.json"


def train_query_categories(
    path: str | Path,
    out: str | Path,
    columns: Columns,
    epochs: int = 30,
    embedding_dim: int = 64,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Trains the classifier and writes it as a SavedModel, with `report.json` beside it.

    A tenth of the queries, chosen by a hash of their text, is held out: it decides when to stop and is
    what the report is about. The signature `serving_default` takes `queries` (string [B]) and gives
    `child`, `parent` (string [B]; parent is empty where there is none) and `probability` (float32 [B]).
    It can be served as it is; `tfr-moe build search-logs --set query_model=OUT` applies it.

    Args:
        path: CSV or TSV with a header, plain or .gz: a row for a query and its category. A query may
            stand there several times, under several categories.
        out: folder to make.
        columns: which columns.
        epochs: at most so many passes over the table.
        embedding_dim: width of the two means.
        seed: of the initialisation, the order and the held-out part.
        overwrite: replace `out`.

    Returns:
        The report: numbers of rows and categories, accuracy by level on the held-out part and that of
        the most frequent category, and accuracy and answered share at several least probabilities.

    Raises:
        UserError: if the table can't be read, lacks a column, or leaves nothing to learn from.

    Example:
        train_query_categories("queries.csv", "query-model", Columns("query", "sub", "top"))
    """
    tf.keras.utils.set_random_seed(seed)
    rows = read_rows(Path(path), columns)
    counts, left_out = count_categories(rows, path)
    classes = sorted(counts)
    if len(classes) < 2:
        raise UserError(f"{path}: {len(classes)} categories of queries, at least 2 are needed")
    labelled = label_rows(rows, classes)
    train = labelled.filter(lambda query, _: not is_held_out(query, seed))
    held = labelled.filter(lambda query, _: is_held_out(query, seed))
    for part, name in ((train, "to learn from"), (held, "to hold out")):
        if next(iter(part), None) is None:
            raise UserError(f"{path}: too few queries: none is left {name}")
    with complete_folder(out, overwrite) as folder:
        model = make_model(train.map(lambda query, _: query), len(classes), embedding_dim, seed)
        fit(model, train, held, epochs, seed)
        report = {
            "rows": sum(counts.values()),
            "rows_left_out": left_out,
            "categories": len(classes),
            **judge(model, held, classes),
        }
        classifier = Classifier(model, classes)
        tf.saved_model.save(classifier, str(folder), signatures=classifier.classify)
        write_json(folder / REPORT_FILE, report)
    return report
