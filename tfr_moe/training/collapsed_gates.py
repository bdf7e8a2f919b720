"""Gates that have collapsed: the same experts for all categories, experts without items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console

from tfr_moe.config import RunConfig
from tfr_moe.scorers.gate_maps import GateReport, most_weighted
from tfr_moe.utils.console import warn

_BALANCE, _RATE = 0.01, 5.0  # the defaults of importance_weight and gate_learning_rate_multiplier
_BUSIEST, _UNIFORM = 0.95, 0.995


def gate_problems(
    task: str,
    config: RunConfig,
    num_experts: int,
    dead: int,
    busiest: float,
    entropy: float | None = None,
    names: Sequence[int] = (),
    same: Sequence[int] = (),
    top_categories: int | None = None,
) -> dict[str, str]:
    """What is wrong with a gate, and which settings to change: kind -> message.

    Args:
        task: the task of the gate, "" for a gate of all tasks.
        dead: number of experts with less than 1 % of an equal share; `names` are theirs, if known.
        busiest: share of the weight of the expert with the most.
        entropy: in nats; None if it is not checked.
        same: the experts of all top categories alike, see `same_experts`.
        top_categories: their number, if known.
    """
    gate = f"the gate of {task}" if task else "the gate"
    dense = config.spec.dense_gate
    mixed = num_experts if dense else config.gate.top_k
    problems = {}
    if same:
        problems["same"] = (
            f"{gate} has collapsed: all top categories have the same experts "
            f"{', '.join(map(str, same))}; {_remedy(config)}"
        )
    if dense and mixed > 1 and busiest > _BUSIEST:
        problems["collapsed"] = (
            f"{gate} has collapsed: one expert gets {busiest:.0%} of its weight; reduce "
            "learning_rate or set dropout"
        )
    if dead:
        known = f": {', '.join(map(str, names))}" if names else ""
        get = "gets" if dead == 1 else "get"
        remedy, needed = _remedy(config), config.gate.top_k * (top_categories or num_experts)
        if not dense and needed < num_experts:
            remedy = (
                f"{top_categories} top categories with {config.gate.top_k} experts each: set "
                f"num_experts={needed} or less"
            )
        problems["dead"] = (
            f"{dead} of {num_experts} experts {get} less than 1 % of an equal share of the "
            f"weight of {gate}{known}; {remedy}"
        )
    if entropy is not None and mixed > 1 and entropy > _UNIFORM * math.log(mixed):
        for_dense = "use fewer experts or a larger learning_rate"
        problems["uniform"] = (
            f"{gate} is near uniform over its {mixed} experts (entropy {entropy:.3f} of "
            f"{math.log(mixed):.3f}); {for_dense if dense else 'set gate_learning_rate_multiplier'}"
        )
    return problems


def same_experts(report: GateReport) -> list[int]:
    """The K experts that come first in all of several top categories; empty if they differ."""
    if len(report.top_categories) < 2 or report.top_k >= report.num_experts:
        return []
    chosen = {most_weighted(top.weights, report.top_k) for top in report.top_categories}
    return list(chosen.pop()) if len(chosen) == 1 else []


def collapsed_gates(reports: Mapping[str, GateReport], config: RunConfig) -> list[str]:
    """Messages on what has collapsed in gates, by task, and which settings to change."""
    messages: list[str] = []
    for task, report in reports.items():
        dead = report.dead
        if "num_shared_experts" in config.spec.settings:
            # A domain of PLE without lists is no fault of the gate.
            first_shared = report.num_experts - config.domains.num_shared_experts
            dead = [expert for expert in dead if expert >= first_shared]
        problems = gate_problems(
            task,
            config,
            report.num_experts,
            len(dead),
            max(report.utilisation),
            names=dead,
            same=same_experts(report) if config.gate.gate_features is None else (),
            top_categories=len(report.top_categories) or None,
        )
        messages += problems.values()
    return messages


def _remedy(config: RunConfig) -> str:
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
        warn(console, f"on validation lists, {message}")
