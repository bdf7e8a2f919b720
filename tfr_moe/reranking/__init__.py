"""Initial lists for re-rankers, scored by any ranker without leakage: cross-fitted in folds.

As in [Pobrotyn et al. 2020](https://arxiv.org/abs/2005.10084), section 5.5: the training lists are
split into k folds by a hash of their IDs, k rankers are trained on k - 1 folds each, and each
scores the fold that it has not seen. A ranker trained on all training lists scores validation and
test. Every list is then ordered by its scores.
"""

from tfr_moe.reranking.initial_lists import (
    fold_of,
    list_id_of,
    reordered,
    rerank_data,
    scored_records,
    with_initial_list,
)

__all__ = [
    "fold_of",
    "list_id_of",
    "reordered",
    "rerank_data",
    "scored_records",
    "with_initial_list",
]
