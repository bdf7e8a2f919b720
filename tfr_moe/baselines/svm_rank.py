"""`svm_rank`: a linear ranker with the hinge loss of pairs (Joachims 2002), by scikit-learn's SGD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe.baselines.columns import Column
from tfr_moe.baselines.library import Fitted, Report, library, merged
from tfr_moe.baselines.rows import Rows
from tfr_moe.errors import UserError

FILE = "model.npz"
DEFAULTS: dict[str, Any] = {"alpha": 1e-4, "max_iter": 20, "patience": 3, "pairs_per_list": 200}
_FIXED = ("loss", "random_state", "fit_intercept")
_LIMIT = 10.0


class Design:
    """Rows as a linear model sees them: numerics standardised and clipped, ids one-hot.

    Args:
        columns: of the rows.
    """

    def __init__(self, columns: Sequence[Column]):
        self._numeric = [i for i, column in enumerate(columns) if column.size is None]
        self._ids = [(i, column.size) for i, column in enumerate(columns) if column.size]
        self._means = np.array([columns[i].mean for i in self._numeric])
        self._stds = np.array([columns[i].std for i in self._numeric])
        self.width = len(self._numeric) + sum(size for _, size in self._ids)

    def __call__(self, values: NDArray[np.float32]) -> Any:
        """[T, columns] -> sparse [T, width]."""
        sparse = library("scipy.sparse", "SciPy")
        numbers = (values[:, self._numeric] - self._means) / self._stds
        blocks = [sparse.csr_matrix(np.clip(numbers, -_LIMIT, _LIMIT))]
        rows = np.arange(len(values))
        for column, size in self._ids:
            places = values[:, column].astype(np.int64)
            ones = np.ones(len(values))
            blocks.append(sparse.csr_matrix((ones, (rows, places)), shape=(len(values), size)))
        return sparse.hstack(blocks, format="csr")


class LinearRanker:
    """w^T x. See `tfr_moe.baselines.library.Ranker`.

    Args:
        columns: of the rows.
        weights: [width] of the `Design`.
    """

    def __init__(self, columns: Sequence[Column], weights: NDArray[np.float64]):
        self._columns = list(columns)
        self.weights = weights
        self._design = Design(columns)

    def predict(self, values: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Rows [T, columns] -> scores [T]."""
        return self._design(values) @ self.weights

    def save(self, path: Path) -> None:
        """Writes weights and columns as a NumPy archive."""
        names, sizes, means, stds = zip(*self._columns, strict=True)
        np.savez(
            path,
            weights=self.weights,
            names=names,
            sizes=[-1 if size is None else size for size in sizes],
            means=means,
            stds=stds,
        )


def load(path: Path) -> LinearRanker:
    """Reads what `LinearRanker.save` wrote."""
    with np.load(path) as stored:
        columns = [
            Column(str(name), None if size < 0 else int(size), float(mean), float(std))
            for name, size, mean, std in zip(
                *(stored[key] for key in ("names", "sizes", "means", "stds")), strict=True
            )
        ]
        return LinearRanker(columns, stored["weights"])


def pairs_of(
    labels: NDArray[np.float32], sizes: NDArray[np.int64], most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (better, worse) of the same list, at most `most` of each list, drawn evenly.

    Example:
        >>> labels, sizes = np.array([0.0, 1.0, 1.0, 0.0]), np.array([2, 2])
        >>> better, worse = pairs_of(labels, sizes, 9, np.random.default_rng(0))
        >>> better.tolist(), worse.tolist()
        ([1, 2], [0, 3])
    """
    found = []
    start = 0
    for size in sizes:
        own = labels[start : start + size]
        better, worse = np.nonzero(own[:, None] > own[None, :])
        if len(better) > most:
            chosen = rng.choice(len(better), most, replace=False)
            better, worse = better[chosen], worse[chosen]
        found.append((better + start, worse + start))
        start += int(size)
    better, worse = (np.concatenate(part) for part in zip(*found, strict=True))
    return better, worse


def _blocks(
    rows: Rows, design: Design, most: int, rng: np.random.Generator
) -> Iterator[tuple[Any, NDArray[np.float32]]]:
    """Differences of better and worse items, and the better ones' weights, block by block."""
    ends = np.cumsum(rows.sizes)
    for at in rows.blocks(1 << 13):
        of_block = rows.sizes[(ends > at.start) & (ends <= at.stop)]
        better, worse = pairs_of(rows.labels[at], of_block, most, rng)
        if len(better):
            x = design(np.asarray(rows.values[at]))
            yield x[better] - x[worse], np.asarray(rows.weights[at])[better]


def fit(
    train: Rows, validation: Rows, parameters: Mapping[str, Any], seed: int, report: Report
) -> Fitted:
    r"""Minimises the hinge loss of pairs with a squared norm, by stochastic gradient descent.

    $$ \frac{\alpha}{2} \|w\|^2 + \frac{1}{|P|} \sum_{(i, j) \in P} \max(0, 1 - w^T (x_i - x_j)) $$

    over pairs of the same list with y_i > y_j, `pairs_per_list` of each list drawn anew in each pass.
    The weights are averaged over the steps. Passes end when fewer validation pairs come out right.

    Args:
        train: the training rows.
        validation: rows that choose the best pass.
        parameters: above `DEFAULTS`: alpha, max_iter, patience, pairs_per_list, and others of
            scikit-learn's SGDClassifier.
        seed: of the draws and of the order of pairs.
        report: told of the progress.

    Raises:
        UserError: for parameters that scikit-learn does not take, or training lists without a pair.
    """
    linear = library("sklearn.linear_model", "scikit-learn")
    settings = merged(DEFAULTS, parameters, _FIXED)
    passes, patience = settings.pop("max_iter"), settings.pop("patience")
    most = settings.pop("pairs_per_list")
    try:
        machine = linear.SGDClassifier(
            loss="hinge", fit_intercept=False, random_state=seed, average=True, **settings
        )
    except TypeError as error:
        raise UserError(f"library_parameters: {error}") from error
    design, rng = Design(train.columns), np.random.default_rng(seed)
    best, best_pass, kept = -1.0, 0, np.zeros(design.width)
    done = 0
    while done < passes and done - best_pass < patience:
        pairs = 0
        for differences, weights in _blocks(train, design, most, rng):
            signs = rng.choice([-1.0, 1.0], len(weights))
            signs[: min(2, len(signs))] = [1.0, -1.0][: min(2, len(signs))]
            flipped = differences.multiply(signs[:, None]).tocsr()
            try:
                machine.partial_fit(flipped, signs, classes=[-1.0, 1.0], sample_weight=weights)
            except ValueError as error:
                raise UserError(f"scikit-learn refuses: {' '.join(str(error).split())}") from error
            pairs += len(weights)
        if not pairs:
            raise UserError("model 'svm_rank' needs a training list with items of unequal label")
        done += 1
        right = _share_of_right_pairs(validation, design, machine.coef_[0], most, seed)
        report(f"pass {done} of at most {passes}: {right:.4f} of the validation pairs right")
        if right > best:
            best, best_pass, kept = right, done, machine.coef_[0].copy()
    found = {"val_pair_accuracy": best}
    return Fitted(LinearRanker(train.columns, kept), done, best_pass, found, len(kept))


def _share_of_right_pairs(
    rows: Rows, design: Design, weights: NDArray[np.float64], most: int, seed: int
) -> float:
    right = total = 0.0
    for differences, of_pairs in _blocks(rows, design, most, np.random.default_rng(seed)):
        margins = differences @ weights
        right += float(np.sum(of_pairs * ((margins > 0) + 0.5 * (margins == 0))))
        total += float(np.sum(of_pairs))
    return right / total if total else 0.0
