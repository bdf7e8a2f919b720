"""What an ensemble of towers and trees says of the training lists, for distillation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from experiments.studies.ways.lists import Lists, load
from experiments.studies.ways.models import Way

RATE = 4e-3
MEMBERS = (Way(), Way(by_category=("last",)))
ROUNDS = 500
PARAMETERS = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "min_data_in_leaf": 100,
    "cat_smooth": 100,
    "cat_l2": 100,
    "lambda_l2": 10,
    "feature_fraction": 0.5,
    "lambdarank_truncation_level": 20,
    "verbosity": -1,
    "num_threads": 1,
    "seed": 0,
}


def teach(folder: Path, fit: Callable[..., Any], score: Callable[..., NDArray[np.float32]]) -> None:
    """Writes `teacher.npy`, shares [n, L] of the items of each training list.

    Every list is scored by models that were not trained on it: the lists are halved by their hash,
    and each half is scored by two towers and by LightGBM of the other half. Their softmax shares
    are averaged; LightGBM's scores are scaled to the standard deviation of the towers'.

    Args:
        folder: of the study.
        fit: trains a way: `fit(way, lists, rate=..., seed=...)`.
        score: scores lists by a model.
    """
    path = folder / "teacher.npy"
    if path.exists():
        return
    lists = load(folder / "lists" / "train")
    shares = np.zeros_like(lists.labels)
    for half in (0, 1):
        taught = lists.hashes % 2 == half
        other, held_out = _subset(lists, ~taught), _subset(lists, taught)
        # A model has no embedding of codes above those of its training lists: unknown, 0.
        known = np.where(held_out.ids <= other.ids.max(axis=0), held_out.ids, 0)
        held_out = dataclasses.replace(held_out, ids=known)
        logits = [
            score(fit(way, other, rate=RATE, seed=100 + number), held_out)
            for number, way in enumerate(MEMBERS)
        ]
        spread = np.std(logits[0][held_out.labels >= 0])
        trees = _trees(other, held_out)
        trees *= spread / np.std(trees[held_out.labels >= 0])
        shares[taught] = np.mean([_softmax(s, held_out.labels) for s in (*logits, trees)], axis=0)
    np.save(path, shares)


def _subset(lists: Lists, rows: NDArray[np.bool_]) -> Lists:
    return Lists(*(getattr(lists, name)[rows] for name in Lists.__dataclass_fields__))


def _softmax(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> NDArray[np.float32]:
    valid = labels >= 0
    largest = np.max(logits, axis=1, keepdims=True, where=valid, initial=-1e9)
    shifted = np.where(valid, logits - largest, -1e9)
    shares = np.exp(shifted)
    return shares / shares.sum(axis=1, keepdims=True)


def _trees(train: Lists, scored: Lists) -> NDArray[np.float32]:
    data = lightgbm.Dataset(
        _rows(train),
        train.labels[train.labels >= 0],
        group=(train.labels >= 0).sum(axis=1),
        categorical_feature=list(range(train.ids.shape[1])),
    )
    booster = lightgbm.train(PARAMETERS, data, ROUNDS)
    scores = np.zeros_like(scored.labels)
    scores[scored.labels >= 0] = booster.predict(_rows(scored))
    return scores


def _rows(lists: Lists) -> NDArray[np.float32]:
    """One row for each item: codes, context and numbers."""
    of_list = np.concatenate([lists.ids, lists.context], axis=1).astype(np.float32)
    repeated = np.repeat(of_list[:, None], lists.labels.shape[1], axis=1)
    return np.concatenate([repeated, lists.numbers], axis=2)[lists.labels >= 0]
