"""Layers that read the category of a list: a linear score, and the unknown domain."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import where_valid
from tfr_moe.layers.distribute import seed_of_replica


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryHead(ConfiguredLayer):
    r"""A linear score of items, with weights of the category of their list, beside any model.

    $$ y = x^\top (w_{tc} + w_{sc}) $$

    All weights start at 0, and w_tc learns from the lists of all its sub-categories: one with few
    lists stays near its parent, an unknown one has the parent's weights.

    Args:
        num_parents: number of parent categories, unknown ones (0) included.
        num_children: the same of child categories.

    Raises:
        ValueError: for inputs or IDs of the wrong shape.

    Example:
        >>> head = CategoryHead(num_parents=3, num_children=9)
        >>> head(tf.ones([2, 5, 4]), tf.constant([[1, 3], [2, 8]])).shape
        TensorShape([2, 5])
    """

    def __init__(self, num_parents: int, num_children: int, num_outputs: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def build(self, input_shape: Any) -> None:
        """Creates a table of weights for the parents and one for the children."""
        width = int(input_shape[-1]) * self.num_outputs
        self.tables = [
            tf.keras.layers.Embedding(
                size, width, embeddings_initializer="zeros", name=name, dtype=self.dtype_policy
            )
            for name, size in (("parents", self.num_parents), ("children", self.num_children))
        ]
        for table in self.tables:
            with tf.name_scope(table.name):
                table.build(None)
        super().build(input_shape)

    def call(
        self,
        inputs: tf.Tensor,
        categories: tf.Tensor,
        mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Scores the valid items of each list -> float32 [B, L], 0 at padded items.

        Several outputs are the last axis. Inputs are [B, L, n], categories integers [B, 2], the
        parent and the child category of each list, and the mask bool [B, L].
        """
        mask = valid_items(inputs, mask)
        check_argument("categories", categories, "integers", [inputs.shape[0], 2])
        weights = tf.add_n([t(categories[:, level]) for level, t in enumerate(self.tables)])
        weights = tf.reshape(weights, [-1, inputs.shape[-1], self.num_outputs])
        # Values at padded positions must not affect logits or gradients.
        logits = tf.cast(tf.matmul(where_valid(inputs, mask), weights), tf.float32)
        return logits if self.num_outputs > 1 else tf.squeeze(logits, axis=-1)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class UnknownDomains(ConfiguredLayer):
    """Counts a random `share` of the lists, in [0, 1), as domain 0 in each step of training.

    Training may see no list of domain 0, that of unknown categories: it would learn nothing.
    """

    def __init__(self, share: float = 0.0, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def call(self, domains: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Domains of the lists, int [B] -> int [B]."""
        if not training or self.share == 0:
            return domains
        draw = tf.random.uniform(tf.shape(domains), seed=seed_of_replica(self.seed))
        return tf.where(draw < self.share, tf.zeros_like(domains), domains)
