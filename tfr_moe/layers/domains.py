"""Which domain a list belongs to, where domains are top categories or groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.reduction import seed_of_replica


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class DomainOfCategory(tf.keras.layers.Layer):
    """The number of the domain of each list, by the name of its category.

    Group i of the categories is domain i + 1. Domain 0 is that of all other names, of which training may
    see none; so that it learns something to serve, a share of the lists counts as such in training. They
    are drawn anew in each step.

    Args:
        groups: of each domain the names of its categories.
        unknown_share: share of the lists that are of domain 0 in training, whatever their category.
        seed: seed of the draw.

    Raises:
        ValueError: for a name that stands twice, or a share that is not in [0, 1).

    Example:
        >>> layer = DomainOfCategory([["toys"], ["books", "food"]])
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
        if not 0 <= unknown_share < 1:
            raise ValueError(
                f"unknown_share must be in [0, 1). Received: unknown_share={unknown_share}"
            )
        self.groups = [list(group) for group in groups]
        self.unknown_share = unknown_share
        self.seed = seed
        names = [name for group in self.groups for name in group]
        if len(set(names)) < len(names):
            raise ValueError(f"groups must name each category once. Received: groups={groups}")
        # A lookup needs an entry; a blank can't occur, since values are stripped.
        self.lookup = tf.keras.layers.StringLookup(vocabulary=names or [" "], name="names")

    def call(self, categories: Any, training: bool = False) -> Any:
        """Names, string [B, 1] -> domains, int32 [B]."""
        places = [n for n, group in enumerate(self.groups, start=1) for _ in group] or [0]
        domains = tf.gather(tf.constant([0, *places]), self.lookup(categories[:, 0]))
        if not training or self.unknown_share == 0:
            return domains
        draw = tf.random.uniform(tf.shape(domains), seed=seed_of_replica(self.seed))
        return tf.where(draw < self.unknown_share, 0, domains)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "groups": [list(group) for group in self.groups],
            "unknown_share": self.unknown_share,
            "seed": self.seed,
        }
