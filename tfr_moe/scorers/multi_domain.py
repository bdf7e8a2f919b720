"""The multi-domain models: a list is scored by weights of its domain and by shared ones."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.category_groups import CategoryGroups
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.ple import ProgressiveExtraction
from tfr_moe.layers.star import StarTopology
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer, Scores
from tfr_moe.scorers.multitask import groups_of_categories, top_categories

_DOMAIN = "domain of the list"


class DomainScorer(FeatureScorer, metaclass=abc.ABCMeta):
    """A scorer whose lists belong to domains: top categories, or groups of them.

    Domain 0 holds the categories that are neither in the vocabulary nor in a group.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        category_groups: the groups or their number, see `groups_of_categories`; None makes each top
            category a domain.
        unknown_share: see `CategoryGroups`.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: if the schema has no hierarchy, or for groups that `groups_of_categories`
            rejects.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        category_groups: int | Sequence[Sequence[str]] | None = None,
        unknown_share: float = 0.05,
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        if schema.hierarchy is None:
            raise UserError(
                "schema: domains need `hierarchy`, whose parent category is the domain of a list"
            )
        self.parent, names = top_categories(schema, tables)
        self.category_groups: tuple[tuple[str, ...], ...] = tuple((name,) for name in names)
        if category_groups is not None:
            self.category_groups = groups_of_categories(category_groups, schema, tables)
        self.unknown_share = unknown_share

    @property
    def num_domains(self) -> int:
        """Number of domains, including that of unknown categories."""
        return len(self.category_groups) + 1

    def of_lists(self, context_features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the numbers of the domains."""
        layer = CategoryGroups(self.category_groups, self.unknown_share, self.seed, name="domains")
        return {_DOMAIN: layer(context_features[self.parent])}

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`."""
        network = self.network()
        outputs = network(features.items, features.context[_DOMAIN], mask=mask)
        return Scores.of_layer(outputs, getattr(network, "num_experts", 0))

    @abc.abstractmethod
    def network(self) -> tf.keras.layers.Layer:
        """A new layer: vectors, domains and mask -> logits, or a dict of logits and routing."""


class PLEScorer(DomainScorer):
    """`ple`: progressive layered extraction, see `ProgressiveExtraction`.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        tower_hidden_dims: hidden layers of each domain's tower, on top of `expert_hidden_dims`.
        num_levels: number of levels.
        num_domain_experts: experts of each domain in each level.
        num_shared_experts: shared experts in each level.
        **kwargs: see `DomainScorer`.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        tower_hidden_dims: tuple[int, ...] = (64,),
        num_levels: int = 2,
        num_domain_experts: int = 1,
        num_shared_experts: int = 2,
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        self.tower_hidden_dims = tuple(tower_hidden_dims)
        self.num_levels = num_levels
        self.num_domain_experts = num_domain_experts
        self.num_shared_experts = num_shared_experts

    def network(self) -> ProgressiveExtraction:
        """See `DomainScorer`."""
        return ProgressiveExtraction(
            self.num_domains,
            self.expert_hidden_dims,
            activation=self.activation,
            dropout=self.dropout,
            seed=self.seed,
            num_outputs=self.num_outputs,
            name="ple",
            tower_hidden_dims=self.tower_hidden_dims,
            num_levels=self.num_levels,
            num_domain_experts=self.num_domain_experts,
            num_shared_experts=self.num_shared_experts,
        )


class StarScorer(DomainScorer):
    """`star`: the star topology adaptive recommender, see `StarTopology`.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        auxiliary_hidden_dims: hidden layers of the auxiliary network.
        domain_norm: whether the items' vectors are normalized by domain.
        **kwargs: see `DomainScorer`.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        auxiliary_hidden_dims: tuple[int, ...] = (64,),
        domain_norm: bool = True,
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        self.auxiliary_hidden_dims = tuple(auxiliary_hidden_dims)
        self.domain_norm = domain_norm

    def network(self) -> StarTopology:
        """See `DomainScorer`."""
        return StarTopology(
            self.num_domains,
            self.expert_hidden_dims,
            self.activation,
            self.dropout,
            self.seed,
            self.num_outputs,
            self.auxiliary_hidden_dims,
            self.embedding_dim,
            self.domain_norm,
            name="star",
        )
