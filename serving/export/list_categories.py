"""The categories of lists from their items and queries, in the graph."""

from __future__ import annotations

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureSchema, QueryCategories, by_clicks

Features = dict[str, tf.Tensor]


class ListCategories:
    """Gives lists without a category the one that training data has.

    That is the category of the query in a table, where the schema has `from: clicked_in_training`
    and the table has the query; else the most frequent one of the items, of equally frequent ones
    the first.

    Args:
        schema: without `from` in its hierarchy nothing is done.
        table: query -> parent and child.

    Attributes:
        resources: lookup tables, which a SavedModel must track.

    Example:
        >>> category = {"scope": "example", "kind": "categorical"}
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     hierarchy={"child": "item.sub", "parent": "item.top", "from": "majority"},
        ...     features=[{"name": "top", **category}, {"name": "sub", **category}],
        ... )
        >>> ids = {name: tf.constant([[[name + "1"], [name + "2"], [name + "2"]]])
        ...        for name in ("top", "sub")}
        >>> empty = {"list_top": tf.constant([[""]]), "list_sub": tf.constant([[""]])}
        >>> features = {MASK: tf.constant([[True] * 3]), **ids, **empty}
        >>> ListCategories(schema)(features)["list_sub"].numpy().tolist()
        [[b'sub2']]
    """

    def __init__(self, schema: FeatureSchema, table: QueryCategories | None = None):
        self._schema = schema
        self.resources: list[tf.lookup.StaticHashTable] = []
        if by_clicks(schema):
            entries = table or {"\0": ("", "")}  # a lookup needs an entry; no query is this one
            queries = tf.constant(list(entries), tf.string)
            rows = tf.range(len(entries), dtype=tf.int64)
            initializer = tf.lookup.KeyValueTensorInitializer(queries, rows)
            self.resources = [tf.lookup.StaticHashTable(initializer, -1)]
            self._of_queries = [list(words) for words in zip(*entries.values(), strict=True)]

    def __call__(self, features: Features) -> Features:
        """Returns the features [B, n] and [B, L, n] with the categories of lists."""
        tree = self._schema.hierarchy
        if tree is None or not self._schema.item_categories:
            return features
        names = self._schema.item_categories
        parents, children = (_one_more(features[name][..., 0], "") for name in names)
        real = _one_more(features[MASK], False) & (children != "")
        keys = tf.strings.to_hash_bucket_fast(tf.strings.join([parents, children], "\0"), 1 << 62)
        same = (keys[:, :, tf.newaxis] == keys[:, tf.newaxis, :]) & real[:, tf.newaxis, :]
        counts = tf.where(real, tf.reduce_sum(tf.cast(same, tf.int32), -1), 0)
        first = tf.argmax(counts, axis=1)
        some = tf.reduce_any(real, 1)
        pair = [tf.where(some, tf.gather(v, first, batch_dims=1), "") for v in (parents, children)]
        if tree.query is not None:
            row = self.resources[0].lookup(features[tree.query][:, 0])
            clicked = [tf.gather(words, tf.maximum(row, 0)) for words in self._of_queries]
            pair = [tf.where(row >= 0, c, p) for c, p in zip(clicked, pair, strict=True)]
        missing = (features[tree.child] == "") & (pair[1] != "")[:, tf.newaxis]
        names = (tree.parent, tree.child)
        derived = {
            name: tf.where(missing, value[:, tf.newaxis], features[name])
            for name, value in zip(names, pair, strict=True)
        }
        return {**features, **derived}


def _one_more(values: tf.Tensor, value: str | bool) -> tf.Tensor:
    """Appends a column [B, L + 1], so that requests without items have a column too."""
    return tf.concat([values, tf.fill([tf.shape(values)[0], 1], value)], axis=1)
