"""What all scorers share: a schema's features become X, and a model comes out of TFR's builder."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf, tfr
from tfr_moe.layers.attention import SelfAttentionEncoder
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.schema import MASK, FeatureSchema, FeatureTables

TRUNK = "trunk"
"""The name of the encoder's layer in a model that has one."""


class FeatureScorer(tfr.keras.model.Scorer, metaclass=abc.ABCMeta):
    """A TFR scorer over raw features: encodes them by the schema, then scores.

    Subclasses implement `score`. A scorer holds no variables; each call makes new layers, as TFR's
    model builder wants it under a distribution strategy.

    Args:
        schema: the schema of the data.
        tables: statistics and vocabularies of its training split.
        embedding_dim: width of embeddings that the schema gives no width.
        embedding_l2: see `FeatureEncoder`.
        expert_hidden_dims: widths of the tower's hidden layers.
        activation: of the towers.
        dropout: of the towers.
        seed: seed of every initialiser and every draw; None for a new one each time.
        num_outputs: logits for each item, such as one for each grade (`tfr_moe.levels`).
        trunk: arguments of a `SelfAttentionEncoder` that the items pass first, so that what follows sees
            each item in the context of its list; None for none.
        ignored_features: features that the items' vectors leave out, for ablations.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        embedding_dim: int = 16,
        embedding_l2: float = 0.0,
        expert_hidden_dims: tuple[int, ...] = (1024, 512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        trunk: Mapping[str, Any] | None = None,
        ignored_features: Sequence[str] = (),
    ):
        self.schema = schema
        self.tables = tables
        self.embedding_dim = embedding_dim
        self.embedding_l2 = embedding_l2
        self.expert_hidden_dims = tuple(expert_hidden_dims)
        self.activation = activation
        self.dropout = dropout
        self.seed = seed
        self.num_outputs = num_outputs
        self.trunk = None if trunk is None else dict(trunk)
        self.ignored_features = tuple(ignored_features)
        for name in self.ignored_features:
            schema.feature(name)

    @abc.abstractmethod
    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """Encoded features and mask [B, L] -> logits [B, L], with several outputs [B, L, num_outputs]."""

    def of_lists(self, context_features: Mapping[str, Any]) -> dict[str, Any]:
        """What `score` needs of the lists beside their blocks of X, [B, ...] by name, from raw features."""
        return {}

    def left_out(self) -> tuple[str, ...]:
        """The features that are not part of X."""
        return self.ignored_features

    def __call__(
        self, context_features: Mapping[str, Any], example_features: Mapping[str, Any], mask: Any
    ) -> Any:
        """Raw features, as `schema.feature_spec` parses them, and mask [B, L] -> logits [B, L]."""
        encoder = FeatureEncoder(
            self.schema,
            self.tables.statistics,
            self.tables.vocabularies,
            self.embedding_dim,
            self.embedding_l2,
            self.seed,
            self.left_out(),
            name="features",
        )
        features = encoder(context_features, example_features, mask)
        items, width = features.items, encoder.output_width()
        if self.trunk is not None:
            trunk = SelfAttentionEncoder(**{"seed": self.seed, **self.trunk}, name=TRUNK)
            items = trunk(items, mask=mask)
            width = items.shape[-1]
        context = {**features.context, **self.of_lists(context_features)}
        return self.score(EncodedFeatures(items, context), mask, width)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            "schema": self.schema.model_dump(mode="json", exclude_defaults=True),
            "tables": {
                "statistics": self.tables.statistics,
                "vocabularies": dict(self.tables.vocabularies),
            },
            "embedding_dim": self.embedding_dim,
            "embedding_l2": self.embedding_l2,
            "expert_hidden_dims": list(self.expert_hidden_dims),
            "activation": self.activation,
            "dropout": self.dropout,
            "seed": self.seed,
            "num_outputs": self.num_outputs,
            "trunk": self.trunk,
            "ignored_features": list(self.ignored_features),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FeatureScorer:
        """The inverse of `get_config`."""
        arguments = dict(config)
        arguments["schema"] = FeatureSchema.model_validate(arguments["schema"])
        arguments["tables"] = FeatureTables(**arguments["tables"])
        return cls(**arguments)

    def model_builder(self, name: str | None = None) -> Any:
        """A `tfr.keras.model.ModelBuilder` of this scorer, ready for TFR's pipelines."""
        return tfr.keras.model.ModelBuilder(
            input_creator=tfr.keras.model.FeatureSpecInputCreator(
                self.schema.feature_spec("context"), self.schema.feature_spec("example")
            ),
            preprocessor=tfr.keras.model.PreprocessorWithSpec(),
            scorer=self,
            mask_feature_name=MASK,
            name=name,
        )

    def build_model(self, name: str | None = None) -> tf.keras.Model:
        """The uncompiled Keras model: raw features and mask in, logits [B, L] out."""
        return self.model_builder(name).build()
