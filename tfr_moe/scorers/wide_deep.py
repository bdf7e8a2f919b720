"""Pointwise models before a re-ranker: Wide & Deep, and the click model behind PRM's vectors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.crossed_weights import CrossedWeights
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.tower import ItemTower
from tfr_moe.schema import FeatureSchema, FeatureTables, Kind
from tfr_moe.scorers.base import FeatureScorer, Scores, find_layer
from tfr_moe.scorers.tower import TowerScorer

VECTORS = "vectors"
"""Name of the layer whose outputs are the personalized vectors of the items."""


def default_crosses(schema: FeatureSchema) -> tuple[tuple[str, str], ...]:
    """All pairs of a categorical feature of the list and one of the items.

    Example:
        >>> ids = [
        ...     {"name": "user", "scope": "context", "kind": "categorical"},
        ...     {"name": "brand", "scope": "example", "kind": "categorical"},
        ... ]
        >>> default_crosses(FeatureSchema(list_id="query", labels=["click"], features=ids))
        (('user', 'brand'),)
    """
    kinds: tuple[Kind, ...] = ("categorical", "categorical_list")
    of_list = [feature.name for feature in schema.select("context", *kinds)]
    of_items = [feature.name for feature in schema.select("example", *kinds)]
    return tuple(itertools.product(of_list, of_items))


class WideDeepScorer(TowerScorer):
    r"""`wide_deep`: the sum of a linear model and a tower, trained jointly.

    $$ \hat{y} = w^T [x, \phi(x)] + E(X) + b $$

    x has a weight for each id and each numeric, phi(x) one for each pair of ids that occur together
    (see `CrossedWeights`), and E is the tower of `dnn`. With several outputs, one per grade, the
    linear model adds the same value to all of them.

    Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems",
    https://arxiv.org/abs/1606.07792.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        wide_crosses: pairs of features whose ids are crossed; None takes `default_crosses`, an
            empty sequence leaves out phi.
        cross_buckets: see `CrossedWeights`.
        **kwargs: see `TowerScorer`.

    Raises:
        UserError: if a feature of `wide_crosses` is not categorical.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        wide_crosses: Sequence[Sequence[str]] | None = None,
        cross_buckets: int = 10_000,
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        crosses = default_crosses(schema) if wide_crosses is None else wide_crosses
        self.wide_crosses = tuple((first, second) for first, second in crosses)
        self.cross_buckets = cross_buckets
        known = [feature.name for feature in schema.features if feature.kind != "numeric"]
        for name in itertools.chain(*self.wide_crosses):
            if name not in known:
                raise UserError(
                    f"wide_crosses: {name!r} is not a categorical feature; "
                    f"available: {', '.join(known) or 'none'}"
                )

    def __call__(
        self,
        context_features: Mapping[str, tf.Tensor],
        example_features: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """Raw features and mask [B, L] -> logits [B, L] or [B, L, num_outputs]."""
        raw = {**context_features, **example_features}
        logits = super().__call__(context_features, example_features, mask)
        # Embeddings of width 1 are weights of ids.
        narrow = self.schema.model_copy(
            update={
                "features": tuple(
                    f if f.kind == "numeric" else f.model_copy(update={"embedding_dim": 1})
                    for f in self.schema.features
                )
            }
        )
        weights = self.encoder(narrow, embedding_dim=1, name="wide_features")
        wide = weights(context_features, example_features, mask)
        linear = ItemTower([], seed=self.seed, name="wide")(wide.items, mask=mask)
        if self.wide_crosses:
            crossed = CrossedWeights(
                self.wide_crosses, self.cross_buckets, self.seed, name="crosses", dtype="float32"
            )
            ids = {name: raw[name] for name in itertools.chain(*self.wide_crosses)}
            linear += crossed(ids, mask=mask)
        return logits + (linear if self.num_outputs == 1 else tf.expand_dims(linear, -1))


class ClickModelScorer(FeatureScorer):
    r"""`click_model`: a pointwise model whose last hidden layer is PRM's personalized vector.

    $$ P(y_i | H_u, u) = \sigma(w^T pv_i + b), \qquad pv_i = a(W a(\dots X_i)) $$

    (Fig. 1c and eq. 10 of Pei et al. 2019, https://arxiv.org/abs/1904.06813): X_i holds the user's
    history H_u (ids of a `categorical_list`), the user's side information and the item's features;
    the vector has the width of the last of `expert_hidden_dims`. Train it with the loss
    `sigmoid_cross_entropy`.

    Args are those of `FeatureScorer`.

    Raises:
        UserError: if `expert_hidden_dims` is empty.
    """

    def __init__(self, schema: FeatureSchema, tables: FeatureTables, *args: Any, **kwargs: Any):
        super().__init__(schema, tables, *args, **kwargs)
        if not self.expert_hidden_dims:
            raise UserError("expert_hidden_dims: click_model needs a hidden layer for its vectors")

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`."""
        hidden = ExpertTowers(
            1,
            self.expert_hidden_dims,
            self.activation,
            self.dropout,
            self.seed,
            hidden_output=True,
            name=VECTORS,
        )
        vectors = tf.squeeze(hidden(features.items, mask=mask), axis=2)
        click = ItemTower([], seed=self.seed, num_outputs=self.num_outputs, name="click")
        return Scores(click(vectors, mask=mask))


def vector_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The model that returns the items' vectors in place of their scores.

    Args:
        model: a functional model of `FeatureScorer.build_model`.

    Returns:
        A model with the same inputs and variables that returns float32 [B, L, d], 0 at padded
        items; None if `model` is not a `click_model`.
    """
    hidden = find_layer(model, VECTORS)
    if hidden is None:
        return None
    return tf.keras.Model(model.input, tf.cast(tf.squeeze(hidden.output, axis=2), tf.float32))
