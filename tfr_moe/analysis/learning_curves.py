"""Learning curves of a run, with the regularizers as shares of their maximum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHARES = ("share of the maximum", "weight of the busiest experts")
"""The axes whose values are shares, 0 to 1."""
_GATES = {
    "entropy of the gate (nats)": "gate_entropy",
    "weight of the busiest experts": "busiest_share",
    "dead experts": "dead_experts",
}


@dataclass(frozen=True)
class Curve:
    """One quantity by epoch.

    Attributes:
        name: as in `history.json`, or `hsc_share` for HSC divided by its maximum.
        epochs: the epochs with a value.
        values: the values.
    """

    name: str
    epochs: list[int]
    values: list[float]


def hsc_maximum(top_k: int) -> float:
    r"""The largest value of HSC (eq. 10): 2 for K >= 2, 1 for K = 1.

    $$ \sum_{i \in U} (p_i - q_i)^2 \le \sum_i p_i^2 + \sum_i q_i^2 \le 2 $$

    with equality if each gate has all weight on one expert and the two experts differ. For K = 1
    only one of them is in U.

    Example:
        >>> hsc_maximum(4), hsc_maximum(1)
        (2.0, 1.0)
    """
    return float(min(top_k, 2))


def learning_curves(history: Sequence[Mapping[str, Any]], top_k: int) -> dict[str, list[Curve]]:
    """The curves of a run by the title of the axis that they share.

    Args:
        history: the content of `history.json`, one entry per epoch.
        top_k: K of the gate.
    """
    names = list(dict.fromkeys(name for entry in history for name in entry))

    def curve(name: str) -> Curve:
        points = {e["epoch"]: e[name] for e in history if math.isfinite(e.get(name, math.nan))}
        if name not in hsc:
            return Curve(name, list(points), list(points.values()))
        shares = [value / hsc_maximum(top_k) for value in points.values()]
        return Curve(name.replace("hsc", "hsc_share", 1), list(points), shares)

    hsc = [name for name in names if name == "hsc" or name.startswith("hsc_")]
    validation = [n for n in names if n.startswith("val_") and not n.endswith("loss")]
    groups: dict[str, list[str]] = {
        "loss": [n for n in ("loss", "val_loss") if n in names],
        "metric on validation lists": validation,
        "share of the maximum": [n for n in names if n in hsc or n.startswith("adversarial_share")],
        **{title: [n for n in names if n.startswith(part)] for title, part in _GATES.items()},
    }
    return {title: [curve(name) for name in group] for title, group in groups.items() if group}
