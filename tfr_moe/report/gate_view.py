"""Gates to be read: experts in the order of what they serve, like categories side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.optimize import linear_sum_assignment

from tfr_moe.evaluation.breakdown import NO_CATEGORY
from tfr_moe.report.figures import Cell, HeatMap, label
from tfr_moe.scorers.gate_maps import CategoryGate, GateReport, most_weighted
from tfr_moe.utils.formats import percent

MAX_CATEGORIES = 60
_LEAST_SHARE = 0.1  # of an expert's weight, for a category that is named


def name_of(gate: CategoryGate) -> str:
    """The name of a category; a sub-category with its top category."""
    return (f"{gate.parent} > {gate.child}" if gate.child else gate.parent) or NO_CATEGORY


def dead_share(report: GateReport) -> float:
    """The share of the weight that all dead experts have together."""
    return sum(report.utilisation[expert] for expert in report.dead)


def clustered(gates: Sequence[CategoryGate]) -> list[CategoryGate]:
    """The categories so that those with like gates are neighbours (optimal leaf ordering)."""
    if len(gates) < 3:
        return list(gates)
    weights = np.array([gate.weights for gate in gates])
    return [gates[i] for i in leaves_list(linkage(weights, "average", optimal_ordering=True))]


def ordered_experts(gates: Sequence[CategoryGate]) -> list[int]:
    """Experts by the mean position of the categories they serve."""
    weights = np.array([gate.weights for gate in gates])
    total = weights.sum(axis=0)
    position = np.arange(len(gates)) @ weights / np.maximum(total, 1e-12)
    return np.argsort(np.where(total > 0, position, np.inf), kind="stable").tolist()


def experts_of(report: GateReport) -> list[dict[str, Any]]:
    """The experts of a gate that are not dead, the one with the most weight first.

    Each with its `number`, its `share` of the gate's weight, the share of items for which it is
    `selected`, and the top categories that it `serves`, with their shares of its weight.
    """
    gates = report.top_categories
    mass = np.array([gate.lists * np.array(gate.weights) for gate in gates])
    rows = []
    for number in np.argsort(-np.array(report.utilisation), kind="stable").tolist():
        if number in report.dead:
            continue
        shares = mass[:, number] / mass[:, number].sum() if len(mass) else mass
        serves = [
            (name_of(gates[i]), float(shares[i]))
            for i in np.argsort(-shares, kind="stable")[:3].tolist()
            if shares[i] >= _LEAST_SHARE
        ]
        share, selected = report.utilisation[number], report.load[number]
        rows.append({"number": number, "share": share, "selected": selected, "serves": serves})
    return rows


def gate_maps(report: GateReport, name: str) -> list[HeatMap]:
    """The mean weights of the experts by top category, and by sub-category; empty without any.

    At most `MAX_CATEGORIES` with the most lists, like gates beside each other.
    """
    if not report.top_categories:
        return []
    largest = report.top_categories[:MAX_CATEGORIES]
    tops = clustered(largest)
    experts = ordered_experts(tops)
    by_size = sorted(report.sub_categories, key=lambda gate: -gate.lists)[:MAX_CATEGORIES]
    parents = dict.fromkeys(gate.parent for gate in [*tops, *by_size])
    subs = [g for top in parents for g in clustered([s for s in by_size if s.parent == top])]
    maps = []
    for kind, rows, total in (
        ("top category", tops, len(report.top_categories)),
        ("sub-category", subs, len(report.sub_categories)),
    ):
        cut = f", the {len(rows)} of {total} with the most lists" if len(rows) < total else ""
        maps.append(_map(f"{name}: weight of each expert by {kind}{cut}", rows, experts, report))
    return maps


def _map(
    caption: str, gates: Sequence[CategoryGate], experts: Sequence[int], report: GateReport
) -> HeatMap:
    columns = [
        (f"{expert} ✕" if expert in report.dead else str(expert),
         "dead" if expert in report.dead else "")
        for expert in experts
    ]  # fmt: skip
    cells = [
        [
            Cell(
                f"{gate.weights[expert]:.2f}" if gate.weights[expert] >= 0.005 else "",
                gate.weights[expert],
                f"{name_of(gate)}, expert {expert}: {gate.weights[expert]:.3f} "
                f"({gate.lists:,} lists)",
            )
            for expert in experts
        ]
        for gate in gates
    ]
    return HeatMap(
        caption, columns, [label(name_of(g)) for g in gates], cells, "category ↓ expert →"
    )


def gate_change(
    new: GateReport, old: GateReport, names: Sequence[str]
) -> tuple[str, list[HeatMap]] | None:
    """Two gates by top category side by side, and a sentence on what differs.

    Experts have no order: those of `old` are matched to those of `new` so that categories in both
    share as much weight as possible (linear sum assignment). None for gates without common
    categories, or of another number of experts.
    """
    before = {gate.parent: gate for gate in old.top_categories}
    tops = [gate for gate in new.top_categories if gate.parent in before][:MAX_CATEGORIES]
    if not tops or new.num_experts != old.num_experts:
        return None
    tops = clustered(tops)
    weights = np.array([gate.weights for gate in tops])
    of_old = np.array([before[gate.parent].weights for gate in tops])
    shared = np.minimum(weights[:, :, None], of_old[:, None, :]).sum(axis=0)
    match = linear_sum_assignment(-shared)[1]
    moved = 1 - np.minimum(weights, of_old[:, match]).sum(axis=1)
    most, lists = int(np.argmax(moved)), [gate.lists for gate in tops]
    pairs = zip(weights, of_old[:, match], strict=True)
    # Of gates that weight all experts, the busiest.
    new_k, old_k = (gate.top_k if gate.top_k < gate.num_experts else 1 for gate in (new, old))
    changed = sum(most_weighted(a, new_k) != most_weighted(b, old_k) for a, b in pairs)
    what = "other experts" if new.top_k < new.num_experts else "another busiest expert"
    finding = (
        f"Against {names[1]}, {changed} of {len(tops)} top categories have {what}; "
        f"{percent(np.average(moved, weights=lists))} of the weight has moved"
    )
    finding += f", most in {name_of(tops[most])} ({percent(moved[most])})." if changed else "."
    experts, like = ordered_experts(tops), [before[gate.parent] for gate in tops]
    return finding, [
        _map(f"{names[0]}: weights of experts", tops, experts, new),
        _map(f"{names[1]}: of matching experts", like, match[experts].tolist(), old),
    ]
