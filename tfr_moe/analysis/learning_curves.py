"""Learning curves of a run, with the regularizers as shares of their maximum."""

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
        name: as in `history.json`, or `hsc_share` for HSC divided by its maximum.
        epochs: the epochs with a value.
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
        monitor: the metric that selected it.
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

    with equality if each gate has all weight on one expert and the two experts differ. For K = 1
    only one of them is in U.

    Example:
        >>> hsc_maximum(4), hsc_maximum(1)
        (2.0, 1.0)
    """
    return float(min(top_k, 2))


def _curve(name: str, history: Sequence[Mapping[str, Any]], over: float = 1.0) -> Curve:
    points = [
        (entry["epoch"], entry[name] / over)
        for entry in history
        if name in entry and math.isfinite(entry[name])
    ]
    return Curve(name, [epoch for epoch, _ in points], [value for _, value in points])


def learning_curves(
    history: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any], config: RunConfig
) -> LearningCurves:
    """The curves of a run.

    Args:
        history: the content of `history.json`, one entry per epoch.
        metrics: the content of `metrics.json`.
        config: the run's settings.

    Returns:
        The curves; a list is empty where the model has no such quantity.
    """
    names = list(dict.fromkeys(name for entry in history for name in entry))
    losses = [n for n in ("loss", "val_loss") if n in names]
    validation = [n for n in names if n.startswith("val_") and not n.endswith("loss")]
    gates = [n for n in names if n.startswith(("gate_entropy", "busiest_share", "dead_experts"))]
    shares = []
    for name in names:
        if name.startswith("adversarial_share"):
            shares.append(_curve(name, history))
        elif name == "hsc" or name.startswith("hsc_"):
            scaled = _curve(name, history, hsc_maximum(config.gate.top_k))
            shares.append(Curve(name.replace("hsc", "hsc_share", 1), scaled.epochs, scaled.values))
    return LearningCurves(
        best_epoch=int(metrics.get("best_epoch") or 0),
        monitor=str(metrics.get("monitor", "")),
        losses=[_curve(name, history) for name in losses],
        metrics=[_curve(name, history) for name in validation],
        shares=shares,
        gates=[_curve(name, history) for name in gates],
    )
