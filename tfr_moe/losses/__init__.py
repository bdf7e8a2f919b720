"""Losses by name: those of the papers by their formulas, and TensorFlow Ranking's keys."""

from __future__ import annotations

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.losses.base import ItemLoss, ListLoss, Lists
from tfr_moe.losses.listwise import BinaryListNetLoss, ListMLELoss, ListNetLoss
from tfr_moe.losses.pairwise import LambdaRankLoss, NDCGLoss2PPLoss, RankNetLoss
from tfr_moe.losses.pointwise import OrdinalLoss, RMSELoss, SigmoidCrossEntropyLoss

LOSSES: dict[str, type] = {
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
"""The losses of this package by name."""
GRADED = ("rmse", "ordinal")
"""Losses that need the highest grade of the labels."""

__all__ = [
    "GRADED",
    "LOSSES",
    "BinaryListNetLoss",
    "ItemLoss",
    "LambdaRankLoss",
    "ListLoss",
    "ListMLELoss",
    "ListNetLoss",
    "Lists",
    "NDCGLoss2PPLoss",
    "OrdinalLoss",
    "RMSELoss",
    "RankNetLoss",
    "SigmoidCrossEntropyLoss",
    "get",
    "names",
]

# These average over padding, and over several outputs; losses of this package replace them.
_UNWANTED = ("sigmoid_cross_entropy_loss", "ordinal_loss")


def names() -> list[str]:
    """The names that `get` accepts: this package's, then TensorFlow Ranking's keys."""
    keys = tfr.keras.losses.RankingLossKey.all_keys()
    return [*LOSSES, *sorted(key for key in keys if key not in _UNWANTED)]


def get(name: str, max_label: int | None = None) -> tf.keras.losses.Loss:
    """A new Keras loss by name, over labels [B, L] (negative: padding) and logits [B, L].

    Args:
        name: one of `names()`.
        max_label: the highest grade, needed by `rmse` and `ordinal`. The logits of `ordinal` are
            [B, L, max_label].

    Raises:
        UserError: for an unknown name, or without a `max_label` that is needed.

    Example:
        >>> get("listnet").name
        'listnet'
    """
    if name in LOSSES:
        graded = {"max_label": max_label} if name in GRADED else {}
        if graded and max_label is None:
            raise UserError(f"loss {name!r} needs max_label, the highest grade of the label")
        return LOSSES[name](name=name, **graded)
    if name not in names():
        raise UserError(f"loss {name!r} is unknown; allowed: {', '.join(names())}")
    return tfr.keras.losses.get(name, name=name)


def __dir__() -> list[str]:
    return __all__


def summaries() -> dict[str, str]:
    """What each loss is, in a line, by the names of `names()`."""
    lines = {name: _first_line(loss) for name, loss in LOSSES.items()}
    for name in names():
        if name not in lines:
            lines[name] = f"TensorFlow Ranking: {_first_line(type(tfr.keras.losses.get(name)))}"
    return lines


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0].rstrip(".")
