"""Re-rankers, which read the items in the order of the initial list: PRM and DLCM.

The initial list is the order of the items in a record or a request; built data sets have them by
their displayed position.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.dlcm import DeepListwiseContext
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.outputs import log_softmax
from tfr_moe.scorers.base import FeatureScorer, Scores


@dataclass(eq=False, kw_only=True)
class PRMScorer(FeatureScorer):
    r"""`prm_base` and `prm_personalized`: the Personalized Re-ranking Model (Pei et al. 2019).

    $$ E = ([x_i; pv_i] + pe_i) W^E + b^E, \qquad
       Score(i) = \text{softmax}(F^{(N_x)} W^F + b^F)_i $$

    (eqs. 3 to 5 and 8, https://arxiv.org/abs/1904.06813), F being the output of N_x encoder blocks
    whose heads are as wide as the encoder (eq. 7). The scores are log Score(i): the order is the
    same, no probability underflows, and the loss of eq. 9, -sum_i y_i log P(y_i), is the softmax
    loss of these scores as of the logits.

    Args are those of `FeatureScorer`, with learned positions in `trunk` by default, and:

    Args:
        personalized: whether the model reads the personalized vectors pv; PRM-BASE, without them,
            leaves them out of X where the data has them.
        personal_vector: the feature that holds them.

    Raises:
        UserError: if `personalized` and `personal_vector` is not a numeric feature of the items.
    """

    personalized: bool = False
    personal_vector: str = "personal_vector"

    def __post_init__(self) -> None:
        """Completes `trunk`, and checks the arguments against the schema."""
        encoder = {
            "dim": 64,
            "num_heads": 1,
            "positional_encoding": "learned",
            **(self.trunk or {}),
        }
        self.trunk = {**encoder, "head_dim": encoder["dim"], "encode_inputs": True}
        super().__post_init__()
        known = [feature.name for feature in self.schema.select("example", "numeric")]
        if self.personalized and self.personal_vector not in known:
            raise UserError(
                f"personal_vector: {self.personal_vector!r} is not a numeric feature of the items "
                f"(available: {', '.join(known) or 'none'}); join the vectors of a click_model "
                "first"
            )

    def left_out(self) -> tuple[str, ...]:
        """See `FeatureScorer`."""
        known = {feature.name for feature in self.schema.features}
        vector = () if self.personalized else {self.personal_vector} & known
        return (*super().left_out(), *vector)

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        initializer = tf.keras.initializers.GlorotUniform(self.seed)
        output = tf.keras.layers.Dense(
            1, kernel_initializer=initializer, name="output", dtype="float32"
        )
        return Scores(log_softmax(tf.squeeze(output(features.items), axis=-1), mask))


@dataclass(eq=False, kw_only=True)
class DLCMScorer(FeatureScorer):
    """`dlcm`: see `DeepListwiseContext`; `expert_hidden_dims` are those of its ELU layers.

    Args are those of `FeatureScorer` and of that layer.
    """

    state_dim: int = 64
    num_comparisons: int = 8

    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """See `FeatureScorer`."""
        arguments = self.arguments(DeepListwiseContext)
        dlcm = DeepListwiseContext(self.expert_hidden_dims, **arguments, name="dlcm")
        return Scores(dlcm(features.items, mask=mask))
