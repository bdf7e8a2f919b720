"""Numerics of a schema in the graph: ratios, transforms, buckets, missing values and ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.schema import Feature, FeatureSchema


def raw_numbers(schema: FeatureSchema, name: str, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the stored values of a numeric, [..., width], or their `ratio`; NaN over 0."""
    value = _stored(schema, name, name, features)
    divisor = schema.feature(name).ratio
    if divisor is None:
        return value
    quotient = value / _stored(schema, divisor, divisor, features)
    return tf.where(tf.math.is_finite(quotient), quotient, float("nan"))


def _stored(
    schema: FeatureSchema, first: str, last: str, features: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """The values of neighbours that are stored in one tensor, from the first to the last."""
    stored, part = schema.stored_at(first)
    stop = schema.stored_at(last)[1].stop
    values = tf.cast(features[stored], tf.float32)
    whole = part.start == 0 and stop == values.shape[-1]
    return values if whole else values[..., part.start : stop]


def alike(features: Iterable[Feature], left_out: Sequence[str] = ()) -> list[list[Feature]]:
    """Splits numerics into runs of neighbours that `complete_numbers` treats as one wide numeric.

    A few wide operations are traced and computed in less time than many narrow ones. Those that are
    left out are in runs of their own.

    Example:
        >>> numerics = [
        ...     Feature(name=name, scope="example", kind="numeric", transform=transform)
        ...     for name, transform in [("a", "none"), ("b", "none"), ("c", "log1p")]
        ... ]
        >>> [[feature.name for feature in run] for run in alike(numerics)]
        [['a', 'b'], ['c']]
    """

    def treatment(feature: Feature) -> tuple[Hashable, ...]:
        alone = feature.bucketize or feature.missing_indicator or feature.ratio
        settings = feature.missing, feature.required, feature.clip, feature.transform
        return (feature.name if alone else "", feature.name in left_out, *settings)

    return [list(run) for _, run in itertools.groupby(features, key=treatment)]


def raw_run(
    schema: FeatureSchema, run: Sequence[Feature], features: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Returns the `raw_numbers` of a run of `alike`, side by side."""
    if schema.packed and len(run) > 1:
        return _stored(schema, run[0].name, run[-1].name, features)
    values = [raw_numbers(schema, feature.name, features) for feature in run]
    return values[0] if len(values) == 1 else tf.concat(values, axis=-1)


def _positions(value: tf.Tensor, columns: Sequence[Mapping[str, Any]]) -> tf.Tensor:
    """Positions of [..., width] among the `quantiles` of each column, interpolated linearly."""
    positions = []
    for i, column in enumerate(columns):
        # Two points at least, and halves: the difference of two floats may overflow.
        x = tf.constant((column["quantiles"] * 2)[: max(len(column["quantiles"]), 2)]) / 2
        y = tf.constant((column["positions"] * 2)[: max(len(column["positions"]), 2)])
        numbers = tf.reshape(value[..., i], [-1]) / 2
        right = tf.clip_by_value(tf.searchsorted(x, numbers, side="right"), 1, x.shape[0] - 1)
        x0, x1, y0, y1 = (tf.gather(v, right - k) for v in (x, y) for k in (1, 0))
        share = tf.clip_by_value(tf.math.divide_no_nan(numbers - x0, x1 - x0), 0.0, 1.0)
        positions.append(tf.reshape(y0 + share * (y1 - y0), tf.shape(value)[:-1]))
    return tf.stack(positions, axis=-1)


def _buckets(value: tf.Tensor, bounds: Sequence[float]) -> tf.Tensor:
    """1 for the bucket of each of [..., width], else 0: [..., width * (bounds + 1)]."""
    number = tf.expand_dims(value, axis=-1)
    inside = (number >= [-math.inf, *bounds]) & (number < [*bounds, math.inf])
    flat = tf.concat([tf.shape(value)[:-1], [value.shape[-1] * (len(bounds) + 1)]], axis=0)
    return tf.reshape(tf.cast(inside, tf.float32), flat)


def complete_numbers(
    feature: Feature, columns: Sequence[Mapping[str, Any]], value: tf.Tensor
) -> tf.Tensor:
    """Transforms a numeric [..., width] and replaces its missing values, which are NaN.

    `columns` has the statistics of each column: mean, and median or quantiles where the feature
    needs them. Returns the `inputs` of the feature, float32 [..., n].
    """
    value = tf.cast(value, tf.float32)
    missing = tf.math.is_nan(value)
    if feature.missing == "median":
        value = tf.where(missing, [column["median"] for column in columns], value)
    elif feature.missing != "mean":
        value = tf.where(missing, feature.missing, value)
    if feature.clip != (None, None):
        value = tf.clip_by_value(value, *feature.limits)
    if feature.transform == "log1p":
        value = tf.sign(value) * tf.math.log1p(tf.abs(value))
    elif feature.transform == "quantile":
        value = _positions(value, columns)
    if feature.bucketize:
        value = _buckets(value, feature.bucketize)
    elif feature.missing == "mean" and not feature.required:
        value = tf.where(missing, [column["mean"] for column in columns], value)
    if not feature.missing_indicator:
        return value
    return tf.concat([value, tf.cast(missing[..., :1], tf.float32)], axis=-1)


def list_ranks(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    r"""The share of the other items of the list with a smaller value; equal values count half.

    $$ r_i = \frac{1}{n - 1} \sum_{j \ne i} [x_j < x_i] + \tfrac{1}{2} [x_j = x_i] $$

    over the n valid items of the list, and 0 in a list of one item. Counts are exact, so no bit of
    a rank depends on the order of the list. Sums of floats do: with a mean of the list in float32,
    a model can learn at which positions of the record the relevant items are. Values are [B, L, n];
    ranks float32, 0 at padded items.
    """
    valid = tf.expand_dims(mask, axis=-1)
    of_lists = tf.transpose(tf.where(valid, values, values.dtype.max), [0, 2, 1])
    ordered = tf.sort(of_lists, axis=-1)
    twice = tf.searchsorted(ordered, of_lists) + tf.searchsorted(ordered, of_lists, "right") - 1
    others = tf.reduce_sum(tf.cast(valid, tf.int32), axis=1, keepdims=True) - 1
    ranks = tf.transpose(twice, [0, 2, 1]) / tf.maximum(2 * others, 1)
    return tf.where(valid, tf.cast(ranks, tf.float32), 0.0)
