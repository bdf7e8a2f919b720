"""The wide part of Wide & Deep: weights of pairs of IDs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer

_PRIME = 1_000_003


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CrossedWeights(ConfiguredLayer):
    r"""The wide part of Wide & Deep: a weight for each pair of IDs that occur together.

    $$ y = \sum_{(a, b)} \sum_{u \in x_a, v \in x_b} w_{h(u, v)} $$

    over the pairs of features (a, b) of `crosses`: the cross-product transformations of Cheng et
    al. 2016, "Wide & Deep Learning for Recommender Systems" (https://arxiv.org/abs/1606.07792). h
    hashes a pair of IDs into the `num_buckets` buckets of its pair of features; an empty ID counts
    as missing.

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
        kernel_initializer: Any = "uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        crosses = [(first, second) for first, second in crosses]
        self.keep(locals())

    def build(self, input_shape: Any) -> None:
        """Creates the weights [crosses, num_buckets]."""
        self.crossed = self.add_weight(
            "crossed",
            [len(self.crosses), self.num_buckets],
            initializer=seeded_initializer(self.kernel_initializer, self.seed),
            regularizer=self.kernel_regularizer,
        )
        super().build(input_shape)

    def call(self, features: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        """Sums up the weights of the pairs of IDs -> float32 [B, L], 0 outside of `mask`.

        `features` has string IDs by feature, [B, m] of the list or [B, L, m] of the items.
        """
        total = tf.zeros(tf.shape(mask), tf.float32)
        for number, pair in enumerate(self.crosses):
            ids = (features[name] for name in pair)
            # IDs of the list belong to each of its items.
            first, second = (i if len(i.shape) == 3 else i[:, tf.newaxis] for i in ids)
            left = tf.strings.to_hash_bucket_fast(first, 2**31 - 1)[..., :, tf.newaxis]
            right = tf.strings.to_hash_bucket_fast(second, 2**31 - 1)[..., tf.newaxis, :]
            buckets = tf.math.floormod(left * _PRIME + right, self.num_buckets)
            weights = tf.cast(tf.gather(self.crossed[number], buckets), tf.float32)
            present = first[..., :, tf.newaxis] != "", second[..., tf.newaxis, :] != ""
            total += tf.reduce_sum(tf.where(present[0] & present[1], weights, 0.0), axis=[-2, -1])
        return tf.where(mask, total, 0.0)
