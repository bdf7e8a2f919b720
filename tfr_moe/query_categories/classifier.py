"""The classifier of queries: its layers, its training, its SavedModel, and how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfr_moe._compat import tf

_BATCH = 256
_BUFFER = 50_000
_THRESHOLDS = (0.0, 0.5, 0.7, 0.9)


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


def make_model(queries: tf.data.Dataset, classes: int, width: int, seed: int) -> tf.keras.Model:
    """A model from queries (string [B]) to probabilities [B, classes], its vocabularies those of `queries`.

    Args:
        queries: dataset of single queries, for the vocabularies.
        classes: number of categories.
        width: of the embeddings of words and of trigrams.
        seed: of the initialisation.
    """
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


def fit(
    model: tf.keras.Model, train: tf.data.Dataset, held: tf.data.Dataset, epochs: int, seed: int
) -> None:
    """Trains on (query, class) of `train` until `held` gets no better, and goes back to where it was best."""
    model.compile(tf.keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    model.fit(
        train.shuffle(_BUFFER, seed).batch(_BATCH).prefetch(2),
        validation_data=held.batch(_BATCH),
        epochs=epochs,
        callbacks=[stop],
        verbose=0,
    )


class Classifier(tf.Module):
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


def judge(
    model: tf.keras.Model, held: tf.data.Dataset, classes: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Accuracy on (query, class) of `held`, by level and by least probability."""
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
