"""Re-rankers, which read the items in the order of the initial list: PRM and DLCM.

The initial list is the order of the items in a record or a request; built data sets have them by
their displayed position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.dlcm import DeepListwiseContext
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.outputs import ListLogProbability
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers.base import FeatureScorer, Scores


def check_vector(schema: FeatureSchema, name: str) -> None:
    """Checks that the schema has the feature that holds the personalized vectors.

    Raises:
        UserError: if it has not; the message lists the numeric features of the items.
    """
    known = [feature.name for feature in schema.select("example", "numeric")]
    if name not in known:
        raise UserError(
            f"personal_vector: {name!r} is not a numeric feature of the items (available: "
            f"{', '.join(known) or 'none'}); join the vectors of a click_model first"
        )


class PRMScorer(FeatureScorer):
    r"""`prm_base` and `prm_personalized`: the Personalized Re-ranking Model (Pei et al. 2019).

    $$ E = ([x_i; pv_i] + pe_i) W^E + b^E, \qquad
       Score(i) = \text{softmax}(F^{(N_x)} W^F + b^F)_i $$

    (eqs. 3 to 5 and 8, https://arxiv.org/abs/1904.06813), F being the output of N_x encoder blocks
    whose heads are as wide as the encoder (eq. 7). The scores are log Score(i), see
    `ListLogProbability`. Several outputs, one per grade, are logits that are not normalized over
    the list.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        personalized: whether the model reads the personalized vectors pv; PRM-BASE, without them,
            leaves them out of X where the data has them.
        personal_vector: the feature that holds them.
        trunk: arguments of the encoder; positions have learned embeddings by default.
        **kwargs: see `FeatureScorer`.

    Raises:
        UserError: if `personalized` and `personal_vector` is not a numeric feature of the items.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        personalized: bool = False,
        personal_vector: str = "personal_vector",
        trunk: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        encoder = {"dim": 64, "num_heads": 1, "positional_encoding": "learned", **(trunk or {})}
        encoder |= {"head_dim": encoder["dim"], "encode_inputs": True}
        super().__init__(schema, tables, *args, **{**kwargs, "trunk": encoder})
        self.personalized = personalized
        self.personal_vector = personal_vector
        if personalized:
            check_vector(schema, personal_vector)

    def left_out(self) -> tuple[str, ...]:
        """See `FeatureScorer`."""
        known = {feature.name for feature in self.schema.features}
        vector = () if self.personalized else {self.personal_vector} & known
        return (*super().left_out(), *vector)

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`."""
        initializer = tf.keras.initializers.GlorotUniform(self.seed)
        output = tf.keras.layers.Dense(
            self.num_outputs, kernel_initializer=initializer, name="output", dtype="float32"
        )
        logits = output(features.items)
        if self.num_outputs > 1:
            return Scores(tf.where(tf.expand_dims(mask, -1), logits, 0.0))
        logits = tf.squeeze(logits, axis=-1)
        probability = ListLogProbability(name="probability", dtype="float32")
        return Scores(probability(logits, mask=mask))


class DLCMScorer(FeatureScorer):
    """`dlcm`: see `DeepListwiseContext`; `expert_hidden_dims` are those of its ELU layers.

    Args:
        schema: see `FeatureScorer`.
        tables: see `FeatureScorer`.
        state_dim: see `DeepListwiseContext`.
        num_comparisons: see `DeepListwiseContext`.
        **kwargs: see `FeatureScorer`.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        tables: FeatureTables,
        *args: Any,
        state_dim: int = 64,
        num_comparisons: int = 8,
        **kwargs: Any,
    ):
        super().__init__(schema, tables, *args, **kwargs)
        self.state_dim = state_dim
        self.num_comparisons = num_comparisons

    def score(self, features: EncodedFeatures, mask: tf.Tensor, input_width: int) -> Scores:
        """See `FeatureScorer`."""
        dlcm = DeepListwiseContext(
            self.expert_hidden_dims,
            self.state_dim,
            self.num_comparisons,
            self.dropout,
            self.seed,
            self.num_outputs,
            name="dlcm",
        )
        return Scores(dlcm(features.items, mask=mask))
