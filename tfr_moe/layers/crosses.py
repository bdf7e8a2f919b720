"""Crossed ids as a linear model sees them: the wide part of Wide & Deep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf

_PRIME = 1_000_003


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CrossedWeights(tf.keras.layers.Layer):
    r"""A weight for each pair of ids that occur together.

    $$ y = \sum_{(a, b)} \sum_{u \in x_a, v \in x_b} w_{h(u, v)} $$

    over the pairs of features (a, b): the cross-product transformations of Cheng et al. 2016, "Wide & Deep
    Learning for Recommender Systems". h hashes a pair of ids into the buckets of its pair of features;
    an empty id crosses with nothing.

    Args:
        crosses: pairs of feature names.
        num_buckets: buckets for each pair of features.
        seed: seed of the weights' initialisation.

    Raises:
        ValueError: for no pair.

    Example:
        >>> wide = CrossedWeights([["segment", "brand"]], num_buckets=100)
        >>> ids = {"segment": tf.constant([["young"]]), "brand": tf.constant([[["a"], ["b"]]])}
        >>> wide(ids, mask=tf.constant([[True, True]])).shape
        TensorShape([1, 2])
    """

    def __init__(
        self,
        crosses: Sequence[Sequence[str]],
        num_buckets: int = 10_000,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not crosses:
            raise ValueError("crosses must name a pair of features. Received: crosses=()")
        self.crosses = tuple((first, second) for first, second in crosses)
        self.num_buckets = num_buckets
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Creates the weights [crosses, num_buckets]."""
        self.crossed = self.add_weight(
            "crossed",
            [len(self.crosses), self.num_buckets],
            initializer=tf.keras.initializers.RandomUniform(-0.05, 0.05, seed=self.seed),
        )
        super().build(input_shape)

    def call(self, features: Mapping[str, Any], mask: Any) -> Any:
        """Sums up the weights of the pairs that there are.

        Args:
            features: ids by feature, strings [B, m] of the list or [B, L, m] of the items.
            mask: bool [B, L].

        Returns:
            float32 [B, L], 0 at padded items.
        """
        total = tf.zeros(tf.shape(mask), tf.float32)
        for number, pair in enumerate(self.crosses):
            first, second = (self._of_items(features[name]) for name in pair)
            left = tf.strings.to_hash_bucket_fast(first, 2**31 - 1)[..., :, tf.newaxis]
            right = tf.strings.to_hash_bucket_fast(second, 2**31 - 1)[..., tf.newaxis, :]
            buckets = tf.math.floormod(left * _PRIME + right, self.num_buckets)
            weights = tf.cast(tf.gather(self.crossed[number], buckets), tf.float32)
            there = _there(first)[..., :, tf.newaxis] & _there(second)[..., tf.newaxis, :]
            total += tf.reduce_sum(tf.where(there, weights, 0.0), axis=[-2, -1])
        return tf.where(mask, total, 0.0)

    @staticmethod
    def _of_items(ids: Any) -> Any:
        return ids if len(ids.shape) == 3 else ids[:, tf.newaxis, :]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "crosses": [list(pair) for pair in self.crosses],
            "num_buckets": self.num_buckets,
            "seed": self.seed,
        }


def _there(ids: Any) -> Any:
    return tf.strings.length(ids) > 0
