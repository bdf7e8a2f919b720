"""Re-rankers, which read the items in the order of the initial list: PRM and DLCM.

The initial list is the order in which the items stand in a record or a request; `tfr-moe build` writes
them by their shown position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.features import EncodedFeatures
from tfr_moe.layers.listwise import ListLogProbability
from tfr_moe.layers.recurrent import DeepListwiseContext
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.base import FeatureScorer


def check_vector(schema: FeatureSchema, name: str) -> None:
    """Refuses a schema without the feature that holds the personalised vectors.

    Raises:
        UserError: naming the numerics of the items that there are.
    """
    known = [feature.name for feature in schema.select("example", "numeric")]
    if name not in known:
        raise UserError(
            f"personal_vector: {name!r} is no numeric feature of the items (there are: "
            f"{', '.join(known) or 'none'}); `tfr-moe join-vectors` puts vectors into a data set"
        )


class PRMScorer(FeatureScorer):
    r"""`prm_base` and `prm_personalized`: the Personalized Re-ranking Model (Pei et al. 2019).

    $$ E = ([x_i; pv_i] + pe_i) W^E + b^E, \qquad
       Score(i) = \text{softmax}(F^{(N_x)} W^F + b^F)_i $$

    (eqs. 3 to 5 and 8), F being the output of N_x encoder blocks whose h heads are each as wide as the
    encoder (eq. 7). The scores are log Score(i): see `ListLogProbability`. Several outputs for an item, one
    for each grade, are logits by themselves: nothing is normalised over the list.

    Args:
        personalized: whether the model reads the personalised vectors pv; without, it is PRM-BASE, which
            leaves them out of X where the data has them.
        personal_vector: the feature that holds them.
        **kwargs: see `FeatureScorer`; `trunk` holds settings of the encoder, of which learned position
            embeddings are the default.

    Raises:
        UserError: if `personalized` and the schema has no such numeric feature of the items.
    """

    def __init__(
        self,
        *args: Any,
        personalized: bool = False,
        personal_vector: str = "personal_vector",
        trunk: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        encoder = {"dim": 64, "num_heads": 1, "positional_encoding": "learned", **(trunk or {})}
        encoder |= {"head_dim": encoder["dim"], "encode_inputs": True}
        super().__init__(*args, **{**kwargs, "trunk": encoder})
        self.personalized = personalized
        self.personal_vector = personal_vector
        if personalized:
            check_vector(self.schema, personal_vector)

    def left_out(self) -> tuple[str, ...]:
        """See `FeatureScorer`."""
        known = {feature.name for feature in self.schema.features}
        own = () if self.personalized else {self.personal_vector} & known
        return (*super().left_out(), *own)

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """See `FeatureScorer`."""
        initializer = tf.keras.initializers.GlorotUniform(self.seed)
        output = tf.keras.layers.Dense(
            self.num_outputs, kernel_initializer=initializer, name="output", dtype="float32"
        )
        logits = output(features.items)
        if self.num_outputs > 1:
            return tf.where(tf.expand_dims(mask, -1), logits, 0.0)
        logits = tf.squeeze(logits, axis=-1)
        return ListLogProbability(name="probability", dtype="float32")(logits, mask=mask)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "personalized": self.personalized,
            "personal_vector": self.personal_vector,
        }


class DLCMScorer(FeatureScorer):
    """`dlcm`: see `DeepListwiseContext`; `expert_hidden_dims` are those of its ELU layers.

    Args:
        state_dim: see `DeepListwiseContext`.
        num_views: see `DeepListwiseContext`.
        **kwargs: see `FeatureScorer`.
    """

    def __init__(self, *args: Any, state_dim: int = 64, num_views: int = 8, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.state_dim = state_dim
        self.num_views = num_views

    def score(self, features: EncodedFeatures, mask: Any, input_width: int) -> Any:
        """See `FeatureScorer`."""
        dlcm = DeepListwiseContext(
            self.expert_hidden_dims,
            self.state_dim,
            self.num_views,
            self.dropout,
            self.seed,
            self.num_outputs,
            name="dlcm",
        )
        return dlcm(features.items, mask=mask)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "state_dim": self.state_dim,
            "num_views": self.num_views,
        }
