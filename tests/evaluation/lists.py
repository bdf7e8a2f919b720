"""Random lists for the tests of this folder."""

import numpy as np

from tfr_moe.evaluation.results import PerListResult
from tfr_moe.metrics.per_list import ListBatch


def random_batch(rng, lists=40, length=17, grades=3, tied=False, first_id=0) -> ListBatch:
    """Lists of 1 to `length` items, padded in random places, with shuffled shown positions."""
    shape = (lists, length)
    sizes = rng.integers(1, length + 1, size=lists)
    mask = rng.permuted(np.arange(length)[None, :] < sizes[:, None], axis=1)
    scores = rng.integers(0, 4, shape).astype(float) if tied else rng.normal(size=shape)
    labels = rng.integers(0, grades, shape) * (rng.random(shape) < 0.4)
    positions = rng.permuted(np.tile(np.arange(1, length + 1), (lists, 1)), axis=1)
    return ListBatch(
        scores=np.where(mask, scores, np.nan),
        labels=np.where(mask, labels, -1).astype(float),
        mask=mask,
        list_ids=np.array([f"q{i + first_id}" for i in range(lists)], dtype=object),
        positions=positions.astype(float),
        categories=rng.choice(np.array(["shoes", "books", "tools"], dtype=object), lists),
    )


def one_list(scores, labels, positions=None) -> ListBatch:
    return ListBatch(
        scores=np.array([scores], float),
        labels=np.array([labels], float),
        mask=np.ones((1, len(scores)), bool),
        list_ids=np.array(["q"], dtype=object),
        positions=None if positions is None else np.array([positions], float),
    )


def result(*columns, ids=None) -> PerListResult:
    """A result with these values of `mrr` and, if there are two columns, of `ndcg`."""
    names = ("mrr", "ndcg")[: len(columns)]
    values = {name: np.asarray(column, float) for name, column in zip(names, columns, strict=True)}
    count = len(columns[0])
    return PerListResult(
        list_ids=np.array(ids or [f"q{i}" for i in range(count)], dtype=object),
        values=values,
        nothing_relevant={name: np.isnan(v) for name, v in values.items()},
        num_items=np.full(count, 5),
        num_relevant=np.ones(count, int),
        categories=np.array(["shoes"] * count, dtype=object),
    )
