"""The multi-domain models: a list is scored by weights of its domain and by shared ones."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.categories import UnknownDomains
from tfr_moe.layers.features import EncodedFeatures, id_lookup
from tfr_moe.layers.ple import ProgressiveExtraction
from tfr_moe.layers.star import StarTopology
from tfr_moe.scorers.base import FeatureScorer, Scores


@dataclass(eq=False, kw_only=True)
class DomainScorer(FeatureScorer, metaclass=abc.ABCMeta):
    """A scorer whose lists belong to domains: their top categories, 0 for unknown ones.

    Args are those of `FeatureScorer`, and:

    Args:
        unknown_share: share of the training lists that count as domain 0, see `UnknownDomains`.

    Raises:
        UserError: if the schema has no hierarchy whose parent category has a vocabulary.
    """

    unknown_share: float = 0.05

    def __post_init__(self) -> None:
        """Checks the arguments against the schema."""
        super().__post_init__()
        tree = self.schema.hierarchy
        if tree is None or not self.schema.feature(tree.parent).has_vocabulary:
            raise UserError(
                "schema: domains need `hierarchy`, whose parent category is the domain of a list "
                "and has a vocabulary"
            )
        lookup = id_lookup(self.schema.feature(tree.parent), self.tables.vocabularies)
        self.num_domains = lookup.vocabulary_size()

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        network = self.network()
        unknown = UnknownDomains(self.unknown_share, self.seed, name="domains")
        domains = unknown(tf.cast(features.categories[:, 0], tf.int32))
        return Scores.of_layer(network, network(features.items, domains, mask=mask))

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
        return ProgressiveExtraction(
            self.num_domains,
            self.expert_hidden_dims,
            **self.arguments(ProgressiveExtraction),
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
        return StarTopology(
            self.num_domains,
            self.expert_hidden_dims,
            **self.arguments(StarTopology),
            domain_dim=self.embedding_dim,
            name="star",
        )
