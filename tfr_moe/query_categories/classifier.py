"""The query classifier: its table, layers, training, evaluation and SavedModel."""

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
from tfr_moe.utils.io import atomic_directory, write_json

REPORT_FILE = "report.json"

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_HELD_OUT = 10  # one query in ten
_READ_BATCH = 50_000
_BATCH = 256
_BUFFER = 50_000
_THRESHOLDS = (0.0, 0.5, 0.7, 0.9)


class Columns(NamedTuple):
    """The columns of a table of labelled queries; `parent` is None for a single-level category."""

    query: str
    child: str
    parent: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns to read."""
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
    """Trains the classifier and writes it as a SavedModel with `report.json`.

    A tenth of the queries, chosen by a hash of their text, is held out for early stopping and for
    the report. The signature `serving_default` maps `queries` (string [B]) to `child`, `parent`
    (string [B]; parent is empty if there is none) and `probability` (float32 [B]). The data-set
    build applies it with the setting `query_model=OUT`.

    Args:
        path: CSV or TSV with a header, plain or .gz: a row for each query and category. A query may
            occur several times, with several categories.
        out: folder to make.
        columns: the columns to read.
        epochs: maximum number of passes over the table.
        embedding_dim: width of the two mean embeddings.
        seed: random seed of the initialisation, the order and the held-out queries.
        overwrite: whether to replace `out`.

    Returns:
        The report: numbers of rows and categories, accuracy by level on the held-out queries and
        that of the majority class, and accuracy and coverage at several probability thresholds.

    Raises:
        UserError: if the table cannot be read, has no such column, or has too few rows.

    Example:
        train_query_categories("queries.csv", "query-model", Columns("query", "sub", "top"))
    """
    tf.keras.utils.set_random_seed(seed)
    rows = _read_rows(Path(path), columns)
    counts, left_out = _count_categories(rows, path)
    classes = sorted(counts)
    if len(classes) < 2:
        raise UserError(f"{path}: {len(classes)} categories of queries, at least 2 are needed")
    labelled = _label_rows(rows, classes)
    train = labelled.filter(lambda query, _: not _is_held_out(query, seed))
    held_out = labelled.filter(lambda query, _: _is_held_out(query, seed))
    for part, name in ((train, "training"), (held_out, "held-out")):
        if next(iter(part), None) is None:
            raise UserError(f"{path}: too few queries: there is no {name} query")
    with atomic_directory(out, REPORT_FILE if overwrite else None) as folder:
        model = _make_model(train.map(lambda query, _: query), len(classes), embedding_dim, seed)
        _fit(model, train, held_out, epochs, seed)
        report = {
            "rows": sum(counts.values()),
            "rows_left_out": left_out,
            "categories": len(classes),
            **_evaluate(model, held_out, classes),
        }
        classifier = _Classifier(model, classes)
        tf.saved_model.save(classifier, str(folder), signatures=classifier.classify)
        write_json(folder / REPORT_FILE, report)
    return report


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield file


def _read_rows(path: Path, columns: Columns) -> tf.data.Dataset:
    """Dataset of (query, child, parent) strings, "" for missing values."""
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
            raise UserError(f"{path}: has no column {name!r}; columns: {', '.join(header)}")
    indices = [header.index(name) for name in columns.names]
    order = list(np.argsort(indices))
    dataset = tf.data.experimental.CsvDataset(
        str(path),
        record_defaults=[""] * len(indices),
        compression_type="GZIP" if path.suffix == ".gz" else None,
        header=True,
        field_delim=_DELIMITERS[kind],
        use_quote_delim=kind == ".csv",
        select_cols=sorted(indices),
    )

    def in_order(*values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        row = [values[order.index(i)] for i in range(len(indices))]
        return (*row, tf.constant("")) if columns.parent is None else tuple(row)

    return dataset.map(in_order)


def _is_complete(query: tf.Tensor, child: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
    return (tf.strings.length(tf.strings.strip(query)) > 0) & (tf.strings.length(child) > 0)


def _count_categories(
    rows: tf.data.Dataset, path: str | Path
) -> tuple[Counter[tuple[str, str]], int]:
    """(number of rows of each (parent, child), number of rows without a query or a category)."""
    counts: Counter[tuple[str, str]] = Counter()
    left_out = 0
    try:
        for query, child, parent in rows.batch(_READ_BATCH):
            complete = _is_complete(query, child)
            left_out += int(tf.reduce_sum(tf.cast(~complete, tf.int32)))
            pairs = tf.stack([parent[complete], child[complete]], axis=1).numpy()
            counts.update((top.decode(), sub.decode()) for top, sub in pairs)
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        reason = error.message.split("}} ")[-1].split(" [Op:")[0]
        raise UserError(f"{path}: {' '.join(reason.split())}") from None
    return counts, left_out


def _label_rows(rows: tf.data.Dataset, classes: Sequence[tuple[str, str]]) -> tf.data.Dataset:
    """Dataset of (query, index of its category)."""
    keys = tf.constant(["\x1f".join(pair) for pair in classes])
    index = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(classes))), default_value=-1
    )

    def label(query: tf.Tensor, child: tf.Tensor, parent: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return query, index.lookup(tf.strings.join([parent, child], "\x1f"))

    return rows.filter(_is_complete).map(label)


def _is_held_out(query: tf.Tensor, seed: int) -> tf.Tensor:
    """Whether a query is held out, the same for every occurrence of it."""
    return tf.strings.to_hash_bucket_strong(query, _HELD_OUT, key=[seed, 1]) == 0


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
def plain_words(text: tf.Tensor) -> tf.Tensor:
    """Lower-cases queries and replaces all but letters and digits by single blanks.

    A mark at the start identifies the first letters, and gives every query a token.

    Example:
        >>> plain_words(tf.constant(["Émile-Desk,  2x4"])).numpy()[0].decode()
        '^^^ émile desk 2x4'
    """
    words = tf.strings.regex_replace(tf.strings.lower(text, "utf-8"), r"[^\pL\pN]+", " ")
    return tf.strings.join(["^^^", tf.strings.strip(words)], " ")


def _make_model(queries: tf.data.Dataset, classes: int, width: int, seed: int) -> tf.keras.Model:
    """Queries (string [B]) -> probabilities [B, classes], with the vocabularies of `queries`."""
    keras = tf.keras
    vectorize = keras.layers.TextVectorization
    vectorizers = (
        vectorize(50_000, standardize=plain_words, ngrams=2, name="words"),
        vectorize(
            20_000, standardize=plain_words, split="character", ngrams=(3,), name="characters"
        ),
    )
    text = keras.Input([], dtype=tf.string, name="queries")
    means = []
    for vectorizer in vectorizers:
        vectorizer.adapt(queries.batch(1024))
        table = keras.layers.Embedding(
            vectorizer.vocabulary_size(),
            width,
            embeddings_initializer=keras.initializers.RandomUniform(seed=seed),
            mask_zero=True,
            name=f"{vectorizer.name}_embedding",
        )
        means.append(keras.layers.GlobalAveragePooling1D()(table(vectorizer(text))))
    joined = keras.layers.Dropout(0.2, seed=seed)(keras.layers.Concatenate()(means))
    dense = keras.layers.Dense(
        classes,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        activation="softmax",
        name="categories",
    )
    return keras.Model(text, dense(joined))


def _fit(
    model: tf.keras.Model, train: tf.data.Dataset, held_out: tf.data.Dataset, epochs: int, seed: int
) -> None:
    """Trains until the held-out loss stops improving, then restores the best weights."""
    model.compile(tf.keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    model.fit(
        train.shuffle(_BUFFER, seed).batch(_BATCH).prefetch(2),
        validation_data=held_out.batch(_BATCH),
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
    def classify(self, queries: tf.Tensor) -> dict[str, tf.Tensor]:
        """Queries [B] -> the most probable category, its parent and its probability, each [B]."""
        probabilities = self._model(queries, training=False)
        best = tf.argmax(probabilities, axis=1)
        return {
            "child": tf.gather(self._children, best),
            "parent": tf.gather(self._parents, best),
            "probability": tf.reduce_max(probabilities, axis=1),
        }


def _evaluate(
    model: tf.keras.Model, held_out: tf.data.Dataset, classes: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Accuracy on held-out (query, class), by level and by probability threshold."""
    batches = [(model(q, training=False).numpy(), y.numpy()) for q, y in held_out.batch(_BATCH)]
    truth = np.concatenate([labels for _, labels in batches])
    predicted = np.concatenate([scores.argmax(axis=1) for scores, _ in batches])
    probability = np.concatenate([scores.max(axis=1) for scores, _ in batches])
    parents = np.array([parent for parent, _ in classes])
    correct = predicted == truth
    by_threshold = []
    for least in _THRESHOLDS:
        answered = probability >= least
        accuracy = float(correct[answered].mean()) if answered.any() else None
        by_threshold.append(
            {"least": least, "answered": float(answered.mean()), "accuracy": accuracy}
        )
    return {
        "held_out_rows": len(truth),
        "accuracy": float(correct.mean()),
        "parent_accuracy": float((parents[predicted] == parents[truth]).mean()),
        "accuracy_of_most_frequent": float(np.bincount(truth).max() / len(truth)),
        "by_least_probability": by_threshold,
    }
