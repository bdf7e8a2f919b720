"""Attention maps: mean attention between groups of items, as Figs. 2 and 3 of PRM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.item_groups import Features, Grouping
from tfr_moe.errors import UserError
from tfr_moe.layers.attention import SelfAttentionEncoder
from tfr_moe.metrics.per_list import Array
from tfr_moe.schema import MASK
from tfr_moe.scorers.base import TRUNK, find_layer

POSITIONS = "position"


class AttentionMap:
    r"""Accumulates the mean attention of items of each group to items of each group.

    With w_ij the weight of item j for item i and n the number of items of their list,

    $$ weight_{ab} = \text{mean}_{i \in a, j \in b} w_{ij}, \qquad
       lift_{ab} = \text{mean}_{i \in a, j \in b} n w_{ij} $$

    A lift of 1 is that of uniform attention over the list, for lists of any length.

    Args:
        labels: names of the groups.
        with_itself: whether to count pairs of an item with itself.

    Example:
        >>> attention = AttentionMap(["a", "b"])
        >>> attention.add(np.array([[[0.5, 0.5], [0.9, 0.1]]]), np.array([[0, 1]]), np.array([2]))
        >>> attention.as_json()["lift"]
        [[None, 1.0], [1.8, None]]
    """

    def __init__(self, labels: Sequence[str], with_itself: bool = False):
        size = len(labels)
        self.labels = list(labels)
        self._with_itself = with_itself
        self._weights, self._lifts, self._pairs = (np.zeros([size, size]) for _ in range(3))

    def add(self, weights: Array, groups: Array, sizes: Array) -> None:
        """Adds a batch.

        Args:
            weights: [B, L, L].
            groups: int [B, L], -1 for items to ignore.
            sizes: n, [B].
        """
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
            return [
                [float(value / count) if count else None for value, count in zip(*row, strict=True)]
                for row in zip(total, self._pairs, strict=True)
            ]

        return {
            "labels": self.labels,
            "weight": means(self._weights),
            "lift": means(self._lifts),
            "pairs": self._pairs.astype(int).tolist(),
        }


class Attended(NamedTuple):
    """A batch of lists with its attention weights.

    Attributes:
        features: raw features and the mask.
        weights: [B, L, L], mean over heads and blocks.
    """

    features: Features
    weights: Array


def encoder_of(model: tf.keras.Model) -> SelfAttentionEncoder | None:
    """The self-attention encoder of a model of a `FeatureScorer`, if it has one."""
    return find_layer(model, TRUNK)


def attended(model: tf.keras.Model, dataset: tf.data.Dataset) -> Iterator[Attended]:
    """Runs the encoder of a model over a data set.

    Args:
        model: one with an encoder, such as `FeatureScorer.build_model` makes.
        dataset: elements that begin with raw features, such as those of `build_evaluation_dataset`.

    Raises:
        UserError: for a model without attention.
    """
    encoder = encoder_of(model)
    if encoder is None:
        raise UserError(f"model {model.name}: has no attention; train it with trunk=attention")
    inputs = tf.keras.Model(model.input, encoder.input)

    @tf.function(input_signature=[dataset.element_spec[0]], autograph=False)
    def weights_of(features: Any) -> Any:
        weights = encoder.attention_weights(inputs(features, training=False), features[MASK])
        return tf.reduce_mean(tf.cast(weights, tf.float32), axis=[1, 2])

    for features, *_ in dataset:
        arrays = {name: value.numpy() for name, value in features.items()}
        yield Attended(arrays, weights_of(features).numpy().astype(np.float64))


def gather_maps(
    batches: Iterable[Attended], groupings: Mapping[str, Grouping]
) -> tuple[int, dict[str, AttentionMap]]:
    """The number of lists, and one map per grouping.

    The attention of an item to itself counts in the map of positions only; in the others it would
    move the weight to the diagonal.
    """
    maps = {
        name: AttentionMap(grouping.labels, with_itself=name == POSITIONS)
        for name, grouping in groupings.items()
    }
    lists = 0
    for features, weights in batches:
        sizes = features[MASK].sum(axis=1)
        lists += int((sizes > 0).sum())
        for name, grouping in groupings.items():
            maps[name].add(weights, grouping(features), sizes)
    return lists, maps
