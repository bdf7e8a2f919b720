"""The multi-domain models: a list is scored by weights of its domain and by shared ones."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.categories import CategoryGroups
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.ple import ProgressiveExtraction
from tfr_moe.layers.star import StarTopology
from tfr_moe.scorers.base import FeatureScorer, Scores
from tfr_moe.scorers.multitask import groups_of_categories, top_categories

_DOMAIN = "domain of the list"


@dataclass(eq=False, kw_only=True)
class DomainScorer(FeatureScorer, metaclass=abc.ABCMeta):
    """A scorer whose lists belong to domains: top categories, or groups of them.

    Domain 0 holds the categories that are neither in the vocabulary nor in a group. Args are those
    of `FeatureScorer`, `unknown_share` of `CategoryGroups`, and:

    Args:
        category_groups: the groups or their number, see `groups_of_categories`; None makes each top
            category a domain.

    Raises:
        UserError: if the schema has no hierarchy, or for groups that `groups_of_categories`
            rejects.
    """

    category_groups: int | Sequence[Sequence[str]] | None = None
    unknown_share: float = 0.05

    def __post_init__(self) -> None:
        """Checks the arguments against the schema."""
        super().__post_init__()
        if self.schema.hierarchy is None:
            raise UserError(
                "schema: domains need `hierarchy`, whose parent category is the domain of a list"
            )
        self.parent, names = top_categories(self.schema, self.tables)
        groups: Any = [(name,) for name in names]
        if self.category_groups is not None:
            groups = groups_of_categories(self.category_groups, self.schema, self.tables)
        self.category_groups = self._groups = tuple(groups)

    @property
    def num_domains(self) -> int:
        """Number of domains, including that of unknown categories."""
        return len(self._groups) + 1

    def of_lists(self, context_features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the numbers of the domains."""
        layer = CategoryGroups(self._groups, self.unknown_share, self.seed, name="domains")
        return {_DOMAIN: layer(context_features[self.parent])}

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`."""
        network = self.network()
        outputs = network(features.items, features.context[_DOMAIN], mask=mask)
        return Scores.of_layer(outputs, getattr(network, "num_experts", 0))

    @abc.abstractmethod
    def network(self) -> tf.keras.layers.Layer:
        """A new layer: vectors, domains and mask -> logits, or a dict of logits and routing."""


@dataclass(eq=False, kw_only=True)
class PLEScorer(DomainScorer):
    """`ple`: progressive layered extraction, see `ProgressiveExtraction`.

    Args are those of `DomainScorer` and of that layer.
    """

    tower_hidden_dims: tuple[int, ...] = (64,)
    num_levels: int = 2
    num_domain_experts: int = 1
    num_shared_experts: int = 2

    def network(self) -> ProgressiveExtraction:
        """See `DomainScorer`."""
        own = ("tower_hidden_dims", "num_levels", "num_domain_experts", "num_shared_experts")
        return ProgressiveExtraction(
            self.num_domains,
            self.expert_hidden_dims,
            **self.arguments(*own, "activation", "dropout", "seed", "num_outputs"),
            name="ple",
        )


@dataclass(eq=False, kw_only=True)
class StarScorer(DomainScorer):
    """`star`: the star topology adaptive recommender, see `StarTopology`.

    Args are those of `DomainScorer` and of that layer.
    """

    auxiliary_hidden_dims: tuple[int, ...] = (64,)
    domain_norm: bool = True

    def network(self) -> StarTopology:
        """See `DomainScorer`."""
        own = ("auxiliary_hidden_dims", "domain_norm")
        return StarTopology(
            self.num_domains,
            self.expert_hidden_dims,
            **self.arguments(*own, "activation", "dropout", "seed", "num_outputs"),
            domain_dim=self.embedding_dim,
            name="star",
        )
