"""Serialized requests -> the model's inputs, with TensorFlow's own ops.

A request carries raw values. What the client checks before it sends (`RowParser`) holds here too,
because not every caller is our client: a missing optional value takes the schema's default, and a
missing required one fails with the name of its feature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tfr_moe._compat import tf, tfr
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema, Scope

Features = dict[str, tf.Tensor]

# An id that no caller can mean: it tells an absent list of ids from an empty one.
_ABSENT = "\0"


class RequestParser:
    """Parses requests by a schema.

    What it returns holds at least one list of one item, so that models need no code for nothing:
    an empty batch and a batch of empty lists are filled up with padding, which the mask tells.

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

    def __init__(self, schema: FeatureSchema):
        self._schema = schema
        self._specs = {scope: self._spec(scope) for scope in ("context", "example")}

    def _spec(self, scope: Scope) -> dict[str, tf.io.FixedLenFeature]:
        """The schema's spec with defaults by which a missing value is known as missing."""
        spec = {}
        for name, plain in self._schema.feature_spec(scope).items():
            length = plain.shape[0]
            if plain.dtype == tf.float32:
                default: list[float] | list[str] = [math.nan] * length
            else:
                feature = self._schema.feature(name)
                first = ""
                if feature.kind == "categorical_list":
                    first = _ABSENT if feature.is_required else str(feature.default or "")
                default = [first] + [""] * (length - 1)
            spec[name] = tf.io.FixedLenFeature(plain.shape, plain.dtype, default)
        return spec

    def lists(self, serialized: tf.Tensor) -> Features:
        """Parses serialized `ExampleListWithContext`s.

        Args:
            serialized: strings [B].

        Returns:
            Context features [B, m], example features [B, L, m] with L the widest list of the batch,
            and the mask, bool [B, L].

        Raises:
            tf.errors.DataLossError: for bytes that are no `ExampleListWithContext`.
            tf.errors.InvalidArgumentError: for a missing required feature, by name, and for values
                of the wrong type or number.
        """
        features = tfr.data.parse_from_example_list(
            _at_least_one(serialized),
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
            mask_feature_name=MASK,
        )
        features = self._complete(features)
        for name in (MASK, *self._specs["example"]):
            features[name] = _at_least_one_item(features[name])
        return features

    def items(self, serialized: tf.Tensor) -> Features:
        """Parses serialized `tf.train.Example`s, each an item together with its context.

        Args:
            serialized: strings [B].

        Returns:
            The same as `lists`, for B lists of one item.
        """
        filled = _at_least_one(serialized)
        features = tfr.data.parse_from_tf_example(
            filled,
            context_feature_spec=self._specs["context"],
            example_feature_spec=self._specs["example"],
        )
        places = tf.range(tf.shape(filled)[0])[:, tf.newaxis]
        features[MASK] = places < tf.shape(serialized)[0]
        return self._complete(features)

    def _complete(self, features: Features) -> Features:
        """Refuses missing required values of real items and puts defaults in all other gaps."""
        mask = features[MASK]
        # A list without items needs no context: there is nothing to score.
        real: dict[Scope, tf.Tensor] = {"context": tf.reduce_any(mask, 1), "example": mask}
        filled: Features = {MASK: mask}
        names: list[str] = []
        lacking: list[tf.Tensor] = []
        for scope, place in real.items():
            for name, columns in self._columns(scope):
                gaps, filled[name] = _fill(columns, features[name])
                required = [f.is_required for f in columns]
                if any(required):
                    names += [f.name for f in columns if f.is_required]
                    flags = tf.reshape(gaps & place[..., tf.newaxis], [-1, len(columns)])
                    lacking.append(tf.boolean_mask(tf.reduce_any(flags, 0), required))
        if not names:
            return filled
        with tf.control_dependencies([_refuse(names, tf.concat(lacking, 0))]):
            return {name: tf.identity(value) for name, value in filled.items()}

    def _columns(self, scope: Scope) -> Iterator[tuple[str, list[Feature]]]:
        """Yields the name of each tensor [..., n] and which feature stands in each of n columns."""
        numerics = list(self._schema.select(scope, "numeric"))
        if self._schema.packed and numerics:
            yield PACKED[scope], [f for f in numerics for _ in range(f.width)]
        elif numerics:
            yield from ((f.name, [f] * f.width) for f in numerics)
        for f in self._schema.select(scope, "categorical", "categorical_list"):
            yield f.name, [f]


def _at_least_one(serialized: tf.Tensor) -> tf.Tensor:
    # TensorFlow's proto decoder refuses an empty batch; the empty string is an empty message.
    return tf.pad(serialized, [[0, tf.maximum(1 - tf.shape(serialized)[0], 0)]])


def _at_least_one_item(value: tf.Tensor) -> tf.Tensor:
    # Where all lists are empty, the proto decoder gives one item to the features and none to the mask.
    lack = tf.maximum(1 - tf.shape(value)[1], 0)
    return tf.pad(value, [[0, 0], [0, lack], [0, 0]][: value.shape.rank])


def _fill(columns: list[Feature], value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where values are missing, bool [..., n] (a list of ids has one column), and the value filled."""
    kind = columns[0].kind
    if kind == "numeric":
        gaps = tf.math.is_nan(value)
        default = tf.constant([float(f.default or 0.0) for f in columns])
        return gaps, tf.where(gaps, default, value)
    if kind == "categorical_list":
        gaps = value[..., :1] == _ABSENT
        return gaps, tf.where(gaps, "", value)
    gaps = value == ""
    return gaps, tf.where(gaps, str(columns[0].default or ""), value)


def _refuse(names: list[str], lacking: tf.Tensor) -> tf.Operation:
    """An assertion that fails with the names of the features that are lacking, bool [n]."""
    found, _ = tf.unique(tf.boolean_mask(tf.constant(names), lacking))
    return tf.debugging.Assert(
        tf.logical_not(tf.reduce_any(lacking)),
        [
            "the request has no value for required feature(s)",
            tf.strings.reduce_join(found, separator=", "),
        ],
    )
