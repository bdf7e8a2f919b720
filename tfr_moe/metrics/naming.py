"""Names of the ranking metrics, shared by the Keras metrics and the offline evaluation.

A name is a family and, if the family has one, a cutoff k: `session_auc`, `ndcg_10`, `mrr`,
`map_10`, `precision_5`. Names have no slash, so that each can be the objective of a tuner. `_k`
keeps the k items *ranked first* by the model; `_shown_k` keeps the k positions *shown first* to the
user, as AUC@10 and NDCG@10 in Table III of Adv & HSC-MoE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tfr_moe.errors import UserError

OVER_ALL_LISTS = ("prm_precision", "prm_map", "ips_dcg")
"""Families defined on every list: 0 without a relevant item, whatever the policy."""

DEFAULT_NAMES = ("session_auc", "ndcg", "ndcg_10", "mrr", "map_10", "precision_5")

SUMMARIES: dict[str, str] = {
    "session_auc": "share of (relevant, irrelevant) pairs of a list in the right order",
    "session_auc_shown_k": "session AUC of the k positions shown first",
    "ndcg": "normalized discounted cumulative gain of the whole list",
    "ndcg_k": "NDCG of the k items ranked first against the best k of the list",
    "ndcg_shown_k": "NDCG of the k positions shown first, re-ranked",
    "mrr[_k]": "reciprocal rank of the first relevant item, 0 beyond rank k",
    "map[_k]": "average precision over the relevant items, 0 beyond rank k",
    "precision_k": "share of relevant items among the k ranked first",
    "prm_precision_k": "precision_k over all lists (PRM, eq. 11)",
    "prm_map_k": "average precision divided by k, over all lists (PRM, eq. 12)",
    "ips_dcg[_k]": "DCG of clicks weighted by inverse propensities, not normalized, over all lists",
}
"""Form of the name -> what it measures. A larger value is better."""

FORMS = frozenset(
    (form.replace("[_k]", "").removesuffix("_k"), has_cutoff)
    for form in SUMMARIES
    for has_cutoff in ((False, True) if "[_k]" in form else (form.endswith("_k"),))
)
"""Allowed names: a family, and whether a cutoff follows."""

_PATTERN = re.compile(r"([a-z_]+?)(?:_([1-9][0-9]*))?")


@dataclass(frozen=True)
class MetricName:
    """A parsed metric name: its family without the cutoff and without `_shown`, and the cutoff.

    It is the number of positions `shown` first that are evaluated, or of items `ranked` first that
    count; None for all.
    """

    family: str
    shown: int | None = None
    ranked: int | None = None


def parse(name: str) -> MetricName:
    """Parses a name; a `UserError` lists the allowed forms if there is no such metric."""
    match = _PATTERN.fullmatch(name)
    family, cutoff = match.groups() if match else (name, None)
    if (family, cutoff is not None) not in FORMS:
        raise UserError(
            f"metric {name!r} is unknown; allowed: {', '.join(SUMMARIES)}, "
            "where k is an integer >= 1"
        )
    count = None if cutoff is None else int(cutoff)
    if family.endswith("_shown"):
        return MetricName(family.removesuffix("_shown"), shown=count)
    return MetricName(family, ranked=count)


def undefined(name: str, needed: str, role: str) -> UserError:
    """The error for a metric on data without a column."""
    return UserError(f"metric {name!r} is undefined without {needed}: the schema has no `{role}`")


def check_columns(names: Iterable[str], position: str | None, weight: str | None) -> None:
    """Raises a `UserError` for a metric that is unknown, or needs a role that the schema lacks."""
    for name in names:
        parsed = parse(name)
        if parsed.shown is not None and position is None:
            raise undefined(name, "display positions", "position")
        if parsed.family == "ips_dcg" and weight is None:
            raise undefined(name, "weights of the items", "weight")
