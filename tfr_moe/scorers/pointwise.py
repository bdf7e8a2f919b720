"""Scorers of single items that precede a re-ranker: Wide & Deep, and the click model behind PRM's vectors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.crosses import CrossedWeights
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.layers.tower import ItemTower
from tfr_moe.schema import FeatureSchema, Kind
from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.tower import TowerScorer

VECTORS = "vectors"
"""The name of the layer whose output are the items' personalised vectors."""


def default_crosses(schema: FeatureSchema) -> tuple[tuple[str, str], ...]:
    """Each id of the list with each id of the items.

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
    r"""`wide_deep`: a linear model and a tower, added up and trained together (Cheng et al. 2016).

    $$ \hat{y} = w^T [x, \phi(x)] + E(X) + b $$

    x has a weight for each id and each numeric, phi(x) one for each pair of ids that occur together
    (see `CrossedWeights`), and E is the tower of `dnn`. Of several outputs, one for each grade, the tower
    tells one from another, and the linear model moves all of them alike.

    Args:
        wide_crosses: pairs of features whose ids are crossed; None takes `default_crosses`, none of them
            leaves phi out.
        cross_buckets: see `CrossedWeights`.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: for a cross of what is no id.
    """

    def __init__(
        self,
        *args: Any,
        wide_crosses: Sequence[Sequence[str]] | None = None,
        cross_buckets: int = 10_000,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        crosses = default_crosses(self.schema) if wide_crosses is None else wide_crosses
        self.wide_crosses = tuple((first, second) for first, second in crosses)
        self.cross_buckets = cross_buckets
        known = [feature.name for feature in self.schema.features if feature.kind != "numeric"]
        for name in itertools.chain(*self.wide_crosses):
            if name not in known:
                there = ", ".join(known) or "none"
                raise UserError(f"wide_crosses: {name!r} is no id; there are: {there}")

    def __call__(
        self, context_features: Mapping[str, Any], example_features: Mapping[str, Any], mask: Any
    ) -> Any:
        """Raw features, as `schema.feature_spec` parses them, and mask [B, L] -> logits.

        They are [B, L], with several outputs [B, L, num_outputs].
        """
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
        weights = FeatureEncoder(
            narrow,
            self.tables.statistics,
            self.tables.vocabularies,
            1,
            self.embedding_l2,
            self.seed,
            self.left_out(),
            name="wide_features",
        )
        wide = weights(context_features, example_features, mask)
        linear = ItemTower([], seed=self.seed, name="wide")(wide.items, mask=mask)
        if self.wide_crosses:
            crossed = CrossedWeights(
                self.wide_crosses, self.cross_buckets, self.seed, name="crosses", dtype="float32"
            )
            ids = {name: raw[name] for name in itertools.chain(*self.wide_crosses)}
            linear += crossed(ids, mask=mask)
        return logits + (linear if self.num_outputs == 1 else tf.expand_dims(linear, -1))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "wide_crosses": [list(pair) for pair in self.wide_crosses],
            "cross_buckets": self.cross_buckets,
        }


class ClickModelScorer(FeatureScorer):
    r"""`click_model`: the pointwise model whose last hidden layer PRM takes for the personalised vector.

    $$ P(y_i | H_u, u) = \sigma(w^T pv_i + b), \qquad pv_i = a(W a(\dots X_i)) $$

    (Fig. 1c and eq. 10 of Pei et al. 2019): X_i holds the user's history H_u (ids of `categorical_list`s),
    the user's side information and the item's features; the vector is as wide as the last of
    `expert_hidden_dims`. Train it with the loss `sigmoid_cross_entropy`.

    Args are those of `FeatureScorer`.

    Raises:
        UserError: without a hidden layer.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if not self.expert_hidden_dims:
            raise UserError("expert_hidden_dims: click_model needs a hidden layer for its vectors")

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
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
        return click(vectors, mask=mask)


def vector_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The same model up to its items' vectors.

    Args:
        model: a functional model, such as `FeatureScorer.build_model` makes.

    Returns:
        A model over the same inputs and variables that gives float32 [B, L, d], 0 at padded items; None
        where there are no vectors.
    """
    if VECTORS not in [layer.name for layer in model.layers]:
        return None
    found = tf.squeeze(model.get_layer(VECTORS).output, axis=2)
    return tf.keras.Model(model.input, tf.cast(found, tf.float32))
