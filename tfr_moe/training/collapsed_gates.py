"""Gates that have collapsed: the same experts for all categories, experts without items.

One place for the messages: training prints them from its metrics and, at its end, for validation
lists; the report shows them for the lists that it is on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console

from tfr_moe.config import RunConfig
from tfr_moe.scorers.gate_maps import GateReport
from tfr_moe.utils.console import warn

_BALANCE, _RATE = 0.01, 5.0  # the defaults of importance_weight and gate_learning_rate_multiplier
_BUSIEST, _UNIFORM = 0.95, 0.995


class GateUse(NamedTuple):
    """How a gate uses its experts.

    Attributes:
        num_experts: N.
        dead: number of experts with less than 1 % of an equal share of the weight.
        busiest: share of the weight of the expert with the most.
        entropy: in nats; None if it is not checked.
        names: the dead experts, if known.
        same: the experts of all top categories alike, see `same_experts`.
        top_categories: number of top categories, if known.
    """

    num_experts: int
    dead: int
    busiest: float
    entropy: float | None = None
    names: Sequence[int] = ()
    same: Sequence[int] = ()
    top_categories: int | None = None


def gate_problems(task: str, use: GateUse, config: RunConfig) -> dict[str, str]:
    """What is wrong with a gate, and which settings to change: kind -> message.

    Args:
        task: the task of the gate, "" for a gate of all tasks.
        use: of its experts.
        config: configuration of the run.
    """
    gate = f"the gate of {task}" if task else "the gate"
    dense = config.spec.dense_gate
    mixed = use.num_experts if dense else config.gate.top_k
    found = {}
    if use.same:
        found["same"] = (
            f"{gate} has collapsed: all top categories have the same experts "
            f"{', '.join(map(str, use.same))}; {_remedy(config)}"
        )
    if dense and mixed > 1 and use.busiest > _BUSIEST:
        found["collapsed"] = (
            f"{gate} has collapsed: one expert gets {use.busiest:.0%} of its weight; reduce "
            "learning_rate or set dropout"
        )
    if use.dead:
        names = f": {', '.join(map(str, use.names))}" if use.names else ""
        get = "gets" if use.dead == 1 else "get"
        found["dead"] = (
            f"{use.dead} of {use.num_experts} experts {get} less than 1 % of an equal share of the "
            f"weight of {gate}{names}; {_remedy_of_dead(use, config)}"
        )
    if use.entropy is not None and mixed > 1 and use.entropy > _UNIFORM * math.log(mixed):
        found["uniform"] = (
            f"{gate} is near uniform over its {mixed} experts (entropy {use.entropy:.3f} of "
            f"{math.log(mixed):.3f}); "
            + (
                "use fewer experts or a larger learning_rate"
                if dense
                else "set gate_learning_rate_multiplier"
            )
        )
    return found


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
    messages: list[str] = []
    for task, report in reports.items():
        dead = _avoidable(report, config)
        use = GateUse(
            report.num_experts,
            len(dead),
            max(report.utilisation),
            names=dead,
            same=same_experts(report) if config.gate.gate_features is None else (),
            top_categories=len(report.top_categories) or None,
        )
        messages += gate_problems(task, use, config).values()
    return messages


def _avoidable(report: GateReport, config: RunConfig) -> list[int]:
    """The dead experts but those of PLE's domains: a domain without lists is none of the gate's."""
    if "num_shared_experts" not in config.spec.settings:
        return report.dead
    first_shared = report.num_experts - config.domains.num_shared_experts
    return [expert for expert in report.dead if expert >= first_shared]


def _remedy_of_dead(use: GateUse, config: RunConfig) -> str:
    """The remedy, which is fewer experts where the top categories have no use for so many."""
    top_k, categories = config.gate.top_k, use.top_categories
    if config.spec.dense_gate or categories is None or top_k * categories >= use.num_experts:
        return _remedy(config)
    useful = top_k * categories
    return (
        f"{categories} top categories with {top_k} experts each: set num_experts={useful} or less"
    )


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
