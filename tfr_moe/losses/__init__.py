"""Losses by name: those of the papers by their formulas, and TensorFlow Ranking's keys.

Ours have one rule for weights and for the mean (`tfr_moe.losses.mean`) and never see padding. A key of
TensorFlow Ranking gives its loss as it is, with its own mean over the places of a batch.
"""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tfr
from tfr_moe.errors import UserError
from tfr_moe.losses.listwise import BinaryListNetLoss, ListMLELoss, ListNetLoss
from tfr_moe.losses.pairwise import LambdaRankLoss, NDCGLoss2PPLoss, RankNetLoss
from tfr_moe.losses.pointwise import OrdinalLoss, RMSELoss, SigmoidCrossEntropyLoss

OWN: dict[str, type] = {
    "sigmoid_cross_entropy": SigmoidCrossEntropyLoss,
    "rmse": RMSELoss,
    "ordinal": OrdinalLoss,
    "ranknet": RankNetLoss,
    "lambdarank": LambdaRankLoss,
    "ndcg_loss_2pp": NDCGLoss2PPLoss,
    "listnet": ListNetLoss,
    "listnet_binary": BinaryListNetLoss,
    "listmle": ListMLELoss,
}
GRADED = ("rmse", "ordinal")
"""Losses that know the highest grade of the labels."""

# Averaged over padding, and with several outputs: ours are in their place.
_UNWANTED = ("sigmoid_cross_entropy_loss", "ordinal_loss")


def names() -> list[str]:
    """The names that `get` takes: ours, then the keys of the installed TensorFlow Ranking."""
    keys = tfr.keras.losses.RankingLossKey.all_keys()
    return [*OWN, *sorted(key for key in keys if key not in _UNWANTED)]


def get(name: str, max_label: int | None = None) -> Any:
    """A new Keras loss by name, over labels [B, L] (negative: padding) and logits [B, L].

    Args:
        name: one of `names()`.
        max_label: the highest grade, which `rmse` and `ordinal` need. The logits of `ordinal` are
            [B, L, max_label].

    Raises:
        UserError: for an unknown name, with those that there are, or without a `max_label` that is needed.
    """
    if name in OWN:
        graded = {"max_label": max_label} if name in GRADED else {}
        if graded and max_label is None:
            raise UserError(f"loss {name!r} needs max_label, the highest grade of the label")
        return OWN[name](name=name, **graded)
    if name not in names():
        raise UserError(f"loss {name!r} is unknown; there are: {', '.join(names())}")
    return tfr.keras.losses.get(name, name=name)
