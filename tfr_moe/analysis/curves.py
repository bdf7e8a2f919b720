"""Learning curves of a run, with the regularisers as shares of their maximum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfr_moe.config import RunConfig


@dataclass(frozen=True)
class Curve:
    """One quantity by epoch.

    Attributes:
        name: as in `history.json`, or `hsc_share` for HSC over its maximum.
        epochs: the epochs in which it has a value.
        values: the values.
    """

    name: str
    epochs: list[int]
    values: list[float]


@dataclass(frozen=True)
class LearningCurves:
    """The history of a run.

    Attributes:
        best_epoch: the epoch whose weights are used.
        monitor: the metric that chose it.
        losses: on training and validation data.
        metrics: on validation data.
        shares: HSC and AdvLoss as shares of their maximum, 0 to 1.
        gates: entropy and `busiest_share` of each gate, and `dead_experts`.
    """

    best_epoch: int
    monitor: str
    losses: list[Curve]
    metrics: list[Curve]
    shares: list[Curve]
    gates: list[Curve]


def hsc_maximum(top_k: int) -> float:
    r"""The largest value of HSC (eq. 10): 2 for K >= 2, 1 for K = 1.

    $$ \sum_{i \in U} (p_i - q_i)^2 \le \sum_i p_i^2 + \sum_i q_i^2 \le 2 $$

    with equality as each gate puts all on an expert of its own, both of them in U. With K = 1 only one of
    the two is in U.

    Example:
        >>> hsc_maximum(4), hsc_maximum(1)
        (2.0, 1.0)
    """
    return float(min(top_k, 2))


def _curve(name: str, history: Sequence[Mapping[str, Any]], over: float = 1.0) -> Curve:
    found = [
        (entry["epoch"], entry[name] / over)
        for entry in history
        if name in entry and math.isfinite(entry[name])
    ]
    return Curve(name, [epoch for epoch, _ in found], [value for _, value in found])


def learning_curves(
    history: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any], config: RunConfig
) -> LearningCurves:
    """The curves of a run.

    Args:
        history: what `history.json` holds, an entry an epoch.
        metrics: what `metrics.json` holds.
        config: the run's settings.

    Returns:
        The curves; lists are empty where a model has nothing of the kind.
    """
    names = list(dict.fromkeys(name for entry in history for name in entry))
    losses = [n for n in ("loss", "val_loss") if n in names]
    judged = [n for n in names if n.startswith("val_") and not n.endswith("loss")]
    gates = [n for n in names if n.startswith(("gate_entropy", "busiest_share", "dead_experts"))]
    shares = []
    for name in names:
        if name.startswith("adversarial_share"):
            shares.append(_curve(name, history))
        elif name == "hsc" or name.startswith("hsc_"):
            scaled = _curve(name, history, hsc_maximum(config.top_k))
            shares.append(Curve(name.replace("hsc", "hsc_share", 1), scaled.epochs, scaled.values))
    return LearningCurves(
        best_epoch=int(metrics.get("best_epoch") or 0),
        monitor=str(metrics.get("monitor", "")),
        losses=[_curve(name, history) for name in losses],
        metrics=[_curve(name, history) for name in judged],
        shares=shares,
        gates=[_curve(name, history) for name in gates],
    )
