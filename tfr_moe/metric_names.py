"""The names of the ranking metrics, shared by the offline evaluation and the Keras metrics.

A name is a family and, where the family takes one, a cut-off: `session_auc`, `session_auc_10`,
`ndcg_10`, `mrr`, `map_10`, `precision_5`. There is no slash in a name, so that each can be a tuner's
objective. In `session_auc_k` and `ndcg_k` the cut-off takes the k positions *shown first*, as AUC@10
and NDCG@10 in Table III of Adv & HSC-MoE; in `ranked_ndcg_k`, `mrr_k`, `map_k` and `precision_k` it
takes the k items *ranked first* by the model. `prm_precision_k` and `prm_map_k` are eqs. 11 and 12 of
the PRM paper, `precision_k` and `map_k` those of TREC: see `tfr_moe.evaluation.per_list`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tfr_moe.errors import UserError

Cutoff = Literal["optional", "required"]

FAMILIES: dict[str, Cutoff] = {
    "session_auc": "optional",
    "ndcg": "optional",
    "ranked_ndcg": "required",
    "mrr": "optional",
    "map": "optional",
    "precision": "required",
    "prm_precision": "required",
    "prm_map": "required",
}
OVER_ALL_LISTS = ("prm_precision", "prm_map")
"""Families that judge every list; one with nothing relevant counts 0, whatever the policy."""

SHOWN_FAMILIES = ("session_auc", "ndcg")
DEFAULT_NAMES = ("session_auc", "session_auc_10", "ndcg", "ndcg_10", "mrr", "map_10", "precision_5")

_PATTERN = re.compile(r"([a-z_]+?)(?:_([1-9][0-9]*))?")


@dataclass(frozen=True)
class MetricName:
    """A parsed metric name.

    Attributes:
        family: the name without the cut-off.
        shown: only the so many positions shown first are judged; None judges all items.
        ranked: only the so many items ranked first count; None counts all ranks.
    """

    family: str
    shown: int | None = None
    ranked: int | None = None


def split(name: str) -> tuple[str, int | None]:
    """Splits a name into what stands before the cut-off and the cut-off: `hits_10` -> `hits`, 10."""
    match = _PATTERN.fullmatch(name)
    if match is None:
        return name, None
    return match[1], int(match[2]) if match[2] else None


def parse(name: str) -> MetricName | None:
    """Parses a name, or returns None where there is no such metric.

    Example:
        >>> parse("ndcg_10")
        MetricName(family='ndcg', shown=10, ranked=None)
        >>> parse("precision_5")
        MetricName(family='precision', shown=None, ranked=5)
        >>> parse("accuracy") is None
        True
    """
    family, cutoff = split(name)
    if family not in FAMILIES or (cutoff is None and FAMILIES[family] == "required"):
        return None
    if family in SHOWN_FAMILIES:
        return MetricName(family, shown=cutoff)
    return MetricName(family, ranked=cutoff)


def forms() -> list[str]:
    """What can be asked for, in the order of the families: `session_auc[_k]`, ..., `precision_k`."""
    return [
        f"{family}[_k]" if cutoff == "optional" else f"{family}_k"
        for family, cutoff in FAMILIES.items()
    ]


def unknown(name: str, extra: tuple[str, ...] = ()) -> UserError:
    """The error for a name that is no metric; it lists the forms there are."""
    allowed = ", ".join((*forms(), *extra))
    return UserError(
        f"metric {name!r}: unknown; there are {allowed}, where k is a whole number from 1 up"
    )
