"""A text classifier from search queries to categories, for logs that have no category of their queries.

Xiao et al. (section III-A) gate by the category that a query is assigned to by a classifier of its own.
This is a small one: the mean of the embeddings of the query's words and word pairs, beside that of its
character trigrams (which a misspelt word still shares), under one softmax layer over the categories.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, write_json

REPORT_FILE = "report.json"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_HELD_OUT = 10  # one query in so many
_BATCH = 256
_BUFFER = 50_000
_THRESHOLDS = (0.0, 0.5, 0.7, 0.9)


class Columns(NamedTuple):
    """The columns of a table of labelled queries; `parent` is None where categories have one level."""

    query: str
    child: str
    parent: str | None = None

    @property
    def names(self) -> list[str]:
        """Those that are there."""
        return [name for name in self if name is not None]


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
    rows = _rows(Path(path), columns)
    counts, left_out = _count(rows, path)
    classes = sorted(counts)
    if len(classes) < 2:
        raise UserError(f"{path}: {len(classes)} categories of queries, at least 2 are needed")
    labelled = _labelled(rows, classes)
    train = labelled.filter(lambda query, _: not _held_out(query, seed))
    held = labelled.filter(lambda query, _: _held_out(query, seed))
    for part, name in ((train, "to learn from"), (held, "to hold out")):
        if next(iter(part), None) is None:
            raise UserError(f"{path}: too few queries: none is left {name}")
    with complete_folder(out, overwrite) as folder:
        model = _make_model(train.map(lambda query, _: query), len(classes), embedding_dim, seed)
        _fit(model, train, held, epochs, seed)
        report = {
            "rows": sum(counts.values()),
            "rows_left_out": left_out,
            "categories": len(classes),
            **_judge(model, held, classes),
        }
        classifier = _Classifier(model, classes)
        tf.saved_model.save(classifier, str(folder), signatures=classifier.classify)
        write_json(folder / REPORT_FILE, report)
    return report


# ------------------------------------------------------------------------------------- the table


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield file


def _rows(path: Path, columns: Columns) -> tf.data.Dataset:
    """Dataset of (query, child, parent) strings, "" where a value is missing."""
    kind = Path(path.stem if path.suffix == ".gz" else path.name).suffix
    if kind not in _DELIMITERS:
        raise UserError(f"{path}: must be .csv or .tsv, with or without .gz")
    try:
        with _opened(path) as file:
            header = next(csv.reader(file, delimiter=_DELIMITERS[kind]), [])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise UserError(f"{path}: cannot be read ({reason})") from error
    for name in columns.names:
        if name not in header:
            raise UserError(f"{path}: has no column {name!r}; there are: {', '.join(header)}")
    places = [header.index(name) for name in columns.names]
    order = np.argsort(places)
    dataset = tf.data.experimental.CsvDataset(
        str(path),
        record_defaults=[""] * len(places),
        compression_type="GZIP" if path.suffix == ".gz" else None,
        header=True,
        field_delim=_DELIMITERS[kind],
        use_quote_delim=kind == ".csv",
        select_cols=sorted(places),
    )

    def in_order(*values: Any) -> tuple[Any, ...]:
        found = [values[list(order).index(index)] for index in range(len(places))]
        return (*found, tf.constant("")) if columns.parent is None else tuple(found)

    return dataset.map(in_order)


def _is_whole(query: Any, child: Any, *rest: Any) -> Any:
    return (tf.strings.length(tf.strings.strip(query)) > 0) & (tf.strings.length(child) > 0)


def _count(rows: tf.data.Dataset, path: str | Path) -> tuple[Counter[tuple[str, str]], int]:
    """(rows of each (parent, child), rows without a query or a category)."""
    counts: Counter[tuple[str, str]] = Counter()
    left_out = 0
    try:
        for query, child, parent in rows.batch(_BUFFER):
            whole = _is_whole(query, child)
            left_out += int(tf.reduce_sum(tf.cast(~whole, tf.int32)))
            pairs = tf.stack([parent[whole], child[whole]], axis=1).numpy()
            counts.update((top.decode(), sub.decode()) for top, sub in pairs)
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        reason = error.message.split("}} ")[-1].split(" [Op:")[0]
        raise UserError(f"{path}: {' '.join(reason.split())}") from None
    return counts, left_out


def _labelled(rows: tf.data.Dataset, classes: Sequence[tuple[str, str]]) -> tf.data.Dataset:
    """Dataset of (query, index of its category)."""
    keys = tf.constant(["\x1f".join(pair) for pair in classes])
    index = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(classes))), default_value=-1
    )

    def label(query: Any, child: Any, parent: Any) -> tuple[Any, Any]:
        return query, index.lookup(tf.strings.join([parent, child], "\x1f"))

    return rows.filter(_is_whole).map(label)


def _held_out(query: Any, seed: int) -> Any:
    return tf.strings.to_hash_bucket_strong(query, _HELD_OUT, key=[seed, 1]) == 0


# ------------------------------------------------------------------------------------- the model


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
def plain_words(text: Any) -> Any:
    """Queries in small letters, with single blanks for all else than letters and digits.

    A mark at the beginning tells a word's first letters apart, and leaves no query without a token.

    Example:
        >>> plain_words(tf.constant(["Émile-Desk,  2x4"])).numpy()[0].decode()
        '^^^ émile desk 2x4'
    """
    words = tf.strings.regex_replace(tf.strings.lower(text, "utf-8"), r"[^\pL\pN]+", " ")
    return tf.strings.join(["^^^", tf.strings.strip(words)], " ")


def _make_model(queries: tf.data.Dataset, classes: int, width: int, seed: int) -> tf.keras.Model:
    keras = tf.keras
    vectorize = keras.layers.TextVectorization
    readers = (
        vectorize(50_000, standardize=plain_words, ngrams=2, name="words"),
        vectorize(
            20_000, standardize=plain_words, split="character", ngrams=(3,), name="characters"
        ),
    )
    text = keras.Input([], dtype=tf.string, name="queries")
    means = []
    for reader in readers:
        reader.adapt(queries.batch(1024))
        table = keras.layers.Embedding(
            reader.vocabulary_size(),
            width,
            embeddings_initializer=keras.initializers.RandomUniform(seed=seed),
            mask_zero=True,
            name=f"{reader.name}_embedding",
        )
        means.append(keras.layers.GlobalAveragePooling1D()(table(reader(text))))
    joined = keras.layers.Dropout(0.2, seed=seed)(keras.layers.Concatenate()(means))
    dense = keras.layers.Dense(
        classes,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        activation="softmax",
        name="categories",
    )
    return keras.Model(text, dense(joined))


def _fit(
    model: tf.keras.Model, train: tf.data.Dataset, held: tf.data.Dataset, epochs: int, seed: int
) -> None:
    model.compile(tf.keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    model.fit(
        train.shuffle(_BUFFER, seed).batch(_BATCH).prefetch(2),
        validation_data=held.batch(_BATCH),
        epochs=epochs,
        callbacks=[stop],
        verbose=0,
    )


class _Classifier(tf.Module):
    """The model with the names of its categories."""

    def __init__(self, model: tf.keras.Model, classes: Sequence[tuple[str, str]]):
        super().__init__()
        self._model = model
        self._parents = tf.constant([parent for parent, _ in classes])
        self._children = tf.constant([child for _, child in classes])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="queries")])
    def classify(self, queries: Any) -> dict[str, Any]:
        """Queries [B] -> their most probable category, its parent and its probability, each [B]."""
        probabilities = self._model(queries, training=False)
        best = tf.argmax(probabilities, axis=1)
        return {
            "child": tf.gather(self._children, best),
            "parent": tf.gather(self._parents, best),
            "probability": tf.reduce_max(probabilities, axis=1),
        }


def _judge(
    model: tf.keras.Model, held: tf.data.Dataset, classes: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    found = [(model(q, training=False).numpy(), y.numpy()) for q, y in held.batch(_BATCH)]
    truth = np.concatenate([labels for _, labels in found])
    guess = np.concatenate([scores.argmax(axis=1) for scores, _ in found])
    sure = np.concatenate([scores.max(axis=1) for scores, _ in found])
    parents = np.array([parent for parent, _ in classes])
    right = guess == truth
    return {
        "held_out_rows": len(truth),
        "accuracy": float(right.mean()),
        "parent_accuracy": float((parents[guess] == parents[truth]).mean()),
        "accuracy_of_most_frequent": float(np.bincount(truth).max() / len(truth)),
        "by_least_probability": [
            {
                "least": least,
                "answered": float((sure >= least).mean()),
                "accuracy": float(right[sure >= least].mean()) if (sure >= least).any() else None,
            }
            for least in _THRESHOLDS
        ],
    }
