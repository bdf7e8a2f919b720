"""By the category of a list: a linear score beside any model, and the number of its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.checks import check_ids, check_items, full_mask
from tfr_moe.layers.distribute import seed_of_replica


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryHead(Configured, tf.keras.layers.Layer):
    r"""A linear score of items, with weights of the category of their list, beside any model.

    $$ y = x^\top (w_{tc} + w_{sc}) $$

    All weights start at 0, and w_tc learns from the lists of all its sub-categories: one with few
    lists stays near its parent, an unknown one has the parent's weights. Added to the logit of a
    tower or a mixture, it learns what a category weighs differently; an item costs n
    multiply-adds.

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
        check_items(inputs, mask)
        check_ids("categories", categories, inputs, by_list=False)
        weights = tf.add_n([t(categories[:, level]) for level, t in enumerate(self.tables)])
        weights = tf.reshape(weights, [-1, inputs.shape[-1], self.num_outputs])
        # What stands at padded places must reach neither the logits nor a gradient.
        valid = tf.where(full_mask(inputs, mask)[..., tf.newaxis], inputs, 0.0)
        logits = tf.cast(tf.matmul(valid, weights), tf.float32)
        return logits if self.num_outputs > 1 else tf.squeeze(logits, axis=-1)


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryGroups(Configured, tf.keras.layers.Layer):
    """Maps the category of each list to the number of its group, which is a domain or a task.

    Entry i of `groups` is group i + 1. Group 0 holds all other names. Training may see none of
    those, so that group 0 would learn nothing; with `unknown_share` a random share of the lists
    counts as group 0 in training, drawn again in each step.

    Args:
        unknown_share: share of the lists that are of group 0 in training, whatever their category.

    Raises:
        ValueError: for a name that occurs twice, or a share outside [0, 1).

    Example:
        >>> layer = CategoryGroups([["toys"], ["books", "food"]])
        >>> layer(tf.constant([["food"], ["toys"], ["never seen"]])).numpy().tolist()
        [2, 1, 0]
    """

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        unknown_share: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        if not 0 <= unknown_share < 1:
            raise ValueError(
                f"unknown_share must be in [0, 1). Received: unknown_share={unknown_share}"
            )
        names = [name for group in self.groups for name in group]
        if len(set(names)) < len(names):
            raise ValueError(f"groups must name each category once. Received: groups={groups}")
        # A lookup needs an entry; a blank can't occur, since values are stripped.
        self.lookup = tf.keras.layers.StringLookup(vocabulary=names or [" "], name="names")

    def call(self, categories: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Names, string [B, 1] -> numbers of the groups, int32 [B]."""
        of_names = [n for n, group in enumerate(self.groups, start=1) for _ in group] or [0]
        groups = tf.gather(tf.constant([0, *of_names]), self.lookup(categories[:, 0]))
        if not training or self.unknown_share == 0:
            return groups
        draw = tf.random.uniform(tf.shape(groups), seed=seed_of_replica(self.seed))
        return tf.where(draw < self.unknown_share, 0, groups)
