"""Parses requests into the model's inputs, with TensorFlow's ops. A request carries raw values.

At least one list of one slot is returned, so that models need no code for empty batches: what is
missing is padding, False in the mask. Missing optional values take the schema's default, or stay
NaN for the model to replace; a missing required value is an error, here as in the client, because
not every caller uses our client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tfr_moe._compat import tf, tfr
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema, QueryCategories, Scope

from .list_categories import Features, ListCategories

ABSENT = "\0"
"""An id that no caller sends: it tells a missing list of ids from an empty one."""


class RequestParser:
    """Parses serialized requests by a schema.

    Args:
        schema: the schema.
        categories: of the queries, where the schema needs them.

    Attributes:
        categories: adds the categories of lists.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> features = RequestParser(schema).lists(tf.constant([], tf.string))
        >>> sorted((name, tuple(tensor.shape)) for name, tensor in features.items())
        [('example_list_mask', (1, 1)), ('example_numeric', (1, 1, 1))]
    """

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
        """Parses serialized `ExampleListWithContext`s.

        Args:
            serialized: strings [B].

        Returns:
            Context features [B, m], example features [B, L, m] with L the longest list of the
            batch, and the mask, bool [B, L].

        Raises:
            tf.errors.DataLossError: for bytes that are not an `ExampleListWithContext`.
            tf.errors.InvalidArgumentError: for missing required features, by name, and for values
                of the wrong type or number.
        """
        features = tfr.data.parse_from_example_list(
            _at_least_one(serialized),
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
            mask_feature_name=MASK,
        )
        features = self.categories(complete(self._schema, features))
        for name in (MASK, *self._specs["example"]):
            # Where all lists are empty, the proto decoder gives one item to the features and none
            # to the mask.
            features[name] = at_least(features[name], 1, 1)
        return features


def _at_least_one(serialized: tf.Tensor) -> tf.Tensor:
    # TensorFlow's proto decoder rejects an empty batch; the empty string is an empty message.
    return at_least(serialized, 0, 1)


def at_least(value: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    """Pads an axis that is shorter than `size` with zeros, False or empty strings.

    Example:
        >>> at_least(tf.constant([[1.0], [2.0]]), axis=1, size=3).numpy().tolist()
        [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    """
    missing = tf.maximum(size - tf.shape(value)[axis], 0)
    return tf.pad(value, [[0, missing if i == axis else 0] for i in range(value.shape.rank)])


def complete(schema: FeatureSchema, features: Features) -> Features:
    """Fills missing values with the schema's defaults; a missing required value is an error.

    Args:
        schema: has the required features and the defaults.
        features: tensors by the names of `schema.feature_spec`, [B, n] or [B, L, n], and the mask,
            bool [B, L]. A missing number is NaN, a missing id the empty string.

    Returns:
        The same without missing IDs; a missing number is NaN where the model replaces it.

    Raises:
        tf.errors.InvalidArgumentError: when it runs, naming all required features without a value.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric", "default": 2}],
        ... )
        >>> mask, nan = tf.constant([[True, True]]), float("nan")
        >>> price = tf.constant([[[1.0], [nan]]])
        >>> features = complete(schema, {MASK: mask, "example_numeric": price})
        >>> features["example_numeric"].numpy().tolist()
        [[[1.0], [2.0]]]
    """
    mask = features[MASK]
    # A list without items needs no context: there is nothing to score.
    real: dict[Scope, tf.Tensor] = {"context": tf.reduce_any(mask, 1), "example": mask}
    filled: Features = {MASK: mask}
    names: list[str] = []
    flags: list[tf.Tensor] = []
    for scope, rows in real.items():
        for name, columns in _columns(schema, scope):
            missing, filled[name] = _fill(columns, features[name])
            required = [f.required for f in columns]
            if any(required):
                names += [f.name for f in columns if f.required]
                of_rows = tf.reshape(missing & rows[..., tf.newaxis], [-1, len(columns)])
                flags.append(tf.boolean_mask(tf.reduce_any(of_rows, 0), required))
    if not names:
        return filled
    with tf.control_dependencies([_check_none(names, tf.concat(flags, 0))]):
        return {name: tf.identity(value) for name, value in filled.items()}


def _columns(schema: FeatureSchema, scope: Scope) -> Iterator[tuple[str, list[Feature]]]:
    """Yields the name of each tensor [..., n] and the feature of each of its n columns."""
    numerics = list(schema.select(scope, "numeric"))
    if schema.packed and numerics:
        yield PACKED[scope], [f for f in numerics for _ in range(f.width)]
    elif numerics:
        yield from ((f.name, [f] * f.width) for f in numerics)
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


def _check_none(names: list[str], missing: tf.Tensor) -> tf.Operation:
    """An assertion that fails with the names of the features flagged in `missing`, bool [n]."""
    flagged, _ = tf.unique(tf.boolean_mask(tf.constant(names), missing))
    return tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(missing)),
        [
            "the request has no value for required feature(s)",
            tf.strings.reduce_join(flagged, separator=", "),
        ],
    )
