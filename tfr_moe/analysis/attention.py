"""Attention maps: mean attention between groups of items, as Figs. 2 and 3 of PRM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.attention import SelfAttentionEncoder
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK, Feature, FeatureSchema
from tfr_moe.scorers.base import TRUNK, find_layer

Features: TypeAlias = Mapping[str, Array]

POSITIONS = "position"
NUM_POSITIONS = 20
MAX_IDS = 12
NUM_BANDS = 7
OTHERS = "(others)"
_SAMPLE_BATCHES = 10  # from which the groups are derived


class AttentionMap:
    r"""Accumulates the mean attention of items of each group to items of each group.

    With w_ij the weight of item j for item i and n the number of items of their list,

    $$ weight_{ab} = \text{mean}_{i \in a, j \in b} w_{ij}, \qquad
       lift_{ab} = \text{mean}_{i \in a, j \in b} n w_{ij} $$

    A lift of 1 is that of uniform attention over the list, for lists of any length. `with_itself`
    counts pairs of an item with itself.
    """

    def __init__(self, labels: Sequence[str], with_itself: bool = False):
        size = len(labels)
        self.labels = list(labels)
        self._with_itself = with_itself
        self._weights, self._lifts, self._pairs = (np.zeros([size, size]) for _ in range(3))

    def add(self, weights: Array, groups: Array, sizes: Array) -> None:
        """Adds weights [B, L, L] of items in groups int [B, L], -1 for none, of n [B] items."""
        member = (groups[..., np.newaxis] == np.arange(len(self.labels))).astype(np.float64)
        counted = np.ones(weights.shape)
        if not self._with_itself:
            counted *= 1 - np.eye(weights.shape[1])
        lifts = weights * sizes[:, np.newaxis, np.newaxis]
        for total, values in (
            (self._weights, weights * counted),
            (self._lifts, lifts * counted),
            (self._pairs, counted),
        ):
            by_group = np.swapaxes(member, 1, 2) @ (values @ member)
            total += by_group.sum(axis=0)

    def as_json(self) -> dict[str, Any]:
        """`labels`, and by pair of groups `weight`, `lift` (None without pairs) and `pairs`."""

        def means(total: Array) -> list[list[float | None]]:
            means = total / np.maximum(self._pairs, 1)
            return np.where(self._pairs > 0, means, np.array(None)).tolist()

        return {
            "labels": self.labels,
            "weight": means(self._weights),
            "lift": means(self._lifts),
            "pairs": self._pairs.astype(int).tolist(),
        }


class Grouping(NamedTuple):
    """Groups of the items of a batch: names, and features -> group of each item, int [B, L].

    The group of an item in none is -1.
    """

    labels: list[str]
    groups_of: Callable[[Features], Array]


def by_position(limit: int = NUM_POSITIONS) -> Grouping:
    """Groups items by their position in the list; those after `limit` are in no group."""

    def groups_of(features: Features) -> Array:
        mask = features[MASK]
        positions = np.cumsum(mask, axis=1) - 1
        return np.where(mask & (positions < limit), positions, -1)

    return Grouping([str(position + 1) for position in range(limit)], groups_of)


def _by_id(feature: Feature, sample: Sequence[Features]) -> Grouping:
    """The most frequent IDs of the sample, and one group for all others if there are any."""

    def ids(features: Features) -> Array:
        return features[feature.name][..., 0]

    counted = Counter(i for features in sample for i in ids(features)[features[MASK]].tolist())
    common = [i for i, _ in counted.most_common(MAX_IDS)]
    others = [OTHERS] if len(counted) > MAX_IDS else []
    number = {i: group for group, i in enumerate(common)}
    rest = len(common) if others else -1
    group_of = np.vectorize(lambda i: number.get(i, rest), otypes=[np.int64])
    labels = [i.decode("utf-8", "replace") for i in common]
    return Grouping(
        labels + others,
        lambda features: np.where(features[MASK], group_of(ids(features)), -1),
    )


def _by_band(schema: FeatureSchema, feature: Feature, sample: Sequence[Features]) -> Grouping:
    """Bands of about as many items of the sample each; a missing value is in none."""
    name, part = schema.stored_at(feature.name)
    values = np.concatenate([f[name][..., part][..., 0][f[MASK]] for f in sample])
    values = values[~np.isnan(values)]
    shares = np.linspace(0, 1, NUM_BANDS + 1)[1:-1]
    bounds = np.unique(np.quantile(values, shares)) if len(values) else np.zeros(0)
    ends = [f"{bound:.4g}" for bound in bounds]

    def groups_of(features: Features) -> Array:
        values = features[name][..., part][..., 0]
        bands = np.searchsorted(bounds, values, side="right")
        return np.where(features[MASK] & ~np.isnan(values), bands, -1)

    labels = [f"{low} to {high}" for low, high in zip(["", *ends], [*ends, ""], strict=True)]
    return Grouping(labels, groups_of)


def grouping_of(schema: FeatureSchema, name: str, sample: Sequence[Features]) -> Grouping:
    """Groups items by the most frequent IDs of a feature in a sample, or by bands of a number."""
    features = schema.select("example", "categorical", "numeric")
    usable = {feature.name: feature for feature in features if feature.width == 1}
    if name not in usable:
        known = ", ".join(usable) or "none"
        raise UserError(f"by: {name!r} is not an ID or number of the items; available: {known}")
    if usable[name].kind == "numeric":
        return _by_band(schema, usable[name], sample)
    return _by_id(usable[name], sample)


def attention_weights(
    model: tf.keras.Model, encoder: SelfAttentionEncoder, features_spec: Any
) -> Callable[[Any], Any]:
    """The function from features to attention weights [B, L, L], means over heads and blocks."""
    inputs = tf.keras.Model(model.input, encoder.input)

    @tf.function(input_signature=[features_spec], autograph=False)
    def weights_of(features: Any) -> Any:
        vectors = inputs(features, training=False)
        _, weights = encoder(vectors, mask=features[MASK], return_weights=True)
        return tf.reduce_mean(tf.cast(weights, tf.float32), axis=[1, 2])

    return weights_of


def attention_maps(
    model: tf.keras.Model, dataset: tf.data.Dataset, schema: FeatureSchema, by: Sequence[str] = ()
) -> tuple[int, dict[str, Any]]:
    """The number of non-empty lists, and maps by position and features; none without attention.

    The attention of an item to itself counts in the map of positions only; in the others it would
    move the weight to the diagonal. Elements of the data set begin with raw features; `by` has
    names for `grouping_of`.
    """
    encoder: SelfAttentionEncoder | None = find_layer(model, TRUNK)
    if encoder is None:
        return 0, {}
    groupings = {POSITIONS: by_position()}
    if by:
        sample = [
            {name: value.numpy() for name, value in features.items()}
            for features, *_ in islice(dataset, _SAMPLE_BATCHES)
        ]
        groupings |= {name: grouping_of(schema, name, sample) for name in by}
    weights_of = attention_weights(model, encoder, dataset.element_spec[0])
    maps = {
        name: AttentionMap(grouping.labels, with_itself=name == POSITIONS)
        for name, grouping in groupings.items()
    }
    lists = 0
    for features, *_ in dataset:
        arrays = {name: value.numpy() for name, value in features.items()}
        weights, sizes = weights_of(features).numpy().astype(np.float64), arrays[MASK].sum(axis=1)
        lists += int((sizes > 0).sum())
        for name, grouping in groupings.items():
            maps[name].add(weights, grouping.groups_of(arrays), sizes)
    return lists, {name: of_groups.as_json() for name, of_groups in maps.items()}
