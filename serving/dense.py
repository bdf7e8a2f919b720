"""Plain tensors -> the model's inputs, for callers who have no protos.

Every feature is a tensor under its own name, [B, ...] if it belongs to the list and [B, L, ...] if it
belongs to the items, and `list_size`, int32 [B], says how many items of each list are real. What stands
in the places after them is not read: a server that fills shorter lists up may write anything there.
"""

from __future__ import annotations

import math

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema, Scope

from .gaps import Features, complete
from .sizes import at_least

LIST_SIZE = "list_size"


def _rank(feature: Feature) -> int:
    """1, or 2 for a list with the values of one feature in its last axis."""
    lists = feature.kind == "categorical_list" or (feature.kind == "numeric" and feature.width > 1)
    return (1 if feature.scope == "context" else 2) + lists


class TensorParser:
    """Takes plain tensors by a schema.

    What it returns is what `RequestParser.lists` returns for the same request.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> parser = TensorParser(schema)
        >>> features = parser.lists(
        ...     {"price": tf.constant([[2.0, 3.0, 9.0]]), "list_size": tf.constant([2])}
        ... )
        >>> features["example_list_mask"].numpy().tolist()
        [[True, True, False]]
    """

    def __init__(self, schema: FeatureSchema):
        self._schema = schema

    def inputs(self) -> dict[str, tf.TensorSpec]:
        """The tensors that a request has, by name: float32 for numbers, strings for ids."""
        specs = {LIST_SIZE: tf.TensorSpec([None], tf.int32, LIST_SIZE)}
        for feature in self._schema.features:
            dtype = tf.float32 if feature.kind == "numeric" else tf.string
            specs[feature.name] = tf.TensorSpec([None] * _rank(feature), dtype, feature.name)
        return specs

    def lists(self, inputs: Features) -> Features:
        """Takes the tensors of a batch.

        Args:
            inputs: as `inputs()` says; a missing number is NaN, a missing id the empty string, a
                `categorical_list` has up to `max_length` ids, the empty ones being none.

        Returns:
            Context features [B, m], example features [B, L, m] and the mask, bool [B, L]; at least
            one list of one place.

        Raises:
            tf.errors.InvalidArgumentError: when it runs, for sizes that don't agree, by the feature's
                name, and for a missing required feature.
        """
        sizes = inputs[LIST_SIZE]
        lead = tf.stack([tf.shape(sizes)[0], self.places(inputs)])
        fits = tf.debugging.Assert(
            tf.reduce_all((sizes >= 0) & (sizes <= lead[1])),
            [f"{LIST_SIZE} must be from 0 to the number of places,", lead[1], "got", sizes],
        )
        with tf.control_dependencies([fits]):
            mask = tf.sequence_mask(sizes, lead[1])
        features = {MASK: mask}
        scopes: tuple[Scope, ...] = ("context", "example")
        for scope in scopes:
            features |= self._scope(scope, inputs, lead, mask)
        filled = {name: at_least(value, 0, 1) for name, value in features.items()}
        for name in (MASK, *self._schema.feature_spec("example")):
            filled[name] = at_least(filled[name], 1, 1)
        return complete(self._schema, filled)

    def places(self, inputs: Features) -> tf.Tensor:
        """The number of places of each list, L: int32 scalar."""
        for feature in self._schema.select("example"):
            return tf.shape(inputs[feature.name])[1]
        # Without features of items the sizes alone say how many there are.
        return tf.reduce_max(tf.concat([inputs[LIST_SIZE], [0]], 0))

    def _scope(self, scope: Scope, inputs: Features, lead: tf.Tensor, mask: tf.Tensor) -> Features:
        places = tf.reduce_any(mask, 1) if scope == "context" else mask
        sizes = lead[:1] if scope == "context" else lead
        values = {
            f.name: tf.where(places[..., tf.newaxis], _column(f, inputs[f.name], sizes), _gap(f))
            for f in self._schema.select(scope)
        }
        numerics = [f.name for f in self._schema.select(scope, "numeric")]
        if self._schema.packed and numerics:
            values[PACKED[scope]] = tf.concat([values.pop(name) for name in numerics], -1)
        return values


def _gap(feature: Feature) -> tf.Tensor:
    return tf.constant(math.nan) if feature.kind == "numeric" else tf.constant("")


def _column(feature: Feature, value: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """The values of one feature with an axis for them at the end, [..., m], their shape checked."""
    scalar = _rank(feature) == (1 if feature.scope == "context" else 2)
    given = value
    if scalar:
        value = value[..., tf.newaxis]
    width = feature.max_length if feature.kind == "categorical_list" else feature.width
    shape = tf.shape(value)
    agree = tf.reduce_all(shape[:-1] == sizes)
    if feature.kind == "categorical_list":
        agree &= shape[-1] <= width
    else:
        agree &= shape[-1] == width
    wanted: list[tf.Tensor | str] = [sizes] if scalar else [sizes, f"with {width} values each"]
    checked = tf.debugging.Assert(
        agree,
        [f"input {feature.name} must have the sizes", *wanted, "got", tf.shape(given)],
    )
    with tf.control_dependencies([checked]):
        value = tf.identity(value)
    value = at_least(value, value.shape.rank - 1, width)
    return tf.ensure_shape(value, [*value.shape[:-1], width])
