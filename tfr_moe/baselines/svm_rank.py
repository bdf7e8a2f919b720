"""`svm_rank`: a linear ranker with the hinge loss of pairs (Joachims 2002), by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import tf
from tfr_moe.baselines.rows import Column, Fitted, Log, Rows, library, merged
from tfr_moe.errors import UserError

FILE = "model.npz"
DEFAULTS: dict[str, Any] = {"alpha": 1e-4, "max_iter": 20, "patience": 3, "pairs_per_list": 200}
_TRAINING = ("max_iter", "patience", "pairs_per_list")  # arguments of `fit`, not parameters
_FIXED = ("loss", "random_state", "fit_intercept")
_LIMIT = 10.0


class LinearRanker:
    """w^T x, x the `features` of a row. See `tfr_moe.baselines.rows.RowRanker`.

    Attributes:
        weights: [n], those of the numeric columns first; 0 before training.
    """

    def __init__(self, columns: Sequence[Column], weights: NDArray[np.float64] | None = None):
        self._numeric = [i for i, column in enumerate(columns) if column.size is None]
        self._ids = [(i, column.size) for i, column in enumerate(columns) if column.size]
        self._means = np.array([columns[i].mean for i in self._numeric])
        self._stds = np.array([columns[i].std for i in self._numeric])
        width = len(self._numeric) + sum(size for _, size in self._ids)
        self.weights = np.zeros(width) if weights is None else weights

    def features(self, values: NDArray[np.float32]) -> Any:
        """Rows [T, columns] -> standardised, clipped numerics and one-hot IDs, sparse [T, n]."""
        from scipy import sparse  # takes long to load

        numbers = (values[:, self._numeric] - self._means) / self._stds
        blocks = [sparse.csr_matrix(np.clip(numbers, -_LIMIT, _LIMIT))]
        rows = np.arange(len(values))
        for column, size in self._ids:
            indices = values[:, column].astype(np.int64)
            ones = np.ones(len(values))
            blocks.append(sparse.csr_matrix((ones, (rows, indices)), shape=(len(values), size)))
        return sparse.hstack(blocks, format="csr")

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self.features(values) @ self.weights

    def graph(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """See `tfr_moe.baselines.rows.RowRanker`."""
        return self._scores

    def _scores(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows [T, columns] -> scores [T]."""
        first, rows = len(self._numeric), tf.cast(rows, tf.float64)
        numbers = tf.gather(rows, tf.constant(self._numeric, tf.int32), axis=1)
        numbers = tf.clip_by_value((numbers - self._means) / self._stds, -_LIMIT, _LIMIT)
        scores = tf.linalg.matvec(numbers, self.weights[:first])
        for column, size in self._ids:
            indices = tf.cast(rows[:, column], tf.int32)
            scores += tf.gather(self.weights[first : first + size], indices)
            first += size
        return tf.cast(scores, tf.float32)

    def save(self, path: Path) -> None:
        """Writes the weights as a NumPy archive."""
        np.savez(path, weights=self.weights)


def load(path: Path, columns: Sequence[Column]) -> LinearRanker:
    """Reads a file of `LinearRanker.save`."""
    with np.load(path) as stored:
        return LinearRanker(columns, stored["weights"])


def pairs_of(
    labels: NDArray[np.float32], sizes: NDArray[np.int64], maximum: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of rows (better, worse) of the same list, at most `maximum` per list, sampled."""
    pairs = []
    start = 0
    for size in sizes:
        of_list = labels[start : start + size]
        better, worse = np.nonzero(of_list[:, None] > of_list[None, :])
        if len(better) > maximum:
            chosen = rng.choice(len(better), maximum, replace=False)
            better, worse = better[chosen], worse[chosen]
        pairs.append((better + start, worse + start))
        start += int(size)
    better, worse = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return better, worse


def _blocks(
    rows: Rows, ranker: LinearRanker, maximum: int, rng: np.random.Generator
) -> Iterator[tuple[Any, NDArray[np.float32]]]:
    """Yields blocks of differences better - worse, and the weights of the better items."""
    for block, sizes in rows.blocks(1 << 13):
        better, worse = pairs_of(rows.labels[block], sizes, maximum, rng)
        if len(better):
            x = ranker.features(np.asarray(rows.values[block]))
            yield x[better] - x[worse], np.asarray(rows.weights[block])[better]


def settings_of(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Merges parameters into `DEFAULTS`: those of `fit`, and of scikit-learn's SGDClassifier."""
    settings = {**merged(DEFAULTS, parameters, _FIXED), "random_state": seed}
    _classifier(settings)
    return settings


def _classifier(settings: Mapping[str, Any]) -> Any:
    linear = library("sklearn.linear_model", "scikit-learn")
    others = {name: value for name, value in settings.items() if name not in _TRAINING}
    try:
        return linear.SGDClassifier(loss="hinge", fit_intercept=False, average=True, **others)
    except TypeError as error:
        raise UserError(f"library_parameters: {error}") from error


def fit(train: Rows, validation: Rows, settings: Mapping[str, Any], log: Log) -> Fitted:
    r"""Minimises the hinge loss of pairs with a squared norm, by stochastic gradient descent.

    $$ \frac{\alpha}{2} \|w\|^2 + \frac{1}{|P|} \sum_{(i, j) \in P} \max(0, 1 - w^T (x_i - x_j)) $$

    over pairs of the same list with y_i > y_j, `pairs_per_list` of which are sampled from each list
    in each pass. The weights are averaged over the steps. Training stops when the accuracy on
    validation pairs stops improving.
    """
    passes, patience, maximum = (settings[name] for name in _TRAINING)
    seed, classifier = settings["random_state"], _classifier(settings)
    ranker, rng = LinearRanker(train.columns), np.random.default_rng(seed)
    best, best_pass, done = -1.0, 0, 0
    while done < passes and done - best_pass < patience:
        pairs = 0
        for differences, of_pairs in _blocks(train, ranker, maximum, rng):
            signs = rng.choice([-1.0, 1.0], len(of_pairs))
            signs[:2] = [1.0, -1.0][: len(signs)]
            flipped = differences.multiply(signs[:, None]).tocsr()
            try:
                classifier.partial_fit(flipped, signs, classes=[-1.0, 1.0], sample_weight=of_pairs)
            except ValueError as error:
                raise UserError(f"scikit-learn: {' '.join(str(error).split())}") from error
            pairs += len(of_pairs)
        if not pairs:
            raise UserError("model 'svm_rank' needs a training list with items of unequal label")
        done += 1
        accuracy = _pair_accuracy(validation, ranker, classifier.coef_[0], maximum, seed)
        log(f"pass {done} of at most {passes}: validation pair accuracy {accuracy:.4f}")
        if accuracy > best:
            best, best_pass, ranker.weights = accuracy, done, classifier.coef_[0].copy()
    return Fitted(ranker, done, best_pass, len(ranker.weights))


def _pair_accuracy(
    rows: Rows, ranker: LinearRanker, weights: NDArray[np.float64], maximum: int, seed: int
) -> float:
    correct = total = 0.0
    for differences, of_pairs in _blocks(rows, ranker, maximum, np.random.default_rng(seed)):
        margins = differences @ weights
        correct += float(np.sum(of_pairs * ((margins > 0) + 0.5 * (margins == 0))))
        total += float(np.sum(of_pairs))
    return correct / total if total else 0.0
