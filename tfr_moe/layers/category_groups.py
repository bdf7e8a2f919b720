"""Groups of categories: domains of PLE and STAR, or tasks of a model with a tower per group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import Configured
from tfr_moe.layers.distribute import seed_of_replica


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class CategoryGroups(Configured, tf.keras.layers.Layer):
    """Maps the category of each list to the number of its group.

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
