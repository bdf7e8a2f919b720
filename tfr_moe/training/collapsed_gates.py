"""Gates that have collapsed: the same experts for all categories, experts without items."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Console

from tfr_moe.config import RunConfig
from tfr_moe.scorers.gate_maps import GateReport

_BALANCE, _RATE = 0.01, 5.0  # the defaults of importance_weight and gate_learning_rate_multiplier


def same_experts(report: GateReport) -> list[int]:
    """The K experts that are the first of all top categories; empty if categories differ.

    Also empty for a gate without categories or with a single one, and for one that weights all
    experts.
    """
    if len(report.top_categories) < 2 or report.top_k >= report.num_experts:
        return []
    chosen = {
        tuple(sorted(np.argsort(-np.array(top.weights), kind="stable")[: report.top_k].tolist()))
        for top in report.top_categories
    }
    return list(chosen.pop()) if len(chosen) == 1 else []


def collapsed_gates(reports: Mapping[str, GateReport], config: RunConfig) -> list[str]:
    """Describes what has collapsed in gates, and which settings to change.

    Args:
        reports: by task of the gate, "" for a gate of all tasks; on lists scored without noise.
        config: configuration of the run.

    Returns:
        Messages; none for gates in order.
    """
    messages = []
    for task, report in reports.items():
        gate = f"the gate of {task}" if task else "the gate"
        same = same_experts(report) if config.gate.gate_features is None else []
        if same:
            messages.append(
                f"{gate} has collapsed: all {len(report.top_categories)} top categories have the "
                f"same experts {', '.join(map(str, same))}; {_cure(config)}"
            )
        if report.dead:
            messages.append(
                f"{len(report.dead)} of {report.num_experts} experts get less than 1 % of an equal "
                f"share of the weight of {gate}: {', '.join(map(str, report.dead))}; "
                f"{_cure(config)}"
            )
    return messages


def _cure(config: RunConfig) -> str:
    changes = []
    if "importance_weight" in config.spec.settings:
        weight = config.gate.importance_weight
        changes.append(f"importance_weight={_BALANCE if weight < _BALANCE else 10 * weight:g}")
    rate = config.gate.gate_learning_rate_multiplier
    if "gate_learning_rate_multiplier" in config.spec.settings and rate < _RATE:
        changes.append(f"gate_learning_rate_multiplier={_RATE:g}")
    return f"set {' and '.join(changes)}, or use fewer experts" if changes else "use fewer experts"


def warn_of_gates(reports: Mapping[str, GateReport], config: RunConfig, console: Console) -> None:
    """Prints a warning for each message of `collapsed_gates`."""
    for message in collapsed_gates(reports, config):
        console.print(
            f"warning: on validation lists, {message}",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
