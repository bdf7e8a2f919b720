"""Missing values of a request: optional ones take the schema's default, required ones are refused.

What the client checks before it sends (`RowParser`) holds in the graph too, because not every caller is
our client. A missing number is NaN, a missing id the empty string.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfr_moe._compat import tf
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema, Scope

Features = dict[str, tf.Tensor]

ABSENT = "\0"
"""An id that no caller can mean: it tells an absent list of ids from an empty one."""


def complete(schema: FeatureSchema, features: Features) -> Features:
    """Refuses missing required values of real items and puts defaults in all other gaps.

    Args:
        schema: says which features are required, and the defaults.
        features: tensors by the names of `schema.feature_spec`, with an axis for the list where they
            belong to items, and the mask, bool [B, L].

    Returns:
        The same without gaps.

    Raises:
        tf.errors.InvalidArgumentError: when it runs, with the names of all required features that
            lack a value.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric", "default": 2}],
        ... )
        >>> mask, nan = tf.constant([[True, True]]), float("nan")
        >>> price = tf.constant([[[1.0], [nan]]])
        >>> complete(schema, {MASK: mask, "example_numeric": price})["example_numeric"].numpy().tolist()
        [[[1.0], [2.0]]]
    """
    mask = features[MASK]
    # A list without items needs no context: there is nothing to score.
    real: dict[Scope, tf.Tensor] = {"context": tf.reduce_any(mask, 1), "example": mask}
    filled: Features = {MASK: mask}
    names: list[str] = []
    lacking: list[tf.Tensor] = []
    for scope, place in real.items():
        for name, columns in _columns(schema, scope):
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


def _columns(schema: FeatureSchema, scope: Scope) -> Iterator[tuple[str, list[Feature]]]:
    """Yields the name of each tensor [..., n] and which feature stands in each of n columns."""
    numerics = list(schema.select(scope, "numeric"))
    if schema.packed and numerics:
        yield PACKED[scope], [f for f in numerics for _ in range(f.width)]
    elif numerics:
        yield from ((f.name, [f] * f.width) for f in numerics)
    for f in schema.select(scope, "categorical", "categorical_list"):
        yield f.name, [f]


def _fill(columns: list[Feature], value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where values are missing, bool [..., n] (a list of ids has one column), and the value filled."""
    kind = columns[0].kind
    if kind == "numeric":
        gaps = tf.math.is_nan(value)
        default = tf.constant([float(f.default or 0.0) for f in columns])
        return gaps, tf.where(gaps, default, value)
    if kind == "categorical_list":
        gaps = value[..., :1] == ABSENT
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
