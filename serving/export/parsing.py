"""Parses requests into the model's inputs, with TensorFlow's ops. A request has raw values.

At least one list of one slot is returned, so that models need no code for empty batches: what is
missing is padding, False in the mask. Missing optional values take the schema's default, or stay
NaN for the model to replace; a missing required value is an error, here as in the client, because
not every caller uses our client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tfr_moe._compat import tf, tfr
from tfr_moe.layers.shapes import sizes
from tfr_moe.schema import MASK, Feature, FeatureSchema, QueryCategories, Scope

Features = dict[str, tf.Tensor]

ABSENT = "\0"
"""An id that no caller sends: it tells a missing list of ids from an empty one."""


class RequestParser:
    """Parses serialized lists to features with the schema's defaults, inside of the graph."""

    def __init__(self, schema: FeatureSchema, categories: QueryCategories | None = None):
        self._schema = schema
        self.categories = ListCategories(schema, categories)
        self._specs = {scope: self._spec(scope) for scope in ("context", "example")}

    def _spec(self, scope: Scope) -> dict[str, tf.io.FixedLenFeature]:
        """The schema's spec with defaults that mark missing values."""
        spec = {}
        for name, plain in self._schema.feature_spec(scope).items():
            length = plain.shape[0]
            if plain.dtype == tf.float32:
                default: list[float] | list[str] = [math.nan] * length
            else:
                feature = self._schema.feature(name)
                first = ""
                if feature.kind == "categorical_list":
                    first = ABSENT if feature.required else feature.default or ""
                default = [first] + [""] * (length - 1)
            spec[name] = tf.io.FixedLenFeature(plain.shape, plain.dtype, default)
        return spec

    def lists(self, serialized: tf.Tensor) -> Features:
        """Parses serialized lists [B] to features [B, m] and [B, L, m], and the mask [B, L].

        Raises a DataLossError for bytes that are no list, and an InvalidArgumentError for missing
        required features, by name, and for values of the wrong type or number.
        """
        features = tfr.data.parse_from_example_list(
            # TensorFlow's proto decoder rejects an empty batch; the empty string is a message.
            _pad(serialized, 0),
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
            mask_feature_name=MASK,
        )
        features = self.categories(_complete(self._schema, features))
        for name in (MASK, *self._specs["example"]):
            # Where all lists are empty, the proto decoder gives one item to the features and none
            # to the mask.
            features[name] = _pad(features[name], 1)
        return features


def _pad(value: tf.Tensor, axis: int) -> tf.Tensor:
    """Pads an axis of size 0 to 1, with zero, False or an empty string."""
    missing = tf.maximum(1 - sizes(value)[axis], 0)
    return tf.pad(value, [[0, missing if i == axis else 0] for i in range(value.shape.rank)])


def _complete(schema: FeatureSchema, features: Features) -> Features:
    """Fills missing values with defaults, numbers with NaN; a missing required one is an error."""
    mask = features[MASK]
    # A list without items needs no context: there is nothing to score.
    real: dict[Scope, tf.Tensor] = {"context": tf.reduce_any(mask, 1), "example": mask}
    filled: Features = {MASK: mask}
    names: list[str] = []
    flags: list[tf.Tensor] = []
    for scope, rows in real.items():
        for name, columns in _columns(schema, scope):
            missing, filled[name] = _fill(columns, features[name])
            required = [number for number, f in enumerate(columns) if f.required]
            if required:
                names += [columns[number].name for number in required]
                missing &= tf.expand_dims(rows, axis=-1)
                of_columns = tf.reduce_any(tf.reshape(missing, [-1, len(columns)]), axis=0)
                flags.append(tf.gather(of_columns, required))
    if not names:
        return filled
    absent = tf.concat(flags, 0)
    listed, _ = tf.unique(tf.boolean_mask(tf.constant(names), absent))
    reason = "the request has no value for required feature(s)"
    listed = tf.strings.reduce_join(listed, separator=", ")
    ok = tf.debugging.Assert(tf.logical_not(tf.reduce_any(absent)), [reason, listed])
    with tf.control_dependencies([ok]):
        return {name: tf.identity(value) for name, value in filled.items()}


def _columns(schema: FeatureSchema, scope: Scope) -> Iterator[tuple[str, list[Feature]]]:
    """Yields the name of each tensor [..., n] and the feature of each of its n columns."""
    numerics = {column: f for f in schema.select(scope, "numeric") for column in f.columns}
    for name, columns in schema.stored_numbers(scope).items():
        yield name, [numerics[column] for column in columns]
    for f in schema.select(scope, "categorical", "categorical_list"):
        yield f.name, [f]


def _fill(columns: list[Feature], value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where values are missing, bool [..., n] ([..., 1] for a list of ids), and the value."""
    kind = columns[0].kind
    if kind == "numeric":
        missing = tf.math.is_nan(value)
        default = tf.constant([f.missing_number for f in columns])
        return missing, tf.where(missing, default, value)
    if kind == "categorical_list":
        missing = value[..., :1] == ABSENT
        return missing, tf.where(missing, "", value)
    missing = value == ""
    return missing, tf.where(missing, columns[0].default or "", value)


class ListCategories:
    """Gives lists without a category the one that training data has.

    That is the category of the query in a table, where the schema has `from: clicked_in_training`
    and the table has the query; else the most frequent one of the items, of equally frequent ones
    the first. Without `from` in the hierarchy nothing is done. `resources` are lookup tables, which
    a SavedModel must track.
    """

    def __init__(self, schema: FeatureSchema, table: QueryCategories | None = None):
        self._schema = schema
        self.resources: list[tf.lookup.StaticHashTable] = []
        if schema.by_clicks:
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
        one_more = [[0, 0], [0, 1]]  # requests without items have an item without category then
        parents, children = (tf.pad(features[name][..., 0], one_more) for name in names)
        real = tf.pad(features[MASK], one_more) & (children != "")
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
