"""A text classifier that assigns search queries to categories, for logs without query categories.

[Xiao et al.](https://arxiv.org/abs/2007.12349) (section III-A) gate by the category that a
classifier assigns to a query. This is a small one: the mean embedding of the query's words and word
pairs, concatenated with that of its character trigrams (which a misspelled word still shares),
under one softmax layer over the categories.
"""

from tfr_moe.query_categories.classifier import Columns, train_query_categories

__all__ = ["Columns", "train_query_categories"]
