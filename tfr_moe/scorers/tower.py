"""Towers over single items: dnn, wide_dnn, wide_deep, and the click model behind PRM's vectors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfr_moe._compat import tf
from tfr_moe.layers.crossed_weights import CrossedWeights
from tfr_moe.layers.experts import ExpertTowers, ItemTower
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.task_sharing import dims_of_budget
from tfr_moe.schema.feature import Kind
from tfr_moe.scorers.base import FeatureScorer, Scores, find_layer

VECTORS = "vectors"
"""Name of the layer whose outputs are the personalized vectors of the items."""


def tower_parameters(input_width: int, hidden_dims: Sequence[int]) -> int:
    """Number of weights and biases of one tower with a single output."""
    widths = [input_width, *hidden_dims, 1]
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


@dataclass(eq=False, kw_only=True)
class TowerScorer(FeatureScorer):
    """`dnn`: one tower over the input vector of each item.

    Args are those of `FeatureScorer`, and:

    Args:
        num_outputs: logits for each item, such as one per grade (`tfr_moe.layers.outputs`).
    """

    num_outputs: int = 1

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        dims = self.hidden_dims(features.items.shape[-1])
        tower = ItemTower(dims, **self.arguments(ItemTower), name="tower")
        return Scores(tower(features.items, mask=mask))

    def hidden_dims(self, input_width: int) -> tuple[int, ...]:
        """The widths of the hidden layers over an input of `input_width`."""
        return self.expert_hidden_dims


@dataclass(eq=False, kw_only=True)
class WideTowerScorer(TowerScorer):
    """`wide_dnn`: one tower with the active parameters of a mixture: K towers and its gate.

    It separates the gain of a mixture by capacity from its gain by gates.
    Args are those of `TowerScorer`, and:

    Args:
        num_experts: N of that mixture.
        top_k: K of that mixture, and 1 more for its shared expert.
    """

    num_experts: int = 20
    top_k: int = 3

    def hidden_dims(self, input_width: int) -> tuple[int, ...]:
        """The widened layers over an input of `input_width`."""
        count = functools.partial(tower_parameters, input_width)
        gate = self.embedding_dim * self.num_experts
        active = self.top_k * count(self.expert_hidden_dims) + gate
        return dims_of_budget(self.expert_hidden_dims, active, count)


@dataclass(eq=False, kw_only=True)
class WideDeepScorer(FeatureScorer):
    r"""`wide_deep`: the sum of a linear model and a tower, trained jointly.

    $$ \hat{y} = w^T [x, \phi(x)] + E(X) + b $$

    x has a weight for each id and each numeric, phi(x) one for each pair of an id of the list and
    an id of the item (see `CrossedWeights`), and E is the tower of `dnn`.

    Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems",
    https://arxiv.org/abs/1606.07792. Args are those of `FeatureScorer`, and:

    Args:
        cross_buckets: see `CrossedWeights`.
    """

    cross_buckets: int = 10_000

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`; the tower alone."""
        tower = ItemTower(self.expert_hidden_dims, **self.arguments(ItemTower), name="tower")
        return Scores(tower(features.items, mask=mask))

    def __call__(
        self,
        context_features: Mapping[str, tf.Tensor],
        example_features: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """Raw features and mask [B, L] -> logits [B, L]."""
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
        weights = self.encoder("wide_features", schema=narrow, embedding_dim=1)
        wide = weights(context_features, example_features, mask)
        linear = ItemTower([], seed=self.seed, name="wide")(wide.items, mask=mask)
        kinds: tuple[Kind, ...] = ("categorical", "categorical_list")
        of_list = [feature.name for feature in self.schema.select("context", *kinds)]
        of_items = [feature.name for feature in self.schema.select("example", *kinds)]
        if of_list and of_items:
            pairs = tuple(itertools.product(of_list, of_items))
            crossed = CrossedWeights(
                pairs, self.cross_buckets, self.seed, name="crosses", dtype="float32"
            )
            raw = {**context_features, **example_features}
            linear += crossed({name: raw[name] for name in (*of_list, *of_items)}, mask=mask)
        return logits + linear


class ClickModelScorer(FeatureScorer):
    r"""`click_model`: a pointwise model whose last hidden layer is PRM's personalized vector.

    $$ P(y_i | H_u, u) = \sigma(w^T pv_i + b), \qquad pv_i = a(W a(\dots X_i)) $$

    (Fig. 1c and eq. 10 of Pei et al. 2019, https://arxiv.org/abs/1904.06813): X_i holds the user's
    history H_u (ids of a `categorical_list`), the user's side information and the item's features;
    the vector has the width of the last of `expert_hidden_dims`. Train it with the loss
    `sigmoid_cross_entropy`.

    Args are those of `FeatureScorer`.
    """

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        hidden = ExpertTowers(
            1,
            self.expert_hidden_dims,
            **self.arguments(ExpertTowers),
            hidden_output=True,
            name=VECTORS,
        )
        vectors = tf.squeeze(hidden(features.items, mask=mask), axis=2)
        click = ItemTower([], seed=self.seed, name="click")
        return Scores(click(vectors, mask=mask))


def vector_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The model that returns the items' vectors in place of their scores.

    It has the inputs and variables of `model`, a functional model of `FeatureScorer.build_model`,
    and returns float32 [B, L, d], 0 at padded items; None if that is not a `click_model`.
    """
    hidden = find_layer(model, VECTORS)
    if hidden is None:
        return None
    return tf.keras.Model(model.input, tf.cast(tf.squeeze(hidden.output, axis=2), tf.float32))
