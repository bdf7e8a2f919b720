"""Attention maps: mean attention between groups of items, as Figs. 2 and 3 of PRM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

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

    $$ lift_{ab} = \text{mean}_{i \in a, j \in b} n w_{ij} $$

    A lift of 1 is that of uniform attention over the list, for lists of any length. `groups_of`
    maps features to the group of each item, int [B, L], -1 for none; `with_itself` also counts
    pairs of an item with itself.
    """

    def __init__(
        self,
        labels: Sequence[str],
        groups_of: Callable[[Features], Array],
        with_itself: bool = False,
    ):
        self.labels, self.groups_of = list(labels), groups_of
        self._with_itself = with_itself
        self._lifts, self._pairs = np.zeros([2, len(labels), len(labels)])

    def add(self, weights: Array, features: Features) -> None:
        """Adds the weights [B, L, L] of the lists of a batch."""
        mask = features[MASK]
        groups = np.where(mask, self.groups_of(features), -1)
        member = (groups[..., np.newaxis] == np.arange(len(self.labels))).astype(np.float64)
        counted = np.ones(weights.shape)
        if not self._with_itself:
            counted *= 1 - np.eye(weights.shape[1])
        lifts = weights * mask.sum(axis=1)[:, np.newaxis, np.newaxis]
        for total, values in ((self._lifts, lifts * counted), (self._pairs, counted)):
            by_group = np.swapaxes(member, 1, 2) @ (values @ member)
            total += by_group.sum(axis=0)

    def as_json(self) -> dict[str, Any]:
        """`labels`, and by pair of groups `lift` (None without pairs) and `pairs`."""
        means = self._lifts / np.maximum(self._pairs, 1)
        return {
            "labels": self.labels,
            "lift": np.where(self._pairs > 0, means, np.array(None)).tolist(),
            "pairs": self._pairs.astype(int).tolist(),
        }


def map_of_positions(limit: int = NUM_POSITIONS) -> AttentionMap:
    """Groups items by their position in the list; those after `limit` are in no group."""

    def groups_of(features: Features) -> Array:
        positions = np.cumsum(features[MASK], axis=1) - 1
        return np.where(positions < limit, positions, -1)

    return AttentionMap([str(position + 1) for position in range(limit)], groups_of, True)


def grouping_feature(schema: FeatureSchema, name: str) -> Feature:
    """The feature of items that attention is grouped by; a UserError if it is none."""
    features = schema.select("example", "categorical", "numeric")
    usable = {feature.name: feature for feature in features if feature.width == 1}
    if name not in usable:
        known = ", ".join(usable) or "none"
        raise UserError(f"by: {name!r} is not an ID or number of the items; available: {known}")
    return usable[name]


def map_of_feature(schema: FeatureSchema, name: str, sample: Sequence[Features]) -> AttentionMap:
    """Groups items by the most frequent IDs of a feature in a sample, or by bands of a number.

    All other IDs are one group. Bands have about as many items each, and no missing values.
    """
    feature = grouping_feature(schema, name)
    tensor, part = schema.stored_at(name)
    values = pd.Series(np.concatenate([f[tensor][f[MASK]][:, part][:, 0] for f in sample]))
    others: list[str] = []
    if feature.kind == "numeric":
        bounds = values.quantile(np.linspace(0, 1, NUM_BANDS + 1)[1:-1]).dropna().unique()
        groups = pd.IntervalIndex.from_breaks([-np.inf, *bounds, np.inf], closed="left")
        edges = [f"{bound:.4g}" for bound in bounds]
        between = [f"{low} to {high}" for low, high in pairwise(edges)]
        labels = [f"below {edges[0]}", *between, f"from {edges[-1]}"] if edges else ["all"]
    else:
        ids = values.value_counts().index
        groups, others = ids[:MAX_IDS], [OTHERS] if len(ids) > MAX_IDS else []
        labels = [i.decode("utf-8", "replace") for i in groups]

    def groups_of(features: Features) -> Array:
        values = features[tensor][..., part][..., 0]
        indices = groups.get_indexer(values.reshape(-1)).reshape(values.shape)
        return np.where((indices < 0) & bool(others), len(groups), indices)

    return AttentionMap(labels + others, groups_of)


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
    names for `map_of_feature`.
    """
    encoder: SelfAttentionEncoder | None = find_layer(model, TRUNK)
    if encoder is None:
        return 0, {}
    maps = {POSITIONS: map_of_positions()}
    if by:
        sample = [_arrays(features) for features, *_ in dataset.take(_SAMPLE_BATCHES)]
        maps |= {name: map_of_feature(schema, name, sample) for name in by}
    weights_of = attention_weights(model, encoder, dataset.element_spec[0])
    lists = 0
    for features, *_ in dataset:
        weights, arrays = weights_of(features).numpy().astype(np.float64), _arrays(features)
        lists += int(arrays[MASK].any(axis=1).sum())
        for of_groups in maps.values():
            of_groups.add(weights, arrays)
    return lists, {name: of_groups.as_json() for name, of_groups in maps.items()}


def _arrays(features: Mapping[str, tf.Tensor]) -> Features:
    return {name: value.numpy() for name, value in features.items()}
