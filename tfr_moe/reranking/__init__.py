"""Initial lists for re-rankers, by any ranker, without leakage: cross-fitted in folds.

As Pobrotyn et al. 2020, section 5.5: the training lists are cut into k folds by a hash of their ids, k
rankers are trained on k - 1 folds each, and each scores the fold that it has not seen. A ranker that is
trained on all of them scores validation and test. Every list is then put into the order of its scores.
"""

from tfr_moe.reranking.folds import fold_of
from tfr_moe.reranking.lists import reordered, scored_records, with_initial_list
from tfr_moe.reranking.run import rerank_data

__all__ = ["fold_of", "reordered", "rerank_data", "scored_records", "with_initial_list"]
